"""Benchmarks: sources of their data, conversion to tasks, and scoring (SPEC 7.1)."""
