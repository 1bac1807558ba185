"""The journal of a run: one row per item, appended and synced when the item is finished.

Three files. `OUT` holds the rows: in the order in which items finish while a run is under way, in the order of the
items once it has ended. Its first line may be a header with what all rows depend on. `OUT.parts` holds the replies
of unfinished items, and is deleted with the last of them. `OUT.lock` prevents a second process from writing.

A process that is killed loses nothing that it has written, so a reply that is on disk is never paid for again; a
reply that was under way may be. An incomplete last line is dropped when the files are opened again. Items whose row
has an error are tried again by the next run.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from filelock import FileLock, Timeout

from odar.errors import InputError
from odar.files import atomic_write
from odar.formats import check_format, json_line, load_json
from odar.lab.recording.header import describe_changes
from odar.lab.runs.limits import Amounts

Row = dict[str, Any]
_HEADER_START = b'{"format": '
_ROW_START = b'{"id": '
_PART_START = b'{"part": '


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One piece of work, whose result is one row."""

    key: str
    """The `id` of its row."""
    payload: Any = field(repr=False)
    digest: str = ""
    """Hash of everything its row depends on: a row with the same id and another digest is refused."""
    needs: Amounts = field(default_factory=dict)
    """The most that it takes from providers."""
    worst_cost_usd: float | None = 0.0
    """Maximum cost; None if unknown."""


class RowInfo(NamedTuple):
    """The part of a row that is kept in memory; the row itself stays on disk."""

    digest: str | None
    failed: bool
    cost_usd: float | None
    offset: int
    """Position of its line in the file."""

    @classmethod
    def of(cls, row: Row, offset: int) -> RowInfo:
        return cls(row.get("digest"), row.get("error") is not None, row.get("cost_usd"), offset)


class Memo:
    """The replies to one item that have been paid for, by name; new ones are added with `keep`.

    >>> memo = Memo({"a": 1}, keep=lambda name, value: print("kept", name, value))
    >>> memo.recall("a"), memo.recall("b")
    (1, None)
    >>> memo.keep("b", 2); memo.recall("b")
    kept b 2
    2
    """

    def __init__(self, known: Mapping[str, Any], keep: Callable[[str, Any], None]) -> None:
        self.known = dict(known)
        self._keep = keep

    def recall(self, name: str) -> Any:
        return self.known.get(name)

    def keep(self, name: str, value: Any) -> None:
        """Keep a JSON value; in the process of the journal it is on disk when this returns."""
        self.known[name] = value
        self._keep(name, value)


class Journal:
    """The rows of one output file. Use it as a context manager: it holds a lock.

    Args:
        path: the file; created if it does not exist.
        header: the first line, with everything that all rows depend on: `format` first, then `made_by`, which must
            be that of an existing file, then anything else. None for a file without a header.

    Raises:
        InputError: another process is writing the file, or it holds something else; it is left unchanged.
    """

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.entries: dict[str, RowInfo] = {}
        """What is known of each row, by the key of its item."""
        self._header = header
        self._parts_path = path.with_name(path.name + ".parts")
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._writing = threading.Lock()
        self._parts: dict[str, dict[str, dict[str, Any]]] = {}
        """Replies of unfinished items by name, by item and digest."""

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self._load()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, Timeout):
                why = "is being written by another process; wait for it, or stop it"
            elif isinstance(error, OSError):
                why = f"cannot be used: {error.strerror or error}"
            elif isinstance(error, ValueError | KeyError | TypeError):
                why = f"was not written by this command ({error}); name another file"
            else:
                raise
            raise InputError(f"{self.path} {why}") from None
        return self

    def __exit__(self, *exception: object) -> None:
        self._rows_file.close()
        self._parts_file.close()
        if not self._parts:
            self._parts_path.unlink(missing_ok=True)
        self._lock.release()

    def _load(self) -> None:
        needs_header = self._header is not None
        lines = _read_lines(self.path, _HEADER_START if needs_header else _ROW_START, _ROW_START)
        if self._header is not None and (first := next(lines, None)) is not None:
            self._check_header(first[1], self._header)
            needs_header = False
        self.entries = {row["id"]: RowInfo.of(row, offset) for offset, row in lines}
        for _, part in _read_lines(self._parts_path, _PART_START, _PART_START):
            self._add_part(part)
        self._parts = {key: part for key, part in self._parts.items() if not self._is_done(key)}
        self._rows_file = self.path.open("ab")
        self._parts_file = self._parts_path.open("ab")
        if self._header is not None and needs_header:
            _append(self._rows_file, self._header)

    def _check_header(self, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        remedy = "finish it with the version that wrote it, or move it away to start again"
        check_format(found["format"], expected["format"], str(self.path), remedy)
        if found["made_by"] != expected["made_by"]:
            changes = describe_changes(expected.get("facts", {}), found.get("facts", {}))
            raise InputError(
                f"{self.path} was made with other models, prompts or settings{changes}; "
                "move it away, or restore those settings"
            )

    def _is_done(self, key: str) -> bool:
        return key in self.entries and not self.entries[key].failed

    def missing(self, items: Iterable[WorkItem]) -> list[WorkItem]:
        """Items that have no row yet, or one with an error.

        Raises:
            InputError: a row answers another question of the same id, or with other settings.
        """
        missing = []
        for item in items:
            if not self._is_done(item.key):
                missing.append(item)
            elif self.entries[item.key].digest != item.digest:
                raise InputError(
                    f"{self.path} holds a row {item.key!r} that was made from another question or with other "
                    "settings; write to another file, or restore those"
                )
        return missing

    def memo(self, item: WorkItem) -> Memo:
        """The replies to an item that are on disk; further ones are appended there."""

        def keep(name: str, value: Any) -> None:
            part = {"part": item.key, "digest": item.digest, "name": name, "value": value}
            with self._writing:
                _append(self._parts_file, part)
                self._add_part(part)

        return Memo(self._parts.get(item.key, {}).get(item.digest, {}), keep)

    def _add_part(self, part: Row) -> None:
        by_digest = self._parts.setdefault(part["part"], {})
        by_digest.setdefault(part["digest"], {})[part["name"]] = part["value"]

    def write(self, row: Row) -> None:
        """Append a row, whose first field is `id`; it is on disk when this returns."""
        with self._writing:
            offset = self._rows_file.tell()
            _append(self._rows_file, row)
            self.entries[row["id"]] = RowInfo.of(row, offset)
            if self._is_done(row["id"]):
                self._parts.pop(row["id"], None)

    def lines(self, keys: Iterable[str]) -> Iterator[bytes]:
        """Rows as they are in the file; keys without a row are skipped."""
        with self.path.open("rb") as file:
            for key in keys:
                if key in self.entries:
                    file.seek(self.entries[key].offset)
                    yield file.readline()

    def rows(self, keys: Iterable[str]) -> Iterator[Row]:
        """The rows of these items without an error."""
        yield from map(json.loads, self.lines(key for key in keys if self._is_done(key)))

    def sort(self, items: Iterable[WorkItem]) -> None:
        """Rewrite the file, atomically: one row per item, in the order of the items, then rows of other items."""
        keys = dict.fromkeys(item.key for item in items if item.key in self.entries) | dict.fromkeys(self.entries)
        entries = {}
        with atomic_write(self.path, durable=True) as draft, draft.open("wb") as file:
            if self._header is not None:
                file.write(json_line(self._header))
            for key, line in zip(keys, self.lines(keys), strict=True):
                entries[key] = self.entries[key]._replace(offset=file.tell())
                file.write(line)
        self._rows_file.close()
        self._rows_file = self.path.open("ab")
        self.entries = entries


async def write_in_thread(write: Callable[..., None], *arguments: Any) -> None:
    """Call a function that waits for the disk, such as `Journal.write`, without blocking the event loop.

    If the caller is cancelled, the write is finished first, as the reply has been paid for.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(write, *arguments))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


def _append(file: IO[bytes], row: Mapping[str, Any]) -> None:
    file.write(json_line(row))
    file.flush()
    os.fsync(file.fileno())


def _read_lines(path: Path, first: bytes, others: bytes) -> Iterator[tuple[int, Any]]:
    """Offsets and objects of a file; an incomplete last line is cut off.

    The first line must start with `first`, and all further ones with `others`.
    """
    if not path.exists():
        return
    offset = 0
    torn = False
    with path.open("rb") as file:
        for line in file:
            torn = not line.endswith(b"\n")
            start = others if offset else first
            if line[: len(start)] != start[: len(line) if torn else None]:
                raise ValueError(f"a line begins with {line[:20].decode('utf-8', 'replace')!r}")
            if not torn:
                yield offset, load_json(line)
                offset += len(line)
    if torn:
        os.truncate(path, offset)
