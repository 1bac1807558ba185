"""Rows from the files that datasets come in: Parquet, JSON Lines, JSON, CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odar.errors import InputError
from odar.formats import load_json
from odar.recording.files import arrow

Row = dict[str, Any]
_BATCH = 64  # rows at a time: some hold several pictures
_LARGEST_FIELD = 2**27


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of one file, by its suffix.

    Raises:
        InputError: no such format, or not what the suffix promises; names the file.
    """
    readers = {".parquet": _parquet, ".jsonl": _json_lines, ".json": _json, ".csv": _csv}
    if path.suffix not in readers:
        raise InputError(f"{path} is none of {', '.join(sorted(readers))}")
    try:
        yield from readers[path.suffix](path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, csv.Error) as error:  # UnicodeDecodeError and pyarrow's ArrowInvalid are ValueErrors too
        raise InputError(f"{path} is damaged or not {path.suffix[1:]}: {error}") from None


def _parquet(path: Path) -> Iterator[Row]:
    with arrow()[1].ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            yield from batch.to_pylist()


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = load_json(line)
                if not isinstance(row, dict):
                    raise ValueError(f"line {number} is {type(row).__name__}, not an object")
                yield row


def _json(path: Path) -> Iterator[Row]:
    """A list of rows, alone or as `examples` (BIG-bench's files)."""
    body = load_json(path.read_text(encoding="utf-8"))
    rows = body.get("examples") if isinstance(body, dict) else body
    if not isinstance(rows, list):
        raise ValueError("neither a list nor an object with a list of examples")
    yield from rows


def _csv(path: Path) -> Iterator[Row]:
    before = csv.field_size_limit(_LARGEST_FIELD)
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)
    finally:
        csv.field_size_limit(before)
