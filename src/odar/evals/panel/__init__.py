"""Panels: both agents run once on every item, everything they said kept, so that any policy can be replayed."""
