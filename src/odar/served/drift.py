"""Whether the free energies of served answers drift away from those of the calibration (SPEC 5.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from odar.calibration_file import Statistics
from odar.policy.energy import Alignment
from odar.served.histogram import Histogram

_ERRORS = 4.0
"""Standard errors beyond which a shift is significant; more than 3, because samples of a question correlate."""
_SHIFT = 0.5
"""Minimum shift of the mean, in σ, that counts as drift."""
_SPREAD = 1.5
"""Minimum factor by which σ grows or shrinks that counts as drift."""
_MIN_COMPARED = 30
"""Minimum number of served candidates for a comparison."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Served energies of one source, and how far they are from the calibrated ones."""

    model: str
    step: str
    """answer, verify or solve; the prompt's MD5 if it is not a current prompt."""
    count: float
    """Served candidates, weighted by age."""
    mean: float | None
    deviation: float | None
    drift_z: float | None
    """The shift of the mean in standard errors; None if there are too few candidates to compare."""
    drifting: bool
    """Whether mean or deviation moved significantly, and far."""

    @classmethod
    def of(cls, model: str, step: str, served: Histogram, calibrated: Statistics | None) -> DriftReport:
        alignment = served.alignment()
        if alignment is None:
            return cls(model, step, served.count, None, None, None, drifting=False)
        z, drifting = (None, False) if calibrated is None else drift(alignment, served.count, calibrated)
        return cls(model, step, served.count, alignment.mean, alignment.deviation, z, drifting)


def drift(served: Alignment, count: float, calibrated: Statistics) -> tuple[float | None, bool]:
    """The shift of the mean of served energies in standard errors, and whether they drifted.

    None if there are too few energies to compare.
    """
    if count < _MIN_COMPARED or calibrated.deviation <= 0 or calibrated.count < 2:
        return None, False
    shift = (served.mean - calibrated.mean) / calibrated.deviation
    spread = served.deviation / calibrated.deviation
    # Both means are estimates. The larger σ is used, so that a wider spread is not taken for a shift.
    error = math.sqrt(1 / count + 1 / calibrated.count)
    z = shift / (max(1.0, spread) * error)
    moved = abs(z) > _ERRORS and abs(shift) > _SHIFT
    # The logarithm of σ has this error for tails somewhat heavier than a Gaussian's, as energies have.
    widened = abs(math.log(spread)) / error > _ERRORS and not 1 / _SPREAD < spread < _SPREAD
    return z, moved or widened
