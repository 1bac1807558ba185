"""Served energies on disk: one small file beside the traces, shared by all processes of a machine.

It holds counts by source and nothing anybody wrote. A writer locks it, adds its own counts to what is there, and
puts a new file in its place, so that a reader always sees a whole one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odar.errors import StoreError
from odar.files import user_path
from odar.formats import check_format, load_json
from odar.policy.alignment import Running, Source, source_from_row
from odar.settings import StoreSettings

FORMAT = "odar-alignment-2"
_MOST_SOURCES = 3000
"""Clients choose temperatures and lengths, and each choice is a source of its own: the rarest are forgotten."""
_FADED = 0.5
"""A source that counts for less than this is forgotten too."""
_PATIENCE_S = 2.0

Served = dict[Source, Running]


class AlignmentFile:
    """Where served energies are kept between processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Served:
        """What is there; nothing where there is no file yet.

        Raises:
            StoreError: it cannot be read, or is not such a file.
        """
        try:
            return _read(load_json(self.path.read_text(encoding="utf-8")), self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreError(f"{self.path} is damaged; delete it to start anew") from None

    def add(self, served: Mapping[Source, Running], half_life: float) -> Served:
        """Add to what is there, whoever put it there; returns the sum.

        Raises:
            StoreError: it cannot be read, locked or written.
        """
        import filelock  # 20 ms: not before there is something to write

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(self.path.with_name(self.path.name + ".lock"), timeout=_PATIENCE_S):
                total = _kept(merged(self.load(), served, half_life), half_life)
                self._replace(total)
        except filelock.Timeout:
            raise StoreError(f"{self.path} is locked by another process") from None
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror or error}") from None
        return total

    def _replace(self, total: Served) -> None:
        rows = [_row(source, running) for source, running in total.items()]
        text = json.dumps({"format": FORMAT, "sources": rows}, ensure_ascii=False, separators=(",", ":"))
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            draft.touch(mode=0o600)
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.path)
        except OSError:
            draft.unlink(missing_ok=True)  # a full disk is full enough
            raise


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
    """Without what has faded away, and no more sources than one would ever look at."""
    today = max((running.day for running in total.values()), default=0.0)
    weights = {source: running.faded(today, half_life).count for source, running in total.items()}
    order = sorted(total, key=lambda source: -weights[source])[:_MOST_SOURCES]
    return {source: total[source] for source in order if weights[source] >= _FADED}


def _row(source: Source, running: Running) -> dict[str, Any]:
    bins = {str(number): round(weight, 6) for number, weight in sorted(running.bins.items())}
    return {**asdict(source), "day": running.day, "seen": running.seen, "bins": bins}


def _read(body: Mapping[str, Any], path: Path) -> Served:
    check_format(body["format"], FORMAT, str(path), "delete it to start anew", StoreError)
    return {source_from_row(row): _running(row) for row in body["sources"]}


def _running(row: Mapping[str, Any]) -> Running:
    bins = {int(number): float(weight) for number, weight in row["bins"].items()}
    running = Running(bins, float(row["day"]), int(row["seen"]))
    if not all(math.isfinite(weight) and weight >= 0 for weight in (running.day, *bins.values())):
        raise ValueError("no count")
    return running
