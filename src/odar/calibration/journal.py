"""Finished work, kept line by line: a run that is killed goes on where it was.

An entry is on the disk when `append` returns, so that a killed run loses at most what was in flight; a half-written
last line is dropped when the file is opened again. While a run has the file open, no other process can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from filelock import FileLock, Timeout

from odar.calibration.items import Item
from odar.calibration.provenance import Provenance
from odar.errors import InputError


class Entry(Protocol):
    """Anything that belongs to an item."""

    @property
    def id(self) -> str:
        """The item's id."""
        ...


T = TypeVar("T", bound=Entry)


class Journal(Generic[T]):
    """Entries in a JSONL file; the first line says what made them.

    Args:
        path: the file; made if it is not there.
        kind: the name of the format.
        made_by: what the entries depend on. A file that something else made is refused, and what differs is named.
        encode: an entry as plain data.
        decode: the entry behind the data; raises ValueError, KeyError or TypeError where it is none.

    Close it, or use it as a context manager, to let others have the file. A process that ends, however it ends,
    lets go of it too.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        made_by: Provenance,
        encode: Callable[[T], dict[str, Any]],
        decode: Callable[[dict[str, Any]], T],
    ) -> None:
        self.path = path
        self.entries: list[T] = []
        self._encode = encode
        self._lock = FileLock(f"{path}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self._read(kind, made_by, decode)
        except Timeout:
            raise InputError(
                f"{path} is in use by another run; wait until it has finished, or name another file"
            ) from None
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise InputError(f"{path} cannot be used: {error.strerror or error}") from None
            if isinstance(error, ValueError | KeyError | TypeError):
                raise InputError(
                    f"{path} is not a file of records ({error!r}); move it away to start anew"
                ) from None
            raise

    def _read(self, kind: str, made_by: Provenance, decode: Callable[[dict[str, Any]], T]) -> None:
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a last line without its end was being written when we were killed
        lines = whole.splitlines()
        if lines and (why := _difference(json.loads(lines[0]), kind, made_by)):
            raise InputError(f"{self.path} {why}; move it away, or go back to that")
        self.entries = [decode(json.loads(line)) for line in lines[1:]]
        if not lines or whole != text:
            self._write(whole or json.dumps(made_by.header(kind)) + "\n")

    def append(self, entry: T) -> None:
        """Add an entry; it is on the disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._encode(entry), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """The items that have no entry yet."""
        done = {entry.id for entry in self.entries}
        return [item for item in items if item.id not in done]

    def close(self) -> None:
        """Let others have the file. Idempotent."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write(self, text: str) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.path)


def _difference(header: dict[str, Any], kind: str, made_by: Provenance) -> str:
    """Why entries under this first line cannot be gone on with; empty where they can."""
    if header.get("format") != kind:
        return f"has format {header.get('format')!r}, and this version writes {kind!r}"
    if header.get("made_by") == made_by.digest:
        return ""
    return f"was made with other models, prompts or settings{told(made_by, Provenance.of_header(header))}"


def told(now: Provenance, before: Provenance | None) -> str:
    """What changed, as the end of a sentence; empty where it is not known."""
    changes = [] if before is None else now.changes(before)
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f" ({'; '.join(changes[:3])}{more})" if changes else ""
