"""Fit and judge the belief of the cascade (SPEC 9.3, 9.4) on recorded answers of many models."""
