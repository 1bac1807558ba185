"""Statistics of a source of candidates: μ and σ of its free energies, its skill, and drift (SPEC 5.5, 5.10b)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from odar.policy.arrays import Array
from odar.policy.energy import Alignment
from odar.policy.signals import GRID, QuantileTables


@dataclass(frozen=True, slots=True)
class Source:
    """A model, prompt and sampling that produce candidates. Statistics are valid only for an identical source."""

    model: str
    prompt_md5: str
    temperature: float
    top_p: float
    max_tokens: int
    varentropy_weight: float
    signal: str = ""
    """`kind/name` of a counted signal (SPEC 5.11); empty for free energies."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one source on a calibration set."""

    mean: float
    """μ of its free energies."""
    deviation: float
    """σ of its free energies."""
    count: int
    """Candidates behind μ and σ."""
    skill: float = 1.0
    """w_m: its weight in a vote, from its accuracy; 1 is the best source of the set."""
    accuracy: float | None = None
    """Share of its answers that were right, for the belief (SPEC 9.3); None if not measured."""
    quantiles: Mapping[str, Mapping[str, Sequence[float]]] | None = None
    """Quantiles of the signals of its answers (SPEC 5.11); None if not measured."""
    prompt_tokens: float | None = None
    """Mean tokens of its prompts beyond those of the question, for prices (SPEC 9.4); None if not measured."""
    output_tokens: float | None = None
    """Mean tokens of its answers; None if not measured."""
    unanswered: float = 0.0
    """Share of its answers that were cut off or empty."""
    accuracy_by_kind: Mapping[str, float] | None = None
    """`accuracy` by kind of question, shrunk towards that of all questions; None if not measured."""

    @property
    def alignment(self) -> Alignment:
        """μ and σ."""
        return Alignment(self.mean, self.deviation)

    @property
    def tables(self) -> QuantileTables | None:
        """The quantiles as tables for looking up ranks; raises ValueError if they are invalid."""
        return None if self.quantiles is None else QuantileTables.from_dict(self.quantiles)


def statistics_to_rows(statistics: Mapping[Source, Statistics]) -> list[dict[str, Any]]:
    return [{**asdict(source), **asdict(values)} for source, values in statistics.items()]


def statistics_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[Source, Statistics]:
    """Read what `statistics_to_rows` wrote; raises ValueError if a row lacks a field or has invalid tables.

    A field with a default may be missing, as in files of an earlier version.
    """
    statistics = {msgspec.convert(row, Source): msgspec.convert(row, Statistics) for row in rows}
    for each in statistics.values():
        _ = each.tables
    return statistics


RATIO = 1.02
"""Ratio of adjacent bins: rounding changes an energy by at most 1%."""
_LOWEST, _HIGHEST = 1e-4, 1e6
"""Values outside these bounds are clipped to them."""
_FENCE = 3.0
"""Tukey's outer fences: energies are clipped to this many interquartile ranges from the quartiles."""
_MIN_WEIGHT = 1e-3
"""Minimum weight of a bin; others are dropped."""


def bin_index(energy: float) -> int:
    """The bin of an energy, which must not be NaN."""
    return round(math.log(min(max(energy, _LOWEST), _HIGHEST)) / math.log(RATIO))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of the served values of one source; the weight of a value decays with its age.

    >>> Histogram.from_values([0.1, 0.2, 0.3], day=0.0).count
    3.0
    """

    bins: Mapping[int, Annotated[float, msgspec.Meta(ge=0)]] = field(default_factory=dict)
    """Weight by bin, as of `day`."""
    day: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Days since 1970, with a fraction."""
    seen: int = 0
    """Number of candidates, regardless of their age."""

    @classmethod
    def from_values(cls, energies: Iterable[float], day: float) -> Histogram:
        """The histogram of energies that were all served on one day; NaN is left out."""
        bins = Counter(bin_index(energy) for energy in energies if not math.isnan(energy))
        return cls({number: float(count) for number, count in bins.items()}, day, bins.total())

    @property
    def count(self) -> float:
        """The sum of the weights."""
        return math.fsum(self.bins.values())

    def merged(self, other: Histogram, half_life: float) -> Histogram:
        """The sum of both, as of the later day; weights halve in `half_life` days."""
        day = max(self.day, other.day)
        bins = dict(self.decayed(day, half_life).bins)
        for number, weight in other.decayed(day, half_life).bins.items():
            bins[number] = bins.get(number, 0.0) + weight
        return Histogram(bins, day, self.seen + other.seen)

    def decayed(self, day: float, half_life: float) -> Histogram:
        decay = 0.5 ** (max(0.0, day - self.day) / half_life)
        bins = {number: weight * decay for number, weight in self.bins.items() if weight * decay > _MIN_WEIGHT}
        return Histogram(bins, max(day, self.day), self.seen)

    def scaled(self, factor: float) -> Histogram:
        return Histogram({number: weight * factor for number, weight in self.bins.items()}, self.day, self.seen)

    def quantiles(self, levels: ArrayLike = GRID) -> Array:
        """The smallest values that these shares of the weight do not exceed; by default those of a table."""
        values, weights = self._sorted_bins()
        cumulative = np.cumsum(weights)
        at = np.searchsorted(cumulative, np.asarray(levels) * cumulative[-1] * (1 - 1e-12))
        return np.asarray(values[np.minimum(at, len(values) - 1)])

    def alignment(self) -> Alignment | None:
        """μ and σ with outliers clipped to the fences; None if there are no two different energies."""
        if not self.bins:
            return None
        values, weights = self._sorted_bins()
        low, high = self.quantiles((0.25, 0.75)).tolist()
        margin = _FENCE * max(high - low, low * (RATIO - 1))  # at least one bin, if both quartiles are in the same
        values = np.clip(values, low - margin, high + margin)
        mean = float(np.average(values, weights=weights))
        deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        return Alignment(mean, deviation) if deviation > 0 else None

    def _sorted_bins(self) -> tuple[Array, Array]:
        order = sorted(self.bins)
        return RATIO ** np.array(order, dtype=np.float64), np.array([self.bins[number] for number in order])


DRIFT_ERRORS = 4.0
"""Standard errors beyond which a shift is significant; more than 3, because samples of a question correlate."""
DRIFT_SHIFT = 0.5
"""Minimum shift of the mean, in σ, that counts as drift."""
DRIFT_SPREAD = 1.5
"""Minimum factor by which σ grows or shrinks that counts as drift."""
MIN_COMPARED = 30
"""Minimum number of served candidates for a comparison."""


class Drift(NamedTuple):
    """Difference between served and calibrated energies."""

    z: float
    """The difference of the means in standard errors."""
    spread: float
    """Served σ over calibrated σ."""
    drifting: bool
    """Whether the difference is significant and large."""


def measure_drift(histogram: Histogram, calibrated: Statistics) -> Drift | None:
    """The drift of served energies from the calibrated ones; None if there are too few to compare."""
    served = histogram.alignment()
    count = histogram.count
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
    """Calibrated and served energies of one source, for reports and metrics."""

    model: str
    step: str
    """answer, verify or solve; the prompt's MD5 if it is not a current prompt."""
    used: str
    """Statistics that its energies are aligned by: calibrated or nothing."""
    count: float
    """Served candidates, weighted by age."""
    seen: int
    """All served candidates."""
    calibrated_mean: float | None
    calibrated_deviation: float | None
    running_mean: float | None
    running_deviation: float | None
    drift_z: float | None
    """z-score of the drift; None if there are too few candidates to compare."""
    drifting: bool


def alignment_row(source: Source, step: str, calibrated: Statistics | None, histogram: Histogram) -> AlignmentRow:
    served = histogram.alignment()
    drift = None if calibrated is None else measure_drift(histogram, calibrated)
    return AlignmentRow(
        model=source.model,
        step=step,
        used="calibrated" if calibrated else "nothing",
        count=histogram.count,
        seen=histogram.seen,
        calibrated_mean=calibrated.mean if calibrated else None,
        calibrated_deviation=calibrated.deviation if calibrated else None,
        running_mean=served.mean if served else None,
        running_deviation=served.deviation if served else None,
        drift_z=drift.z if drift else None,
        drifting=drift is not None and drift.drifting,
    )
