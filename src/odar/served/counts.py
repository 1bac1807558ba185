"""Counts that all processes of a machine share in a small JSON file next to the traces. It holds no text."""

from __future__ import annotations

import operator
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from odar.errors import StoreError
from odar.files import atomic_write
from odar.formats import check_format

K = TypeVar("K")
V = TypeVar("V")  # has a sum
SYNC_S = 5.0
"""Seconds between two syncs with other processes; a killed process loses its counts since the last one."""
_LOCK_TIMEOUT_S = 2.0


def sibling_file(served: Path | None, name: str) -> Path | None:
    """The file of other counts, next to the file of alignments; None without one.

    >>> str(sibling_file(Path("/tmp/odar.alignment.json"), "targets"))
    '/tmp/odar.targets.json'
    """
    if served is None:
        return None
    stem = served.name.removesuffix(".json").removesuffix(".alignment")
    return served.with_name(f"{stem}.{name}.json")


class SharedCounts(ABC, Generic[K, V]):
    """Counts by key. Thread-safe; only `sync` and `load` access the disk.

    Args:
        file: the file of the counts; None keeps them in memory, for this object alone.
        timer: monotonic seconds, for the syncs.
    """

    FORMAT: ClassVar[str]
    """Name and version of the file's format."""
    ROWS: ClassVar[Any]
    """Type of the counts in the file: list[tuple[K, V]]."""

    def __init__(self, file: Path | None, timer: Callable[[], float] = time.monotonic) -> None:
        self.last_error: str | None = None
        """Error of the last sync with the file; None if it succeeded."""
        self.total: dict[K, V] | None = None
        """The counts of all processes at the last sync; None before the first."""
        self._file = file
        self._timer = timer
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._stored: dict[K, V] = {}
        self._unsaved: dict[K, V] = {}
        self._sync_at = 0.0

    @abstractmethod
    def _prune(self, counts: dict[K, V]) -> dict[K, V]:
        """The counts without those that are too rare, too old or too many."""

    def load(self) -> dict[K, V]:
        """Read the file.

        Raises:
            StoreError: the file cannot be read, or is not such a file.
        """
        assert self._file is not None
        try:
            body = msgspec.json.decode(self._file.read_bytes())
            check_format(body["format"], self.FORMAT, str(self._file), "delete it to start again", StoreError)
            rows: list[tuple[K, V]] = msgspec.convert(body["counts"], self.ROWS, str_keys=True)
            return dict(rows)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise StoreError(f"{self._file} is damaged; delete it to start again") from None

    def sync(self) -> None:
        """Add the unsaved counts to the file, and read the sum; an error is kept in `last_error`."""
        with self._syncing:
            self._before_sync()
            with self._lock:
                new, self._unsaved = self._unsaved, {}
                self._sync_at = self._timer() + SYNC_S
            try:
                if self._file is None:
                    self._stored = self._merge(self._stored, new)
                else:
                    self._stored = self._write(self._file, new) if new else self.load()
                self.total = self._stored
                self.last_error = None
            except StoreError as error:
                self.last_error = str(error)
                self.total = self._merge(self._stored, new)
                with self._lock:
                    self._unsaved = self._merge(new, self._unsaved)
            self._after_sync(self.total)

    def read(self) -> dict[K, V]:
        """The counts of all processes; reads the file only if it was not read before."""
        if self.total is None:
            self.sync()
        return self.total or {}

    def close(self) -> None:
        """Write unsaved counts. Idempotent; does nothing without a file."""
        self._before_sync()
        if self._file is not None and self._unsaved:
            self.sync()

    def _merge(self, old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V]:
        total = dict(old)
        for key, count in new.items():
            add_count(total, key, count)
        return self._prune(total)

    def _before_sync(self) -> None:
        """Add what is not counted yet to `_unsaved`; called before every sync."""

    def _after_sync(self, total: Mapping[K, V]) -> None:
        """Use the new total; called after every sync."""

    def _is_due(self) -> bool:
        """Whether a sync is due, True to one caller only."""
        with self._lock:
            due = self._timer() >= self._sync_at
            if due:
                self._sync_at = self._timer() + SYNC_S
            return due

    def _sync_if_due(self) -> None:
        if self._is_due():
            threading.Thread(target=self.sync, name="odar-counts", daemon=True).start()

    def _write(self, file: Path, new: Mapping[K, V]) -> dict[K, V]:
        import filelock  # takes 20 ms, so only when there is something to write

        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(file.with_name(file.name + ".lock"), timeout=_LOCK_TIMEOUT_S):
                total = self._merge(self.load(), new)
                body = msgspec.json.encode({"format": self.FORMAT, "counts": list(total.items())})
                with atomic_write(file, StoreError) as draft:
                    draft.touch(mode=0o600)
                    draft.write_bytes(body)
        except filelock.Timeout:
            raise StoreError(f"{file} is locked by another process") from None
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error.strerror or error}") from None
        return total


def add_count(counts: dict[K, V], key: K, count: V) -> None:
    counts[key] = operator.add(counts[key], count) if key in counts else count
