"""What is done, on disk: one row an item, appended and synced when the item is finished.

Three files. `OUT` holds the rows: as items finish while a run is under way, in the order of the items once it has
ended; a first line before them may say what all of them depend on. `OUT.parts` holds what unfinished items have
paid for, and goes away with the last of them. `OUT.lock` keeps a second process out.

The promise: a process that is killed loses nothing that it had written, so a reply that is on the disk is never
paid for again; what was under way at that moment may be. A half-written last line is dropped when the files are
opened again. Rows with an error are tried again by the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from filelock import FileLock, Timeout

from odar.errors import InputError
from odar.formats import check_format, load_json
from odar.recording.limits import Needs

Row = dict[str, Any]
_HEADER_STARTS = b'{"format": '
_ROW_STARTS = b'{"id": '
_PART_STARTS = b'{"part": '


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work."""

    key: str
    """The `id` of its row."""
    payload: Any = field(repr=False)
    digest: str = ""
    """What its row depends on: a row of the same id and another digest is refused."""
    needs: Needs = field(default_factory=dict)
    """Requests and tokens by provider, at the most."""
    worst_cost_usd: float | None = 0.0
    """The most it can cost; None is unknown."""


class RowInfo(NamedTuple):
    """What is remembered of a row; the row itself stays on the disk, however many there are."""

    digest: str | None
    failed: bool
    cost_usd: float | None
    offset: int
    """Where its line begins."""


class Memo:
    """What earlier attempts at one item have paid for already, by name; and where this one keeps its own.

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
        """What was kept under this name, or None."""
        return self.known.get(name)

    def keep(self, name: str, value: Any) -> None:
        """Keep something JSON-ready; on this machine it is on the disk when this returns."""
        self.known[name] = value
        self._keep(name, value)


class Journal:
    """The rows of one output file. Use it as a context manager: it holds a lock.

    Args:
        path: the file; made if it is not there.
        header: what all rows depend on, kept as the first line: `format` first, then `made_by`, which must be the
            file's, then anything else. None: rows alone.
        told: what changed since a file with such a header was made, as the end of a sentence.

    Raises:
        InputError: another process writes it, or it holds something else, which is left as it is.
    """

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any] | None = None,
        told: Callable[[Mapping[str, Any]], str] = lambda header: "",
    ) -> None:
        self.path = path
        self.header = header
        self._told = told
        self._parts_path = path.with_name(path.name + ".parts")
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._writing = threading.Lock()
        self.entries: dict[str, RowInfo] = {}
        self._parts: dict[str, tuple[str, dict[str, Any]]] = {}
        """By item: the digest it had, and what was paid for by name."""

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"{self.path} is being written by another process; wait for it, or stop it") from None
        except OSError as error:
            raise InputError(f"{self.path} cannot be used: {error.strerror or error}") from None
        try:
            self._load()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._rows_file.close()
        self._parts_file.close()
        if not self._parts:
            self._parts_path.unlink(missing_ok=True)
        self._lock.release()

    def _load(self) -> None:
        try:
            headed = self._load_rows()
            for _, part in _lines(self._parts_path, _PART_STARTS):
                self._add(part)
            for key in [key for key in self._parts if self._is_done(key)]:
                del self._parts[key]
            self._rows_file = self.path.open("ab")
            self._parts_file = self._parts_path.open("ab")
            if not headed:
                _append(self._rows_file, self.header or {})
        except OSError as error:
            raise InputError(f"{self.path} cannot be used: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.path} holds something else than rows of ours ({error}); name another"
            ) from None

    def _load_rows(self) -> bool:
        """Index the rows; False where the header is still to be written."""
        starts = [_ROW_STARTS] if self.header is None else [_HEADER_STARTS, _ROW_STARTS]
        lines = _lines(self.path, *starts)
        found = None if self.header is None else next(lines, None)
        if found is not None:
            self._check(found[1])
        for offset, row in lines:
            self.entries[row["id"]] = _entry(row, offset)
        return self.header is None or found is not None

    def _check(self, found: Mapping[str, Any]) -> None:
        assert self.header is not None
        remedy = "finish it with the version that wrote it, or move it away to start again"
        check_format(found["format"], self.header["format"], str(self.path), remedy)
        if found["made_by"] != self.header["made_by"]:
            raise InputError(
                f"{self.path} was made with other models, prompts or settings{self._told(found)}; move it away, or "
                "go back to those"
            )

    def _is_done(self, key: str) -> bool:
        return key in self.entries and not self.entries[key].failed

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """The items that have no row yet, or one with an error.

        Raises:
            InputError: a row answers another question of the same id, or with other settings.
        """
        todo = []
        for item in items:
            if not self._is_done(item.key):
                todo.append(item)
            elif self._is_another(self.entries[item.key].digest, item.digest):
                raise InputError(
                    f"{self.path} holds a row {item.key!r} that was made from another question or with other "
                    "settings; write to another file, or go back to those"
                )
        return todo

    def _is_another(self, found: str | None, wanted: str) -> bool:
        """Whether a row belongs to something else. A row without a digest is accepted if the header matches."""
        return found != wanted and not (found is None and self.header is not None)

    def memo(self, item: Item) -> Memo:
        """What has been paid for of an unfinished item."""
        digest, known = self._parts.get(item.key, ("", {}))

        def keep(name: str, value: Any) -> None:
            part = {"part": item.key, "digest": item.digest, "name": name, "value": value}
            with self._writing:
                _append(self._parts_file, part)
                self._add(part)

        return Memo(known if digest == item.digest else {}, keep)

    def _add(self, part: Row) -> None:
        digest, known = self._parts.get(part["part"], ("", {}))
        if digest != part["digest"]:  # paid for another question, or with other settings
            known = {}
        self._parts[part["part"]] = (part["digest"], {**known, part["name"]: part["value"]})

    def write(self, row: Row) -> None:
        """Add a row, whose first field is `id`; it is on the disk when this returns."""
        with self._writing:
            offset = self._rows_file.tell()
            _append(self._rows_file, row)
            self.entries[row["id"]] = _entry(row, offset)
            if self._is_done(row["id"]):
                self._parts.pop(row["id"], None)

    def lines(self, keys: Iterable[str]) -> Iterator[bytes]:
        """The rows of these keys as they stand in the file; keys without a row are passed over."""
        with self.path.open("rb") as file:
            for key in keys:
                if key in self.entries:
                    file.seek(self.entries[key].offset)
                    yield file.readline()

    def rows(self, keys: Iterable[str] | None = None) -> Iterator[Row]:
        """The rows of these keys, or all, but for failed ones."""
        for key in self.entries if keys is None else keys:
            if self._is_done(key):
                yield from map(json.loads, self.lines([key]))

    def put_in_order(self, items: Iterable[Item]) -> None:
        """One row an item, in the order of the items; rows of other items come last. All or nothing."""
        self._keep([*(item.key for item in items), *self.entries])

    def drop(self, keys: Collection[str]) -> None:
        """Forget rows that are kept elsewhere by now, and what was paid for them. All or nothing."""
        for key in keys:
            self._parts.pop(key, None)
        self._parts_file.close()
        parts = (
            {"part": key, "digest": digest, "name": name, "value": value}
            for key, (digest, known) in self._parts.items()
            for name, value in known.items()
        )
        _replace(self._parts_path, map(to_line, parts))
        self._parts_file = self._parts_path.open("ab")
        self._keep([key for key in self.entries if key not in keys])

    def _keep(self, keys: Iterable[str]) -> None:
        """Rewrite the file with these rows, in this order."""
        kept = [key for key in dict.fromkeys(keys) if key in self.entries]
        head = [] if self.header is None else [to_line(self.header)]
        offsets = _replace(self.path, chain(head, self.lines(kept)))[len(head) :]
        self._rows_file.close()
        self._rows_file = self.path.open("ab")
        self.entries = {k: self.entries[k]._replace(offset=at) for k, at in zip(kept, offsets, strict=True)}


async def save(write: Callable[..., None], *arguments: Any) -> None:
    """Call something that waits for the disk, such as `Journal.write`, without holding up the event loop.

    What is written has been paid for: where the caller is cancelled, it is written first.
    """
    writing = asyncio.ensure_future(asyncio.to_thread(write, *arguments))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        raise


def digest_of(*facts: Any) -> str:
    """What a row depends on, in short.

    >>> digest_of("What is 2 + 2?", 42) == digest_of("What is 2 + 2?", 42) != digest_of("What is 2 + 2?", 43)
    True
    """
    return hashlib.sha256(repr([_without_defaults(fact) for fact in facts]).encode()).hexdigest()[:16]


def _without_defaults(fact: Any) -> Any:
    """Return a dataclass as the fields that differ from their defaults, so that a new field changes no digest."""
    if isinstance(fact, tuple):
        return tuple(map(_without_defaults, fact))
    if not is_dataclass(fact) or isinstance(fact, type):
        return fact
    values = {each.name: (getattr(fact, each.name), each.default) for each in fields(fact)}
    return {name: _without_defaults(value) for name, (value, default) in values.items() if value != default}


def _entry(row: Row, offset: int) -> RowInfo:
    return RowInfo(row.get("digest"), row.get("error") is not None, row.get("cost_usd"), offset)


def _append(file: IO[bytes], row: Mapping[str, Any]) -> None:
    file.write(to_line(row))
    _sync(file)


def to_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as one line of UTF-8 JSON."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which a model may well write; escaped, it comes back
        return json.dumps(row).encode() + b"\n"


def _replace(path: Path, lines: Iterable[bytes]) -> list[int]:
    """Write a file whole or not at all; returns where its lines begin."""
    part, offsets = path.with_name(path.name + ".tmp"), []
    with part.open("wb") as file:
        for line in lines:
            offsets.append(file.tell())
            file.write(line)
        _sync(file)
    part.replace(path)
    sync_folder(path.parent)
    return offsets


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _lines(path: Path, *starts: bytes) -> Iterator[tuple[int, Any]]:
    """The objects in a file and where they begin, without a last line that was being written when its writer was
    killed. The first line starts with the first of `starts`, and so on; all that follow with the last."""
    if not path.exists():
        return
    offset, torn = 0, False
    with path.open("rb") as file:
        for number, line in enumerate(file):
            torn = not line.endswith(b"\n")
            begin = starts[min(number, len(starts) - 1)]
            if line[: len(begin)] != begin[: len(line) if torn else None]:
                raise ValueError(f"a line begins with {line[:20].decode('utf-8', 'replace')!r}")
            if not torn:
                yield offset, load_json(line)
                offset += len(line)
    if torn:
        os.truncate(path, offset)


def sync_folder(folder: Path) -> None:
    """Make a rename last; where folders cannot be synced (Windows), the system does it by itself."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
