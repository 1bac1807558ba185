"""What fusion needs to know of a recorded answer, as numbers: computed once, when the panel is written.

Everything comes from `odar.fusion`: a replay weighs an answer by the same figures as the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from odar.evals.panel.entry import Attempt
from odar.policy.energy import measure
from odar.policy.fusion import confidences, token_counts


@dataclass(frozen=True, slots=True)
class Figures:
    """One answer in numbers; None where it has no log-probabilities."""

    energy: float | None
    """E (SPEC 5.1)."""
    varentropy: float | None
    """V (SPEC 5.2)."""
    mean_logprob: float | None
    mean_probability: float | None
    lowest_window: float | None
    total: int
    """Tokens that count for SPEC 5.6; an estimate where none are listed."""
    missing: int
    """Those without a log-probability."""
    length: int
    """Tokens but for control tokens, as the posterior difficulty counts them (SPEC 5.11)."""
    stated: int
    """Whether it marked its final answer, where it was told to."""


def figures_of(attempt: Attempt) -> Figures:
    """The figures of an attempt."""
    candidate = attempt.candidate
    total, missing = token_counts(candidate)
    length = sum(not token.control for token in candidate.tokens)
    stated = int(candidate.stated)
    energy = measure(candidate.tokens, 0.0, None)
    if energy is None:
        return Figures(None, None, None, None, None, total, missing, length, stated)
    mean, probability, window = confidences(candidate)
    return Figures(energy.energy, energy.varentropy, mean, probability, window, total, missing, length, stated)
