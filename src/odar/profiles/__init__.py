"""Shipped profiles: every constant of SPEC 2.7, 3 and 5 with its number."""
