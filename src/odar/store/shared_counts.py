"""Counts that all processes of a machine add up in a small JSON file next to the traces. It holds no text."""

from __future__ import annotations

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from odar.errors import StoreError
from odar.formats import check_format, load_json

K = TypeVar("K")
V = TypeVar("V")
SYNC_S = 30.0
"""Seconds between two syncs with other processes; as much is lost if this one is killed."""
_LOCK_TIMEOUT_S = 2.0


class SharedCounts(ABC, Generic[K, V]):
    """Counts by key. Thread-safe; only `sync` and `load` access the disk.

    Args:
        file: where counts are kept; None keeps them in memory, for this object alone.
        timer: monotonic seconds, for the syncs.
    """

    FORMAT: ClassVar[str]
    """Name and version of the file's format."""

    def __init__(self, file: Path | None, timer: Callable[[], float] = time.monotonic) -> None:
        self.complaint: str | None = None
        """Why the file could not be used, while it cannot."""
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
    def _merged(self, old: dict[K, V], new: Mapping[K, V]) -> dict[K, V]:
        """Return the sum of both, without what is too rare or too old."""

    @abstractmethod
    def _from_json(self, body: Mapping[str, Any]) -> dict[K, V]:
        """Read what `_to_json` wrote."""

    @abstractmethod
    def _to_json(self, counts: dict[K, V]) -> dict[str, Any]:
        """Return the content of the file."""

    def load(self) -> dict[K, V]:
        """Read the file.

        Raises:
            StoreError: the file cannot be read, or is not such a file.
        """
        assert self._file is not None
        try:
            body = load_json(self._file.read_text(encoding="utf-8"))
            check_format(body["format"], self.FORMAT, str(self._file), "delete it to start again", StoreError)
            return self._from_json(body)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise StoreError(f"{self._file} is damaged; delete it to start again") from None

    def sync(self) -> None:
        """Add what was counted here to the file, and read the sum; a failure is kept in `complaint`."""
        with self._syncing:
            self._collect()
            with self._lock:
                new, self._unsaved = self._unsaved, {}
                self._sync_at = self._timer() + SYNC_S
            try:
                if self._file is None:
                    self._stored = self._merged(self._stored, new)
                else:
                    self._stored = self._add(self._file, new) if new else self.load()
                self.total, self.complaint = self._stored, None
            except StoreError as error:
                self.complaint = str(error)
                self.total = self._merged(self._stored, new)
                with self._lock:
                    self._unsaved = self._merged(new, self._unsaved)
            self._synced(self.total)

    def close(self) -> None:
        """Write unsaved counts. Idempotent; does nothing without a file."""
        self._collect()
        if self._file is not None and self._unsaved:
            self.sync()

    def _collect(self) -> None:
        """Called before every sync: add what is not counted yet to `_unsaved`."""

    def _synced(self, total: Mapping[K, V]) -> None:
        """Called after every sync."""

    def _is_due(self) -> bool:
        """Return whether the next sync is due, to one caller; call it with the lock held."""
        due = self._timer() >= self._sync_at
        if due:
            self._sync_at = self._timer() + SYNC_S
        return due

    def _sync_in_thread(self) -> None:
        threading.Thread(target=self.sync, name="odar-counts", daemon=True).start()

    def _add(self, file: Path, new: Mapping[K, V]) -> dict[K, V]:
        import filelock  # 20 ms: only when there is something to write

        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with filelock.FileLock(file.with_name(file.name + ".lock"), timeout=_LOCK_TIMEOUT_S):
                total = self._merged(self.load(), new)
                text = json.dumps({"format": self.FORMAT, **self._to_json(total)}, ensure_ascii=False)
                draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
                try:
                    draft.touch(mode=0o600)
                    draft.write_text(text, encoding="utf-8")
                    draft.replace(file)
                finally:
                    draft.unlink(missing_ok=True)
        except filelock.Timeout:
            raise StoreError(f"{file} is locked by another process") from None
        except OSError as error:
            raise StoreError(f"{file} cannot be written: {error.strerror or error}") from None
        return total
