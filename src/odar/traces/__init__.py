"""Traces, feedback and observations, in SQLite or PostgreSQL. `record.py` has the one trace document.

`database.py` has every table, also those of `odar.serving`: keys, spending, reservations and sessions.
"""
