"""Replay: what any policy would have done on a panel's items, by arithmetic alone."""
