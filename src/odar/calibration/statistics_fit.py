"""μ and σ of each source's free energies, and quantiles of the fast answers' signals (SPEC 5.5, 5.11)."""

from __future__ import annotations

import numpy as np

from odar.calibration.evidence import Evidence
from odar.policy.alignment import Statistics
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.rules import Array
from odar.policy.signals import QuantileTables, SignalArrays


def fit_statistics(evidence: Evidence) -> tuple[Statistics | None, ...]:
    """The statistics of the fast answer, the verification and the slow samples; None where none has an energy.

    They are those of the models' own log-probabilities: what a surrogate made of the same texts is another scale.
    """
    fast, *slow = _by_source(evidence.candidates.energy)
    return statistics_of(fast, evidence.fast.signals), *map(statistics_of, slow)


def fit_scores(evidence: Evidence) -> tuple[Statistics | None, ...] | None:
    """The same for the surrogate's scores; None where no surrogate decides."""
    if not evidence.by_surrogate:
        return None
    return tuple(statistics_of(energy) for energy in _by_source(evidence.candidates.surrogate))


def _by_source(energy: Array) -> list[Array]:
    return [energy[:, FAST], energy[:, VERIFY], energy[:, SOLVE:].ravel()]


def statistics_of(energy: Array, signals: SignalArrays | None = None) -> Statistics | None:
    """μ and σ with the tails drawn in: one absurd answer must not move them. None where nothing is known.

    A model without log-probabilities has no μ and σ, but quantiles of lengths: its deviation is 1.

    >>> statistics_of(np.array([0.1, 0.3, np.nan]))
    Statistics(mean=0.2, deviation=0.1, count=2, skill=1.0, quantiles=None)
    """
    known = energy[np.isfinite(energy)]
    quantiles = (QuantileTables.of(signals).document() or None) if signals is not None else None
    if not known.size:
        return None if quantiles is None else Statistics(0.0, 1.0, 0, quantiles=quantiles)
    return Statistics(*_centre(known), int(known.size), quantiles=quantiles)


def _centre(values: Array) -> tuple[float, float]:
    drawn = np.clip(values, *np.percentile(values, [1, 99])) if values.size > 2 else values
    return round(float(drawn.mean()), 6), round(float(drawn.std()), 6) or 1.0
