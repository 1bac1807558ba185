"""Recordings on disk: JSON Lines (`.jsonl`, also compressed as `.jsonl.gz`) or Parquet, with the same content.

`odar eval collect` appends to a `.jsonl` file, which is its journal and can grow. The other two are written once,
by `odar eval convert`: `.jsonl.gz` is small enough to be committed, `.parquet` loads fastest. Parquet also stores
the numbers that a replay needs of the tokens, so that it reads no tokens.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from odar.errors import InputError, one_line
from odar.files import atomic_write, install_command, user_path
from odar.formats import load_json
from odar.policy.signals import AnswerKind
from odar.recording.header import Header
from odar.recording.journal import sync_folder, to_line
from odar.recording.schema import (
    Attempt,
    ItemKey,
    RecordedItem,
    attempt_from_json,
    item_from_json,
    item_to_json,
    round_logprob,
)
from odar.types import Step

METADATA_KEY = b"odar"
"""The key of the header in the metadata of a Parquet file."""
ROW_GROUP_ITEMS = 256
"""Items in a row group, which is held in memory as a whole."""
_TABLE_ROWS = 64
"""Rows of a user's Parquet file that are read at once: some hold several pictures."""
_MAX_CSV_FIELD = 2**31 - 1
"""Characters of a field in a CSV file; Python's default of 131,072 is too little for some answers."""
_ATTEMPT = "attempts.list.element."
_MEASURED = tuple(_ATTEMPT + name for name in ("figures", "signals"))
_TOKENS = tuple(_ATTEMPT + name for name in ("tokens", "logprobs", "control"))
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError, EOFError),
    *(zlib.error, zipfile.BadZipFile, csv.Error),
)
"""Exceptions raised by reading a damaged file, in addition to those of Arrow, which need not be installed."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be read; open it with `open_recording`."""

    path: Path
    header: Header

    def items(self, split: str = "", *, tokens: bool = True) -> Iterator[RecordedItem]:
        """Iterate over the items, or over those of this split and those without one.

        Without `tokens` their attempts hold the numbers that a replay needs in place of the tokens.
        """
        if _suffix(self.path) == ".parquet":
            found = _parquet_items(self.path, tokens=tokens)
        else:
            found = _json_items(self.path)
        for item in found:
            if not split or item.split in ("", split):
                yield item if tokens else item.measured()


def open_recording(place: str | Path) -> Recording:
    """Open a recording for reading.

    Raises:
        InputError: there is no such file, or it is not a recording.
    """
    path = user_path(place)
    if not path.is_file():
        raise InputError(f"{place}: no such recording; make one with: odar eval collect SET --out FILE.jsonl")
    if _suffix(path) == ".parquet":
        return Recording(path, _open_parquet(path)[1])
    with report_damage(path), _open_lines(path) as file:
        return Recording(path, Header.from_json(file.readline(), str(place)))


def is_recording(place: str | Path) -> bool:
    """Return whether a JSONL file is a recording, not a list of questions."""
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
    suffix = _suffix(path)
    with atomic_write(path) as draft:
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".parquet":
            count = _write_parquet(draft, header, items)
        else:
            count = _write_json(draft, header, items, compress=suffix == ".jsonl.gz")
        with draft.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(path.parent)
    return count


def import_arrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module, which are optional; replays and Parquet files need them.

    Raises:
        InputError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        message = f"replays of recordings, and Parquet files, need pyarrow: {install_command('evals')}"
        raise InputError(message) from None
    return pyarrow, parquet


@contextmanager
def report_damage(
    path: str | Path, fault: str = "is damaged", remedy: str = "; collect it again"
) -> Iterator[None]:
    """Turn an error in reading a file into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        if not isinstance(error, _DAMAGE) and not type(error).__name__.startswith("Arrow"):
            raise
        raise InputError(f"{path} {fault} ({type(error).__name__}: {one_line(error, 200)}){remedy}") from None


def read_table(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table: a Parquet or CSV file, or else JSONL, also compressed (`.gz`).

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
    raise InputError(f"{path}: the name of a recording ends in {', '.join(SUFFIXES)}")


def _open_lines(path: Path) -> BufferedIOBase:
    return gzip.open(path, "rb") if _suffix(path) == ".jsonl.gz" else path.open("rb")


def _json_items(path: Path) -> Iterator[RecordedItem]:
    """Yield the items of a JSONL recording without rows that have an error, and without an incomplete last line."""
    with report_damage(path), _open_lines(path) as file:
        next(file)
        for line in file:
            row = load_json(line) if line.endswith(b"\n") else {"error": "incomplete"}
            if row["error"] is None:
                yield item_from_json(row)


def _write_json(path: Path, header: Header, items: Iterable[RecordedItem], *, compress: bool) -> int:
    count = 0
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if compress:
            file = stack.enter_context(gzip.GzipFile("", "wb", 9, file, mtime=0))  # the same items, the same bytes
        file.write(to_line(header.to_row()))
        for item in items:
            file.write(to_line(item_to_json(item)))
            count += 1
    return count


def _write_parquet(path: Path, header: Header, items: Iterable[RecordedItem]) -> int:
    pa, parquet = import_arrow()
    schema, count = _schema(pa).with_metadata({METADATA_KEY: to_line(header.to_row())}), 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in _to_tables(items, schema):
            writer.write_table(table)
            count += len(table)
    return count


def _to_tables(items: Iterable[RecordedItem], schema: Any) -> Iterator[Any]:
    """Yield Arrow tables of up to ROW_GROUP_ITEMS items."""
    pa, rows = import_arrow()[0], map(_parquet_row, items)
    while batch := list(islice(rows, ROW_GROUP_ITEMS)):
        yield pa.Table.from_pylist(batch, schema=schema)


def _parquet_items(path: Path, *, tokens: bool) -> Iterator[RecordedItem]:
    file, _ = _open_parquet(path)
    unwanted = _MEASURED if tokens else _TOKENS
    columns = [name for name in _leaves(file.schema_arrow) if not name.startswith(unwanted)]
    with report_damage(path):
        for number in range(file.num_row_groups):
            for row in file.read_row_group(number, columns=columns).to_pylist():
                yield _parquet_item(row)


def _open_parquet(path: Path) -> tuple[Any, Header]:
    """Open a Parquet recording and check its format and columns."""
    pa, parquet = import_arrow()
    with report_damage(path, "cannot be read as a recording", remedy=""):
        file = parquet.ParquetFile(path)
    metadata = file.schema_arrow.metadata or {}
    if METADATA_KEY not in metadata:
        raise InputError(f"{path} is a Parquet file, but not a recording of ODAR")
    header = Header.from_json(metadata[METADATA_KEY].decode("utf-8", "replace"), str(path))
    for column in _schema(pa):
        if column not in list(file.schema_arrow):
            raise InputError(f"{path} has no column {column.name!r} of its type; it is damaged, collect it again")
    return file, header


def _parquet_row(item: RecordedItem) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(item, enc_hook=float)  # NumPy's floats
    row |= {"key": item.key._asdict(), "gold": json.dumps(item.gold, ensure_ascii=False)}
    for tree, attempt in zip(row["attempts"], item.measured().attempts, strict=True):
        tree["figures"] = msgspec.to_builtins(attempt.figures)
        tree["signals"] = msgspec.to_builtins(attempt.signals)
    for tree, attempt in zip(row["attempts"], item.attempts, strict=True):
        tree["control"] = [i for i, control in enumerate(attempt.control) if control]
    return row


def _parquet_item(row: dict[str, Any]) -> RecordedItem:
    for nested in row["attempts"]:
        if "tokens" in nested:
            nested["logprobs"] = [round_logprob(value) for value in nested["logprobs"]]
        nested["usage"] = {k: v for k, v in nested["usage"].items() if v is not None}
    own = {"key": ItemKey(**row["key"]), "gold": json.loads(row["gold"]), "attempts": []}
    item = msgspec.convert({**row, **own}, RecordedItem)
    return replace(item, attempts=tuple(map(attempt_from_json, row["attempts"])))


def _schema(pa: Any) -> Any:
    attempt = _columns(pa, Attempt) | {
        "logprobs": pa.list_(pa.float32()),
        "control": pa.list_(pa.int64()),  # the places of control tokens
    }
    return pa.schema((_columns(pa, RecordedItem) | {"attempts": pa.list_(pa.struct(attempt.items()))}).items())


def _leaves(schema: Any) -> list[str]:
    """Return the columns of a recording, and the fields of its attempts."""
    attempt = schema.field("attempts").type.value_type
    return [name for name in schema.names if name != "attempts"] + [
        _ATTEMPT + attempt.field(i).name for i in range(attempt.num_fields)
    ]


def _columns(pa: Any, kind: type) -> dict[str, Any]:
    """Return the Arrow type of each field of a class."""
    return {name: _column(pa, each) for name, each in get_type_hints(kind).items()}


def _column(pa: Any, kind: Any) -> Any:
    """Return the Arrow type of a Python type; values of type Any are stored as JSON."""
    if get_origin(kind) is UnionType:  # with None
        return _column(pa, get_args(kind)[0])
    if get_origin(kind) is tuple:
        return pa.list_(_column(pa, get_args(kind)[0]))
    scalars = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    scalars |= {Step: pa.string(), AnswerKind: pa.string(), Any: pa.string()}
    return scalars[kind] if kind in scalars else pa.struct(_columns(pa, kind).items())
