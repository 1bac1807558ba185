"""Recordings on disk, as JSON Lines, also compressed; and tables of other tools (JSON Lines, CSV, Parquet).

`odar eval collect` appends to a `.jsonl` file, which is its journal and can grow. A `.jsonl.gz` file is the same,
compressed with gzip, and small enough to be committed.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from odar.errors import InputError, OdarError, one_line
from odar.files import atomic_write, install_command, user_path
from odar.formats import json_line, load_json
from odar.lab.recording.header import Header
from odar.lab.recording.schema import RecordedItem, item_from_json, item_to_json

_TABLE_ROWS = 64
"""Rows of a user's Parquet file that are read at once: some hold several pictures."""
_MAX_CSV_FIELD = 2**31 - 1
"""Characters of a field in a CSV file; Python's default of 131,072 is too little for some answers."""
SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be read; open it with `open_recording`."""

    path: Path
    header: Header

    def items(self, split: str = "", *, tokens: bool = True) -> Iterator[RecordedItem]:
        """The items of this split and those without one; all items if the split is empty.

        Rows with an error and an incomplete last line are skipped. Without `tokens`, attempts hold the numbers that
        a replay needs in place of the tokens.
        """
        with report_damage(self.path), _open_lines(self.path) as file:
            next(file)
            for line in file:
                row = load_json(line) if line.endswith(b"\n") else {"error": "incomplete"}
                if row["error"] is not None:
                    continue
                item = item_from_json(row)
                if not split or item.split in ("", split):
                    yield item if tokens else item.without_tokens()


def open_recording(place: str | Path) -> Recording:
    """Raises InputError if there is no such file, or it is not a recording."""
    path = existing_file(place, "recording; make one with: odar eval collect SET --out FILE.jsonl")
    with report_damage(path), _open_lines(path) as file:
        return Recording(path, Header.from_json(file.readline(), str(place)))


def existing_file(place: str | Path, kind: str = "file") -> Path:
    """Raises InputError if there is no such file."""
    path = user_path(place)
    if not path.is_file():
        raise InputError(f"{place}: no such {kind}")
    return path


def is_recording(place: str | Path) -> bool:
    """Whether a JSONL file is a recording, not a list of questions."""
    try:
        with user_path(place).open("rb") as file:
            return b'"format": "odar-recording' in file.readline(200)
    except OSError:
        return False  # reported when it is read


def write_recording(path: Path, header: Header, items: Iterable[RecordedItem]) -> int:
    """Write a recording in the format of the path's suffix, completely or not at all; return the number of items.

    Raises:
        InputError: the suffix is unknown, or the file cannot be written.
    """
    compress = _suffix(path) == ".jsonl.gz"
    count = 0
    with atomic_write(path, durable=True) as draft, ExitStack() as stack:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: Any = stack.enter_context(draft.open("wb"))
        if compress:  # without a time, so that equal items make equal bytes
            file = stack.enter_context(gzip.GzipFile("", "wb", 9, file, mtime=0))
        file.write(json_line(header.to_row()))
        for item in items:
            file.write(json_line(item_to_json(item)))
            count += 1
    return count


def import_arrow() -> tuple[Any, Any]:
    """Raises InputError if pyarrow, which is optional, is not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        message = f"Parquet files need pyarrow: {install_command('evals')}"
        raise InputError(message) from None
    return pyarrow, parquet


@contextmanager
def report_damage(
    path: str | Path, fault: str = "is damaged", remedy: str = "; collect it again"
) -> Iterator[None]:
    """Turn an error in reading a file into an InputError that names the file."""
    try:
        yield
    except (OdarError, MemoryError):
        raise
    except Exception as error:  # the readers of these formats raise nearly every type
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        raise InputError(f"{path} {fault} ({type(error).__name__}: {one_line(error, 200)}){remedy}") from None


def read_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table: a Parquet, CSV or JSON file, or else JSONL, also compressed (`.gz`).

    A JSON file is a list of rows, or an object with such a list, as an API returns it and BIG-bench has it.

    Raises:
        InputError: the file cannot be read, or is not what its suffix promises; names the file, and the line.
    """
    with report_damage(path, f"is damaged or not {path.suffix[1:]}", remedy=""):
        if path.suffix == ".parquet":
            with import_arrow()[1].ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_TABLE_ROWS):
                    yield from batch.to_pylist()
        elif path.suffix == ".csv":
            csv.field_size_limit(_MAX_CSV_FIELD)
            with path.open(encoding="utf-8", newline="") as lines:
                yield from csv.DictReader(lines)
        elif path.suffix == ".json":
            body = load_json(path.read_bytes())
            lists = [body] if isinstance(body, list) else [each for each in body.values() if isinstance(each, list)]
            yield from lists[0] if lists else [body]
        else:
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
                yield from (_parse_row(line, number, path) for number, line in enumerate(lines, 1) if line.strip())


def _parse_row(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        row = load_json(line)
    except ValueError as error:
        raise InputError(f"{path}: line {number} is not JSON: {one_line(error)}") from None
    if not isinstance(row, dict):
        raise InputError(f"{path}: line {number} is not an object")
    return row


def _suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return suffix
    raise InputError(
        f"{path}: the name of a recording ends in {' or '.join(SUFFIXES)}; for other files: odar eval import"
    )


def _open_lines(path: Path) -> BufferedIOBase:
    return gzip.open(path, "rb") if _suffix(path) == ".jsonl.gz" else path.open("rb")
