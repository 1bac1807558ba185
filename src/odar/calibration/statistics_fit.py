"""μ and σ of each source's free energies, and of the lengths of the fast answers (SPEC 5.5, 5.11)."""

from __future__ import annotations

import numpy as np

from odar.calibration.evidence import Evidence
from odar.policy.alignment import Statistics
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.rules import Array


def fit_statistics(evidence: Evidence) -> tuple[Statistics | None, ...]:
    """The statistics of the fast answer, the verification and the slow samples; None where none has an energy.

    They are those of the models' own log-probabilities: what a surrogate made of the same texts is another scale.
    """
    lengths = (evidence.fast.log_tokens, None, None)
    columns = _by_source(evidence.candidates.energy)
    return tuple(statistics_of(energy, length) for energy, length in zip(columns, lengths, strict=True))


def fit_scores(evidence: Evidence) -> tuple[Statistics | None, ...] | None:
    """The same for the surrogate's scores; None where no surrogate decides."""
    if not evidence.by_surrogate:
        return None
    return tuple(statistics_of(energy) for energy in _by_source(evidence.candidates.surrogate))


def _by_source(energy: Array) -> list[Array]:
    return [energy[:, FAST], energy[:, VERIFY], energy[:, SOLVE:].ravel()]


def statistics_of(energy: Array, log_tokens: Array | None = None) -> Statistics | None:
    """μ and σ with the tails drawn in: one absurd answer must not move them. None where no energy is known.

    >>> statistics_of(np.array([0.1, 0.3, np.nan]))
    Statistics(mean=0.2, deviation=0.1, count=2, skill=1.0, log_tokens_mean=None, log_tokens_deviation=None)
    """
    known = energy[np.isfinite(energy)]
    if not known.size:
        return None
    mean, deviation = _centre(known)
    length: tuple[float | None, float | None] = (None, None)
    if log_tokens is not None and np.isfinite(log_tokens).any():
        length = _centre(log_tokens[np.isfinite(log_tokens)])
    return Statistics(mean, deviation, int(known.size), 1.0, *length)


def _centre(values: Array) -> tuple[float, float]:
    drawn = np.clip(values, *np.percentile(values, [1, 99])) if values.size > 2 else values
    return round(float(drawn.mean()), 6), round(float(drawn.std()), 6) or 1.0
