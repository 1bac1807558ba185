"""Traces, feedback and observations, in SQLite or PostgreSQL. `record.py` has the one trace document."""
