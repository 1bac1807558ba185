"""Statistics for aligning energies: μ and σ of the calibration, or of served traffic where it has none (SPEC 5.5).

Calibrated statistics are the reference. Statistics of served traffic replace missing ones once enough answers were
served, and are compared with calibrated ones: drift is reported, and changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from odar.files import user_path
from odar.policy.alignment import MIN_SERVED, AlignmentRow, Histogram, Source, Statistics, alignment_row
from odar.policy.arrays import Array
from odar.policy.energy import Alignment
from odar.policy.signals import MIN_ANSWERS, RANKED, AnswerSignals, QuantileTables
from odar.settings import AlignmentSettings, StoreSettings
from odar.store.shared_counts import SharedCounts

CALIBRATED, RUNNING = "calibrated", "running"
"""Origins of μ and σ."""
SERVED, SHIPPED = "served", "shipped"
"""Origins of the quantiles of signals, besides `CALIBRATED`."""
_MAX_SOURCES = 3000
"""Maximum number of sources in the file; the rarest are dropped. Every temperature of a client is a new source."""
_MAX_WAITING = 20_000
"""Maximum number of energies between two syncs; further ones are dropped, because they would change little."""
_MIN_WEIGHT = 0.5
"""Minimum weight of a source in the file."""
_DAY_S = 86_400.0
_HALF_LIFE_DAYS = 7.0
"""Days after which a served candidate counts half."""


def alignment_file(settings: StoreSettings) -> Path | None:
    """Return the file of served energies; None if the store is disabled."""
    return alignment_path(settings) if settings.enabled else None


def alignment_path(settings: StoreSettings) -> Path:
    """Return the default path: next to a file of traces, else in the user's data folder.

    >>> str(alignment_path(StoreSettings(url="sqlite:////tmp/odar.db")))
    '/tmp/odar.alignment.json'
    """
    file = (settings.url or "").removeprefix("sqlite:///")
    if not file or "://" in file:
        from platformdirs import user_data_path

        return Path(user_data_path("odar")) / "odar.alignment.json"
    return user_path(file, setting="store.url").with_suffix(".alignment.json")


class KnownAlignment(NamedTuple):
    """μ and σ, and their origin: calibrated or running."""

    alignment: Alignment
    origin: str


class ServedAlignment(SharedCounts[Source, Histogram]):
    """The statistics of one engine's sources; served energies are shared by all processes of a machine.

    `clock` gives seconds since 1970, for the decay of counts; `timer` monotonic seconds, for the syncs.
    """

    FORMAT = "odar-alignment-2"

    def __init__(
        self,
        settings: AlignmentSettings,
        calibrated: Mapping[Source, Statistics],
        file: Path | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, timer)
        self.calibrated = calibrated
        self._learns = settings.running
        self._clock = clock
        self._sync_at = -math.inf
        self._waiting: list[tuple[Source, float]] = []
        self._served: dict[Source, Alignment] = {}
        self._served_tables: dict[Source, QuantileTables] = {}
        self._calibrated_tables: dict[Source, QuantileTables | None] = {}

    def find(self, source: Source) -> KnownAlignment | None:
        """Return μ and σ of this source, or None if they are unknown."""
        calibrated = self.calibrated.get(source)
        if calibrated is not None and calibrated.count:  # without log-probabilities it holds quantiles alone
            return KnownAlignment(calibrated.alignment, CALIBRATED)
        self.warm_up()
        served = self._served.get(source)
        return None if served is None else KnownAlignment(served, RUNNING)

    def warm_up(self) -> None:
        """Read the file, unless it was read before."""
        if self._learns and self.total is None:
            self.sync()

    def tables(self, source: Source) -> tuple[QuantileTables | None, str]:
        """Return the quantiles of the signals of this source and their origin; None stands for the shipped ones."""
        calibrated = self.calibrated.get(source)
        if calibrated is not None and calibrated.quantiles is not None:
            if source not in self._calibrated_tables:
                self._calibrated_tables[source] = calibrated.tables
            return self._calibrated_tables[source], CALIBRATED
        self.warm_up()
        served = self._served_tables.get(source)
        return (None, SHIPPED) if served is None else (served, SERVED)

    def observe_signals(self, source: Source, answer: AnswerSignals) -> None:
        """Count the signals of a served fast answer; an unfinished one is not compared with others."""
        if answer.finished:
            for name, signal in zip(RANKED, _signal_sources(source, answer.kind.value), strict=True):
                value = getattr(answer, name)
                if value is not None:
                    self.observe(signal, -value if name.endswith("logprob") else value)

    def observe(self, source: Source, energy: float) -> None:
        """Count a served candidate; takes microseconds and never raises."""
        if not self._learns:
            return
        with self._lock:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting.append((source, energy))
            due = self._is_due()
        if due:
            self._sync_in_thread()

    def report(self, steps: Mapping[str, str]) -> list[AlignmentRow]:
        """Return every calibrated or served source, most served first; `steps` names prompts by their MD5."""
        if self.total is None or self._timer() >= self._sync_at:
            self.sync()
        served = self._decay(self.total or {})
        sources = dict.fromkeys(source for source in (*self.calibrated, *served) if not source.signal)
        rows = [
            alignment_row(
                source,
                steps.get(source.prompt_md5, source.prompt_md5[:8]),
                self.calibrated.get(source),
                served.get(source, Histogram()),
            )
            for source in sources
        ]
        return sorted(rows, key=lambda row: (-row.count, row.model, row.step))

    def _before_sync(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        energies: dict[Source, list[float]] = {}
        for source, energy in waiting:
            energies.setdefault(source, []).append(energy)
        day = self._clock() / _DAY_S
        new = {source: Histogram.from_values(values, day) for source, values in energies.items()}
        with self._lock:
            self._unsaved = self._merge(self._unsaved, new)

    def _decay(self, counts: Mapping[Source, Histogram]) -> dict[Source, Histogram]:
        day = self._clock() / _DAY_S
        return {source: running.decayed(day, _HALF_LIFE_DAYS) for source, running in counts.items()}

    def _after_sync(self, total: Mapping[Source, Histogram]) -> None:
        served = self._decay(total)
        self._served = {
            source: alignment
            for source, running in served.items()
            if not source.signal and running.count >= MIN_SERVED and (alignment := running.alignment()) is not None
        }
        self._served_tables = _quantile_tables(served)

    def _merge(self, old: dict[Source, Histogram], new: Mapping[Source, Histogram]) -> dict[Source, Histogram]:
        total = dict(old)
        for source, running in new.items():
            total[source] = total.get(source, Histogram()).merged(running, _HALF_LIFE_DAYS)
        today = max((running.day for running in total.values()), default=0.0)
        weights = {source: running.decayed(today, _HALF_LIFE_DAYS).count for source, running in total.items()}
        heaviest = sorted(total, key=lambda source: -weights[source])[:_MAX_SOURCES]
        return {source: total[source] for source in heaviest if weights[source] >= _MIN_WEIGHT}

    def _to_json(self, counts: dict[Source, Histogram]) -> dict[str, Any]:
        rows = []
        for source, running in counts.items():
            bins = {str(number): round(weight, 6) for number, weight in sorted(running.bins.items())}
            rows.append({**asdict(source), "day": running.day, "seen": running.seen, "bins": bins})
        return {"sources": rows}

    def _from_json(self, body: Mapping[str, Any]) -> dict[Source, Histogram]:
        rows = body["sources"]
        found = {msgspec.convert(row, Source): msgspec.convert(row, Histogram, str_keys=True) for row in rows}
        numbers = [number for running in found.values() for number in (running.day, *running.bins.values())]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("a count is negative or infinite")
        return found


@lru_cache(maxsize=256)
def _signal_sources(source: Source, kind: str) -> tuple[Source, ...]:
    """Return the sources of the ranked signals of one kind of answer; cached, because a gateway has few."""
    return tuple(replace(source, signal=f"{kind}/{name}") for name in RANKED)


def _quantile_tables(served: Mapping[Source, Histogram]) -> dict[Source, QuantileTables]:
    """Return the quantiles of the signals of each source that has enough answers."""
    found: dict[Source, dict[tuple[str, str], Array]] = {}
    for source, running in served.items():
        kind, _, name = source.signal.partition("/")
        if name and running.count >= MIN_ANSWERS:
            values = running.quantiles()
            ascending = -values[::-1] if name.endswith("logprob") else values
            found.setdefault(replace(source, signal=""), {})[kind, name] = ascending
    return {source: QuantileTables(tables) for source, tables in found.items()}
