"""Recorded answers → statistics, skills and belief of a user's agents, and what pays (SPEC 9.8, 10.1)."""
