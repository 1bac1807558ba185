"""Traces, feedback and API keys, in SQLite or PostgreSQL. Start with `store.py`."""
