"""Statistics for aligning energies: μ and σ of the calibration, or of served traffic where it has none (SPEC 5.5).

Calibrated statistics are the reference. Statistics of served traffic replace missing ones once enough answers were
served, and are compared with calibrated ones: drift is reported, and changes nothing. Served energies are kept in a
file beside the traces, which all processes of a machine share.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from odar.errors import StoreError
from odar.files import user_path
from odar.policy.alignment import (
    MIN_SERVED,
    AlignmentRow,
    Running,
    Source,
    Statistics,
    StatisticsTable,
    alignment_row,
    from_row,
)
from odar.policy.energy import Alignment
from odar.policy.signals import FEWEST, RANKED, AnswerSignals, Array, QuantileTables
from odar.settings import AlignmentSettings, StoreSettings
from odar.store.state_file import StateFile

FORMAT = "odar-alignment-2"
_MOST_SOURCES_STORED = 3000
"""Clients choose temperatures and lengths, and each choice is a source of its own: the rarest are forgotten."""
_FADED = 0.5
"""Sources with less weight than this are dropped too."""
Served = dict[Source, Running]
CALIBRATED, RUNNING = "calibrated", "running"
SERVED, SHIPPED = "served", "shipped"
"""Where the quantiles of signals come from, if not from a calibration."""
_SYNC_S = 30.0
"""Seconds between two syncs with other processes; as much is lost if this one is killed."""
_MOST_WAITING = 20_000
"""Energies that may wait for the next sync; beyond it new ones are dropped, since more would change little."""
_MOST_SOURCES = 1000
"""Sources that are counted; clients choose max_tokens, and each choice is a source of its own."""
_DAY_S = 86_400.0
_HALF_LIFE_DAYS = 7.0
"""Days after which a served candidate counts half."""


class AlignmentFile(StateFile[Source, Running]):
    """Served energies of all processes, by source."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, FORMAT, _read, _write)

    def add(self, served: Mapping[Source, Running], half_life: float) -> Served:
        """Add to what is there, and return the sum.

        Raises:
            StoreError: it cannot be read, locked or written.
        """
        return self.update(lambda found: _kept(merged(found, served, half_life), half_life))


def alignment_file(settings: StoreSettings) -> AlignmentFile | None:
    """Where served energies go; None where nothing is to be recorded."""
    return AlignmentFile(alignment_path(settings)) if settings.enabled else None


def alignment_path(settings: StoreSettings) -> Path:
    """Beside the traces where they are in a file, else in the user's data folder.

    >>> str(alignment_path(StoreSettings(url="sqlite:////tmp/odar.db")))
    '/tmp/odar.alignment.json'
    """
    given = settings.url or ""
    file = given.removeprefix("sqlite:///")
    if not file or "://" in file:
        from platformdirs import user_data_path

        return Path(user_data_path("odar")) / "odar.alignment.json"
    return user_path(file, setting="store.url").with_suffix(".alignment.json")


def merged(old: Served, new: Mapping[Source, Running], half_life: float) -> Served:
    """The counts of both, source by source."""
    total = dict(old)
    for source, running in new.items():
        total[source] = total.get(source, Running()).merged(running, half_life)
    return total


def _kept(total: Served, half_life: float) -> Served:
    """Drop sources with little weight, and the rarest above the limit."""
    today = max((running.day for running in total.values()), default=0.0)
    weights = {source: running.faded(today, half_life).count for source, running in total.items()}
    order = sorted(total, key=lambda source: -weights[source])[:_MOST_SOURCES_STORED]
    return {source: total[source] for source in order if weights[source] >= _FADED}


def _write(served: Served) -> dict[str, Any]:
    return {"sources": [_row(source, running) for source, running in served.items()]}


def _row(source: Source, running: Running) -> dict[str, Any]:
    bins = {str(number): round(weight, 6) for number, weight in sorted(running.bins.items())}
    return {**asdict(source), "day": running.day, "seen": running.seen, "bins": bins}


def _read(body: Mapping[str, Any]) -> Served:
    return {from_row(Source, row): _running(row) for row in body["sources"]}


def _running(row: Mapping[str, Any]) -> Running:
    bins = {int(number): float(weight) for number, weight in row["bins"].items()}
    running = Running(bins, float(row["day"]), int(row["seen"]))
    if not all(math.isfinite(weight) and weight >= 0 for weight in (running.day, *bins.values())):
        raise ValueError("no count")
    return running


class KnownAlignment(NamedTuple):
    """μ and σ, and where they are from: calibrated or running."""

    alignment: Alignment
    origin: str


class ServedAlignment:
    """The statistics of one engine's sources. Thread-safe; only `sync` accesses the disk.

    Args:
        settings: whether to learn from traffic at all, and how much of it is needed.
        calibrated: the reference.
        file: where counts are kept; None keeps them in memory, for this engine alone.
        clock: seconds since 1970, for the decay of counts.
        timer: monotonic seconds, for the syncs.
    """

    def __init__(
        self,
        settings: AlignmentSettings,
        calibrated: StatisticsTable,
        file: AlignmentFile | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.calibrated = calibrated
        self.complaint: str | None = None
        """Why the file could not be used, while it cannot."""
        self._settings = settings
        self._file = file
        self._clock = clock
        self._timer = timer
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._waiting: dict[Source, list[float]] = {}
        self._size = 0
        self._served: Served | None = None
        self._unsaved: Served = {}
        self._ready: dict[Source, Alignment] = {}
        self._tables: dict[Source, QuantileTables] = {}
        self._read: dict[Source, tuple[Statistics, QuantileTables | None]] = {}
        self._sync_at = -math.inf

    def find(self, source: Source) -> KnownAlignment | None:
        """μ and σ of this source, or None: it is uncalibrated."""
        calibrated = self.calibrated.find(source)
        if calibrated is not None and calibrated.count:  # without log-probabilities it holds quantiles alone
            return KnownAlignment(calibrated.alignment, CALIBRATED)
        if not self._settings.running:
            return None
        if self._served is None:
            self.sync()  # once: a file of some kilobytes
        found = self._ready.get(source)
        return None if found is None else KnownAlignment(found, RUNNING)

    def load(self) -> None:
        """Read the file now, so that no later call of `find` has to."""
        if self._settings.running and self._served is None:
            self.sync()

    def tables(self, source: Source) -> tuple[QuantileTables | None, str]:
        """Quantiles of the signals of this source and where they come from; None for the shipped ones."""
        calibrated = self.calibrated.find(source)
        if calibrated is not None and calibrated.quantiles is not None:
            if source not in self._read or self._read[source][0] is not calibrated:
                self._read[source] = calibrated, calibrated.tables
            return self._read[source][1], CALIBRATED
        if not self._settings.running:
            return None, SHIPPED
        if self._served is None:
            self.sync()
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
        if not self._settings.running:
            return
        with self._lock:
            known = source in self._waiting or source in (self._served or ())
            if self._size < _MOST_WAITING and (
                known or len(self._waiting) + len(self._served or ()) < _MOST_SOURCES
            ):
                self._waiting.setdefault(source, []).append(energy)
                self._size += 1
            due = self._timer() >= self._sync_at
            if due:
                self._sync_at = self._timer() + _SYNC_S
        if due:
            threading.Thread(target=self.sync, name="odar-alignment", daemon=True).start()

    def sync(self) -> None:
        """Add what was counted to what all processes served, and read the sum; a failure is kept in `complaint`."""
        with self._syncing:
            with self._lock:
                waiting, self._waiting, self._size = self._waiting, {}, 0
                self._sync_at = self._timer() + _SYNC_S
            day, half_life = self._clock() / _DAY_S, _HALF_LIFE_DAYS
            new = {source: Running.of(energies, day) for source, energies in waiting.items()}
            self._served = self._stored(new, half_life)
            faded = {source: running.faded(day, half_life) for source, running in self._served.items()}
            found = {s: r.alignment() for s, r in faded.items() if not s.signal and r.count >= MIN_SERVED}
            self._ready = {source: alignment for source, alignment in found.items() if alignment is not None}
            self._tables = _tables(faded)

    def close(self) -> None:
        """Write unsaved counts. Idempotent; does nothing without a file."""
        if self._file is not None and (self._waiting or self._unsaved):
            self.sync()

    def report(self, steps: Mapping[str, str]) -> list[AlignmentRow]:
        """Every source that is calibrated or was served, most served first.

        Args:
            steps: the step of each prompt, by its MD5.
        """
        if self._served is None or self._timer() >= self._sync_at:
            self.sync()
        day, half_life = self._clock() / _DAY_S, _HALF_LIFE_DAYS
        served = {s: r.faded(day, half_life) for s, r in (self._served or {}).items()}
        sources = dict.fromkeys(source for source in (*self.calibrated.entries, *served) if not source.signal)
        rows = [
            alignment_row(
                source,
                steps.get(source.prompt_md5, source.prompt_md5[:8]),
                self.calibrated.find(source),
                served.get(source, Running()),
            )
            for source in sources
        ]
        return sorted(rows, key=lambda row: (-row.count, row.model, row.step))

    def _stored(self, new: Served, half_life: float) -> Served:
        """The sum of old and new, on disk if there is a file that can be used, else here until there is."""
        if self._file is not None:
            self._unsaved = merged(self._unsaved, new, half_life)
            try:
                found = self._file.add(self._unsaved, half_life) if self._unsaved else self._file.load()
                self._unsaved, self.complaint = {}, None
                return found
            except StoreError as error:
                self.complaint = str(error)
        return merged(self._served or {}, new, half_life)


@lru_cache(maxsize=256)
def _signal_sources(source: Source, kind: str) -> tuple[Source, ...]:
    """The sources of the ranked signals of one kind of answer; a gateway asks for the same few again and again."""
    return tuple(replace(source, signal=f"{kind}/{name}") for name in RANKED)


def _tables(served: Served) -> dict[Source, QuantileTables]:
    """Quantiles of signals by source, of those with enough answers."""
    found: dict[Source, dict[tuple[str, str], Array]] = {}
    for source, running in served.items():
        kind, _, name = source.signal.partition("/")
        if name and running.count >= FEWEST:
            values = running.quantiles()
            ascending = -values[::-1] if name.endswith("logprob") else values
            found.setdefault(replace(source, signal=""), {})[kind, name] = ascending
    return {source: QuantileTables(tables) for source, tables in found.items()}
