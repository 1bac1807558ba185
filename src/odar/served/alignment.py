"""Statistics of the served answers of each source: free energies for drift, signals for ranks (SPEC 5.5, 5.11).

Served energies are compared with the calibrated μ and σ: drift is reported, and changes nothing. Quantiles of the
signals of served answers are mixed with the shipped ones, with a weight that grows with their number. For the
questions of a key its own answers count, and a few of every other key: nobody's traffic decides about the questions
of others.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odar.background import CURRENT_KEY
from odar.calibration_file import Source, Statistics
from odar.files import user_path
from odar.policy.energy import Alignment
from odar.policy.signals import MIN_ANSWERS, RANKED, AnswerSignals, QuantileTables, shipped_tables
from odar.served.counts import SharedCounts
from odar.served.histogram import Histogram
from odar.settings import StoreSettings

_MAX_SOURCES = 3000
"""Maximum number of sources in the file; the rarest are dropped. Every temperature of a client is a new source."""
_MAX_SOURCES_PER_KEY = 1000
_MAX_WAITING = 20_000
"""Maximum number of values between two syncs; further ones are dropped, because they would change little."""
_MAX_WAITING_PER_KEY = 5000
_OTHERS_SHARE = 0.2
"""Maximum weight of each other key, as a share of the number of answers that are enough."""
_MIN_WEIGHT = 0.5
"""Minimum weight of a source in the file."""
_DAY_S = 86_400.0
SHIPPED_ANSWERS = 100
"""Number of served answers that count as much as the shipped quantiles."""
_ERRORS = 4.0
"""Standard errors beyond which a shift is significant; more than 3, because samples of a question correlate."""
_SHIFT = 0.5
"""Minimum shift of the mean, in σ, that counts as drift."""
_SPREAD = 1.5
"""Minimum factor by which σ grows or shrinks that counts as drift."""
_MIN_COMPARED = 30
"""Minimum number of served candidates for a comparison."""


def alignment_file(settings: StoreSettings) -> Path | None:
    """The file of served energies; None if the store is disabled."""
    return alignment_path(settings) if settings.enabled else None


def alignment_path(settings: StoreSettings) -> Path:
    """The default path: next to a file of traces, else in the user's data folder.

    >>> str(alignment_path(StoreSettings(url="sqlite:////tmp/odar.db")))
    '/tmp/odar.alignment.json'
    """
    file = (settings.url or "").removeprefix("sqlite:///")
    if not file or "://" in file:
        from platformdirs import user_data_path

        return Path(user_data_path("odar")) / "odar.alignment.json"
    return user_path(file, setting="store.url").with_suffix(".alignment.json")


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


class ServedSource(NamedTuple):
    """A source, the key whose questions it answered, and what was counted."""

    source: Source
    key: str
    signal: str = ""
    """`kind/name` of a signal (SPEC 5.11); empty for free energies."""


class ServedAlignment(SharedCounts[ServedSource, Histogram]):
    """The statistics of one engine's sources; served energies are shared by all processes of a machine.

    `clock` gives seconds since 1970, for the decay of counts; `timer` monotonic seconds, for the syncs.
    """

    FORMAT = "odar-alignment-5"
    ROWS = list[tuple[ServedSource, Histogram]]

    def __init__(
        self,
        calibrated: Mapping[Source, Statistics],
        file: Path | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, timer)
        self.calibrated = calibrated
        self._clock = clock
        self._sync_at = -math.inf
        self._waiting: list[tuple[ServedSource, float]] = []
        self._waiting_by_key: Counter[str] = Counter()
        self._signal_counts = _SignalCounts({})
        self._calibrated_tables = {
            source: known.tables for source, known in calibrated.items() if known.quantiles is not None
        }

    def find(self, source: Source) -> Alignment | None:
        """The calibrated μ and σ of this source, or None if they are unknown."""
        calibrated = self.calibrated.get(source)
        # without log-probabilities it holds quantiles alone
        return calibrated.alignment if calibrated is not None and calibrated.count else None

    def tables(self, source: Source) -> QuantileTables:
        """The quantiles of the signals of this source, with the shipped ones for those that are unknown."""
        if source in self._calibrated_tables:
            return self._calibrated_tables[source]
        self.read()
        return self._signal_counts.tables(source, CURRENT_KEY.get())

    def count_signals(self, source: Source, answer: AnswerSignals) -> None:
        """Count the signals of a served answer; an unfinished one is not compared with others."""
        if answer.finished:
            for name in RANKED:
                if (value := getattr(answer, name)) is not None:
                    value = -value if name.endswith("logprob") else value
                    self.count(source, value, f"{answer.kind.value}/{name}")

    def count(self, source: Source, value: float, signal: str = "") -> None:
        """Count the free energy or a signal of a served candidate; takes microseconds and never raises."""
        key = CURRENT_KEY.get()
        with self._lock:
            if len(self._waiting) < _MAX_WAITING and self._waiting_by_key[key] < _MAX_WAITING_PER_KEY:
                self._waiting.append((ServedSource(source, key, signal), value))
                self._waiting_by_key[key] += 1
        self._sync_if_due()

    def report(self, steps: Mapping[str, str]) -> list[DriftReport]:
        """Every calibrated or served source, most served first; `steps` names prompts by their MD5."""
        if self._is_due():
            self.sync()
        served: dict[Source, Histogram] = {}
        for (source, _, signal), histogram in self._decay(self.read()).items():
            if not signal:
                served[source] = served.get(source, Histogram()) + histogram
        rows = []
        for source in dict.fromkeys((*self.calibrated, *served)):
            step = steps.get(source.prompt_md5, source.prompt_md5[:8])
            histogram = served.get(source, Histogram())
            own = histogram.alignment()
            mean, deviation = (None, None) if own is None else (own.mean, own.deviation)
            z, drifting = drift(own, histogram.count, self.calibrated.get(source))
            rows.append(DriftReport(source.model, step, histogram.count, mean, deviation, z, drifting))
        return sorted(rows, key=lambda row: (-row.count, row.model, row.step))

    def _before_sync(self) -> None:
        day = self._clock() / _DAY_S
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._waiting_by_key.clear()
        values: defaultdict[ServedSource, list[float]] = defaultdict(list)
        for served, value in waiting:
            values[served].append(value)
        new = {served: Histogram.from_values(each, day) for served, each in values.items()}
        with self._lock:
            self._unsaved = self._merge(self._unsaved, new)

    def _decay(self, counts: Mapping[ServedSource, Histogram]) -> dict[ServedSource, Histogram]:
        day = self._clock() / _DAY_S
        return {served: histogram.decayed(day) for served, histogram in counts.items()}

    def _after_sync(self, total: Mapping[ServedSource, Histogram]) -> None:
        self._signal_counts = _SignalCounts(self._decay(total))

    def _prune(self, counts: dict[ServedSource, Histogram]) -> dict[ServedSource, Histogram]:
        today = max((histogram.day for histogram in counts.values()), default=0.0)
        weights = {served: histogram.decayed(today).count for served, histogram in counts.items()}
        of_key: Counter[str] = Counter()
        kept = []
        for served in sorted(counts, key=lambda served: -weights[served]):
            of_key[served.key] += 1
            if weights[served] >= _MIN_WEIGHT and of_key[served.key] <= _MAX_SOURCES_PER_KEY:
                kept.append(served)
        return {served: counts[served] for served in kept[:_MAX_SOURCES]}


class _SignalCounts:
    """Signals that were served until a sync, as each key sees them; computed when they are needed."""

    def __init__(self, served: Mapping[ServedSource, Histogram]) -> None:
        self._served = {each: histogram for each, histogram in served.items() if each.signal}
        self._sums: dict[Source, dict[str, Histogram]] = {}
        """All keys together, none with more than its share, by source and signal."""
        for (source, _, signal), histogram in self._served.items():
            sums = self._sums.setdefault(source, {})
            sums[signal] = sums.get(signal, Histogram()) + histogram.scaled(_others_part(histogram))
        self._tables: dict[tuple[Source, str], QuantileTables] = {}

    def tables(self, source: Source, key: str) -> QuantileTables:
        """The quantiles of the signals of a source for a key, with the shipped ones where too little was served."""
        if (source, key) not in self._tables:
            tables = dict(shipped_tables().tables)
            for signal, of_all in self._sums.get(source, {}).items():
                kind, _, name = signal.partition("/")
                # all answers to the key's questions, and a few of every other key: some of its own are among these
                own = self._served.get(ServedSource(source, key, signal), Histogram())
                histogram = of_all + own.scaled(1 - _others_part(own))
                if name and histogram.count >= MIN_ANSWERS:
                    values = histogram.quantiles()
                    values = -values[::-1] if name.endswith("logprob") else values
                    shipped = tables.get((kind, name))
                    weight = histogram.count / (histogram.count + SHIPPED_ANSWERS)
                    tables[kind, name] = values if shipped is None else weight * values + (1 - weight) * shipped
            self._tables[source, key] = QuantileTables(tables)
        return self._tables[source, key]


def _others_part(histogram: Histogram) -> float:
    return min(1.0, _OTHERS_SHARE * MIN_ANSWERS / histogram.count) if histogram.count else 0.0


def drift(served: Alignment | None, count: float, calibrated: Statistics | None) -> tuple[float | None, bool]:
    """The shift of the mean of served energies in standard errors, and whether they drifted.

    None if there are too few energies to compare.
    """
    if served is None or calibrated is None:
        return None, False
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
