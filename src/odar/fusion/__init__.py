"""Candidates → one answer, by free energy or by what is left when log-probabilities are not (SPEC 5). Pure."""
