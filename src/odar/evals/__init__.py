"""Benchmarks, scorers, replay of recorded answers, statistics and reports."""
