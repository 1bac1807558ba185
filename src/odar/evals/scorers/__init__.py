"""Scorers: how right a response is, from 0 to 1, by each benchmark's official rule. Plain functions."""
