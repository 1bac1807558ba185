"""Do served energies still look like the calibrated ones? It is reported, and changes nothing (SPEC 5.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from odar.fusion.running import Running
from odar.fusion.statistics import Source, Statistics

SURE = 4.0
"""Standard errors beyond which a difference is no accident; samples of one question are alike, so more than 3."""
SHIFT = 0.5
"""A mean that moved by less than this many σ changes no choice worth speaking of."""
SPREAD = 1.5
"""Nor does a σ that grew or shrank by less than this factor."""
FEWEST = 30
"""Served candidates below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far served energies are from the calibrated ones."""

    z: float
    """The difference of the means in standard errors."""
    shift: float
    """The same in calibrated σ."""
    spread: float
    """Served σ over calibrated σ."""
    drifting: bool
    """Whether the difference is both sure and large."""


def drift(running: Running, calibrated: Statistics) -> Drift | None:
    """Compare what is served with what was calibrated; None where there is too little to compare.

    >>> served = Running.of([0.3 + 0.001 * i for i in range(100)], day=0.0)
    >>> drift(served, Statistics(mean=0.2, deviation=0.05, count=100)).drifting
    True
    """
    served = running.alignment()
    count = running.count
    if served is None or count < FEWEST or calibrated.deviation <= 0 or calibrated.count < 2:
        return None
    shift = (served.mean - calibrated.mean) / calibrated.deviation
    spread = served.deviation / calibrated.deviation
    # Both means are estimates. The wider σ of the two: a source that became erratic must not look surely moved.
    error = max(1.0, spread) * math.sqrt(1 / count + 1 / calibrated.count)
    z = shift / error
    moved = abs(z) > SURE and abs(shift) > SHIFT
    # The logarithm of σ has this error for tails somewhat heavier than a Gaussian's, as energies have.
    widened = abs(math.log(spread)) / math.sqrt(1 / count + 1 / calibrated.count)
    reshaped = widened > SURE and not 1 / SPREAD < spread < SPREAD
    return Drift(z, shift, spread, moved or reshaped)


@dataclass(frozen=True, slots=True)
class AlignmentRow:
    """What is known of one source's energies: for a table, a page, a metric."""

    model: str
    step: str
    """answer, verify or solve; the prompt's MD5 where it is none of the present ones."""
    scorer: str
    """The surrogate that scored its texts; empty where the model's own log-probs did."""
    used: str
    """What its energies are aligned by now: calibrated, running or nothing."""
    count: float
    """Served candidates, the faded ones in part."""
    seen: int
    """Served candidates in all."""
    calibrated_mean: float | None
    calibrated_deviation: float | None
    running_mean: float | None
    running_deviation: float | None
    drift_z: float | None
    """None where there is too little to compare."""
    drifting: bool


def alignment_row(
    source: Source, step: str, calibrated: Statistics | None, running: Running, floor: int
) -> AlignmentRow:
    """One row of the report."""
    served = running.alignment()
    found = None if calibrated is None else drift(running, calibrated)
    ready = served is not None and running.count >= floor
    return AlignmentRow(
        model=source.model,
        step=step,
        scorer=source.scorer,
        used="calibrated" if calibrated else "running" if ready else "nothing",
        count=running.count,
        seen=running.seen,
        calibrated_mean=calibrated.mean if calibrated else None,
        calibrated_deviation=calibrated.deviation if calibrated else None,
        running_mean=served.mean if served else None,
        running_deviation=served.deviation if served else None,
        drift_z=found.z if found else None,
        drifting=found is not None and found.drifting,
    )
