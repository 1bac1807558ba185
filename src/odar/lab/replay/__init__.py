"""Replay of policies on recorded answers, without model calls."""
