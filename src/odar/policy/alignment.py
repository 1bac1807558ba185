"""What is known of a source of candidates: μ and σ of its free energies, and its skill (SPEC 5.5, 5.10b)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from odar.policy.arrays import Array
from odar.policy.energy import Alignment
from odar.policy.signals import GRID, QuantileTables


@dataclass(frozen=True, slots=True)
class Source:
    """The source of candidates. Statistics are valid only for an identical source."""

    model: str
    prompt_md5: str
    temperature: float
    top_p: float
    max_tokens: int
    varentropy_weight: float
    scorer: str = ""
    """The surrogate whose log-probs these are; empty for the model's own."""
    signal: str = ""
    """`kind/name` where values of a signal are counted (SPEC 5.11); empty for free energies."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """How a source behaves on a calibration set."""

    mean: float
    """μ of its free energies."""
    deviation: float
    """σ of its free energies."""
    count: int
    """Candidates behind μ and σ."""
    skill: float = 1.0
    """w_m: its weight in a vote, from its accuracy; 1 is the best source of its set."""
    quantiles: Mapping[str, Mapping[str, Sequence[float]]] | None = None
    """Quantiles of the signals of its answers, for the posterior difficulty (SPEC 5.11); None if not measured."""

    @property
    def alignment(self) -> Alignment:
        """μ and σ as they are applied."""
        return Alignment(self.mean, self.deviation)

    @property
    def tables(self) -> QuantileTables | None:
        """The quantiles as tables for looking up ranks; raises ValueError if they are invalid."""
        return None if self.quantiles is None else QuantileTables.from_dict(self.quantiles)


def statistics_to_rows(statistics: Mapping[Source, Statistics]) -> list[dict[str, Any]]:
    """Return statistics by source as JSON-ready rows."""
    return [{**asdict(source), **asdict(known)} for source, known in statistics.items()]


def statistics_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[Source, Statistics]:
    """Read what `statistics_to_rows` wrote; raises ValueError if a row lacks something or has invalid tables.

    A field with a default may be missing: files outlive the code that wrote them.
    """
    found = {msgspec.convert(row, Source): msgspec.convert(row, Statistics) for row in rows}
    for statistics in found.values():
        _ = statistics.tables
    return found


RATIO = 1.02
"""Ratio of adjacent bin edges: no energy is off by more than 1%."""
_LOWEST, _HIGHEST = 1e-4, 1e6
"""Values outside these bounds are clipped to them."""
_FENCE = 3.0
"""Tukey's outer fences: energies farther from the quartiles than this many times their distance are pulled in."""
_MIN_WEIGHT = 1e-3
"""Bins with less weight than this are dropped."""


def bin_index(energy: float) -> int:
    """Return the bin of an energy; infinity is in the last one, and NaN has none."""
    return round(math.log(min(max(energy, _LOWEST), _HIGHEST)) / math.log(RATIO))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of the served values of one source; older values weigh less.

    >>> Histogram.from_values([0.1, 0.2, 0.3], day=0.0).count
    3.0
    """

    bins: Mapping[int, float] = field(default_factory=dict)
    """Weight by bin, as of `day`."""
    day: float = 0.0
    """Days since 1970, with a fraction."""
    seen: int = 0
    """Number of candidates, regardless of their age."""

    @classmethod
    def from_values(cls, energies: Iterable[float], day: float) -> Histogram:
        """Return the histogram of energies that were all served on one day; NaN is left out."""
        bins = Counter(bin_index(energy) for energy in energies if not math.isnan(energy))
        return cls({number: float(count) for number, count in bins.items()}, day, bins.total())

    @property
    def count(self) -> float:
        """The sum of the weights."""
        return math.fsum(self.bins.values())

    def merged(self, other: Histogram, half_life: float) -> Histogram:
        """Return the sum of both, as of the later day; it does not depend on their order."""
        day = max(self.day, other.day)
        bins = dict(self.decayed(day, half_life).bins)
        for number, weight in other.decayed(day, half_life).bins.items():
            bins[number] = bins.get(number, 0.0) + weight
        return Histogram(bins, day, self.seen + other.seen)

    def decayed(self, day: float, half_life: float) -> Histogram:
        """Return the same counts with their weights on a later day."""
        left = 0.5 ** (max(0.0, day - self.day) / half_life)
        bins = {number: weight * left for number, weight in self.bins.items() if weight * left > _MIN_WEIGHT}
        return Histogram(bins, max(day, self.day), self.seen)

    def quantiles(self, levels: ArrayLike = GRID) -> Array:
        """Return the smallest values that these shares of the weight do not exceed; by default those of a table."""
        values, weights = self._sorted()
        reached = np.cumsum(weights)
        at = np.searchsorted(reached, np.asarray(levels) * reached[-1] * (1 - 1e-12))
        return np.asarray(values[np.minimum(at, len(values) - 1)])

    def alignment(self) -> Alignment | None:
        """μ and σ with outliers pulled in to the fences; None if there are no two different energies."""
        if not self.bins:
            return None
        values, weights = self._sorted()
        low, high = self.quantiles((0.25, 0.75)).tolist()
        reach = _FENCE * max(high - low, low * (RATIO - 1))  # where half of all are in one bin, still a little room
        values = np.clip(values, low - reach, high + reach)
        mean = float(np.average(values, weights=weights))
        deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        return Alignment(mean, deviation) if deviation > 0 else None

    def _sorted(self) -> tuple[Array, Array]:
        """Values in ascending order, and their weights."""
        order = sorted(self.bins)
        return RATIO ** np.array(order, dtype=np.float64), np.array([self.bins[number] for number in order])


DRIFT_ERRORS = 4.0
"""A shift is significant beyond this many standard errors; more than 3, as samples of one question correlate."""
DRIFT_SHIFT = 0.5
"""Minimum shift of the mean, in σ, that counts as drift."""
DRIFT_SPREAD = 1.5
"""Minimum factor by which σ grows or shrinks that counts as drift."""
MIN_SERVED = 50
"""Served candidates of a source before its own statistics are used."""
MIN_COMPARED = 30
"""Minimum number of served candidates for a comparison."""


class Drift(NamedTuple):
    """How far served energies are from the calibrated ones."""

    z: float
    """The difference of the means in standard errors."""
    spread: float
    """Served σ over calibrated σ."""
    drifting: bool
    """Whether the difference is both sure and large."""


def measure_drift(running: Histogram, calibrated: Statistics) -> Drift | None:
    """Compare what is served with what was calibrated; None if there is too little to compare."""
    served = running.alignment()
    count = running.count
    if served is None or count < MIN_COMPARED or calibrated.deviation <= 0 or calibrated.count < 2:
        return None
    shift = (served.mean - calibrated.mean) / calibrated.deviation
    spread = served.deviation / calibrated.deviation
    # Both means are estimates. The larger σ is used, so that a wider spread is not taken for a shift.
    error = max(1.0, spread) * math.sqrt(1 / count + 1 / calibrated.count)
    z = shift / error
    moved = abs(z) > DRIFT_ERRORS and abs(shift) > DRIFT_SHIFT
    # The logarithm of σ has this error for tails somewhat heavier than a Gaussian's, as energies have.
    widened = abs(math.log(spread)) / math.sqrt(1 / count + 1 / calibrated.count)
    reshaped = widened > DRIFT_ERRORS and not 1 / DRIFT_SPREAD < spread < DRIFT_SPREAD
    return Drift(z, spread, moved or reshaped)


@dataclass(frozen=True, slots=True)
class AlignmentRow:
    """What is known of one source's energies, for reports and metrics."""

    model: str
    step: str
    """answer, verify or solve; the prompt's MD5 if it is not a current prompt."""
    scorer: str
    """The surrogate that scored its texts; empty if the model's own log-probs did."""
    used: str
    """What its energies are aligned by now: calibrated, running or nothing."""
    count: float
    """Served candidates, older ones in part."""
    seen: int
    """Served candidates in all."""
    calibrated_mean: float | None
    calibrated_deviation: float | None
    running_mean: float | None
    running_deviation: float | None
    drift_z: float | None
    """z-score of the drift; None if there is too little to compare."""
    drifting: bool


def alignment_row(source: Source, step: str, calibrated: Statistics | None, running: Histogram) -> AlignmentRow:
    """One row of the report."""
    served = running.alignment()
    found = None if calibrated is None else measure_drift(running, calibrated)
    ready = served is not None and running.count >= MIN_SERVED
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
