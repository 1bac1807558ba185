"""Recorded answers → everything that is fitted: alignment, skills, β, thresholds, posterior (SPEC 2.7, 5)."""
