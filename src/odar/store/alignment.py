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
from odar.policy.alignment import (
    MIN_SERVED,
    AlignmentRow,
    Histogram,
    Source,
    Statistics,
    alignment_row,
)
from odar.policy.arrays import Array
from odar.policy.energy import Alignment
from odar.policy.signals import MIN_ANSWERS, RANKED, AnswerSignals, QuantileTables
from odar.settings import AlignmentSettings, StoreSettings
from odar.store.shared_counts import SharedCounts

CALIBRATED, RUNNING = "calibrated", "running"
SERVED, SHIPPED = "served", "shipped"
"""Where the quantiles of signals come from, if not from a calibration."""
_MOST_SOURCES_STORED = 3000
"""Clients choose temperatures and lengths, and each choice is a source of its own: the rarest are forgotten."""
_MOST_WAITING = 20_000
"""Energies that may wait for the next sync; beyond it new ones are dropped, since more would change little."""
_FADED = 0.5
"""Sources with less weight than this are dropped."""
_DAY_S = 86_400.0
_HALF_LIFE_DAYS = 7.0
"""Days after which a served candidate counts half."""


def alignment_file(settings: StoreSettings) -> Path | None:
    """Return where served energies go; None if nothing is to be recorded."""
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
    """μ and σ, and where they are from: calibrated or running."""

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
        self._ready: dict[Source, Alignment] = {}
        self._tables: dict[Source, QuantileTables] = {}
        self._calibrated_tables: dict[Source, tuple[Statistics, QuantileTables | None]] = {}

    def find(self, source: Source) -> KnownAlignment | None:
        """μ and σ of this source, or None: it is uncalibrated."""
        calibrated = self.calibrated.get(source)
        if calibrated is not None and calibrated.count:  # without log-probabilities it holds quantiles alone
            return KnownAlignment(calibrated.alignment, CALIBRATED)
        self.warm_up()
        found = self._ready.get(source)
        return None if found is None else KnownAlignment(found, RUNNING)

    def warm_up(self) -> None:
        """Read the file, unless it was read before."""
        if self._learns and self.total is None:
            self.sync()

    def tables(self, source: Source) -> tuple[QuantileTables | None, str]:
        """Quantiles of the signals of this source and where they come from; None for the shipped ones."""
        calibrated = self.calibrated.get(source)
        if calibrated is not None and calibrated.quantiles is not None:
            known = self._calibrated_tables.get(source)
            if known is None or known[0] is not calibrated:
                known = self._calibrated_tables[source] = calibrated, calibrated.tables
            return known[1], CALIBRATED
        self.warm_up()
        found = self._tables.get(source)
        return (None, SHIPPED) if found is None else (found, SERVED)

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
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append((source, energy))
            due = self._is_due()
        if due:
            self._sync_in_thread()

    def report(self, steps: Mapping[str, str]) -> list[AlignmentRow]:
        """Return every calibrated or served source, most served first; `steps` names prompts by their MD5."""
        if self.total is None or self._timer() >= self._sync_at:
            self.sync()
        served = self._faded(self.total or {})
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

    def _collect(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        energies: dict[Source, list[float]] = {}
        for source, energy in waiting:
            energies.setdefault(source, []).append(energy)
        new = {source: Histogram.from_values(found, self._clock() / _DAY_S) for source, found in energies.items()}
        with self._lock:
            self._unsaved = self._merged(self._unsaved, new)

    def _faded(self, counts: Mapping[Source, Histogram]) -> dict[Source, Histogram]:
        day = self._clock() / _DAY_S
        return {source: running.decayed(day, _HALF_LIFE_DAYS) for source, running in counts.items()}

    def _synced(self, total: Mapping[Source, Histogram]) -> None:
        served = self._faded(total)
        found = {s: r.alignment() for s, r in served.items() if not s.signal and r.count >= MIN_SERVED}
        self._ready = {source: alignment for source, alignment in found.items() if alignment is not None}
        self._tables = _tables(served)

    def _merged(self, old: dict[Source, Histogram], new: Mapping[Source, Histogram]) -> dict[Source, Histogram]:
        total = dict(old)
        for source, running in new.items():
            total[source] = total.get(source, Histogram()).merged(running, _HALF_LIFE_DAYS)
        today = max((running.day for running in total.values()), default=0.0)
        weights = {source: running.decayed(today, _HALF_LIFE_DAYS).count for source, running in total.items()}
        order = sorted(total, key=lambda source: -weights[source])[:_MOST_SOURCES_STORED]
        return {source: total[source] for source in order if weights[source] >= _FADED}

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


def _tables(served: Mapping[Source, Histogram]) -> dict[Source, QuantileTables]:
    """Quantiles of signals by source, of those with enough answers."""
    found: dict[Source, dict[tuple[str, str], Array]] = {}
    for source, running in served.items():
        kind, _, name = source.signal.partition("/")
        if name and running.count >= MIN_ANSWERS:
            values = running.quantiles()
            ascending = -values[::-1] if name.endswith("logprob") else values
            found.setdefault(replace(source, signal=""), {})[kind, name] = ascending
    return {source: QuantileTables(tables) for source, tables in found.items()}
