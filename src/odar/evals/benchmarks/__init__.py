"""Benchmarks, one small file each: where the data is, how an item becomes a query, how an answer is scored (SPEC 7.1)."""
