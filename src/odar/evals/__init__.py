"""Measuring policies: recorded outcomes in, figures out."""
