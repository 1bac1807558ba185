"""Benchmarks: where the data is, how it becomes queries, how answers are scored (SPEC 7.1)."""
