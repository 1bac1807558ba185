"""Panels as Parquet: one row an item, its answers nested in it, the header in the file's metadata.

The figures that fusion needs are stored beside the tokens, so that a replay reads neither tokens nor, but for ties,
texts: a panel of any length fits in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from odar.batch.journal import sync_folder
from odar.errors import InputError, one_line
from odar.evals.benchmarks.files import arrow
from odar.evals.panel.entry import Attempt, Entry, Key, add_up, attempt_from_json
from odar.evals.panel.figures import Figures, figures_of
from odar.evals.panel.header import Header

HEADER = b"odar"
"""The key of the header in the file's metadata."""
ROWS = 256
"""Items in a row group: what is held in memory at once."""


def write_panel(path: Path, header: Header, entries: Iterable[Entry]) -> int:
    """Write a panel, whole or not at all; returns the number of items."""
    pa, parquet = arrow()
    schema = _schema(pa).with_metadata({HEADER: header.to_json().encode()})
    part = path.with_suffix(".part")
    rows, found = 0, iter(entries)
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while batch := list(islice(found, ROWS)):
            table = pa.Table.from_pylist([_row(entry) for entry in batch], schema=schema)
            writer.write_table(table)
            rows += len(batch)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)
    return rows


def read_header(path: Path) -> Header:
    """What a panel depends on.

    Raises:
        InputError: the file is not there, or not a panel.
    """
    return _header(open_panel(path), path)


def read_entries(path: Path, keys: set[Key] | None = None) -> Iterator[Entry]:
    """The items of a panel, or some of them, a row group at a time."""
    with sound(path):
        for row in read_rows(path, None):
            if keys is None or Key(*row["key"].values()) in keys:
                yield _entry(row)


def read_rows(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries with these columns only; a row group is held at a time."""
    file = open_panel(path)
    with sound(path):
        for number in range(file.num_row_groups):
            yield from file.read_row_group(number, columns=columns).to_pylist()


def read_keys(path: Path) -> set[Key]:
    """Which items a panel holds."""
    if not path.exists():
        return set()
    with sound(path):
        return {Key(*row["key"].values()) for row in read_rows(path, ["key"])}


def read_costs(path: Path) -> Iterator[float | None]:
    """What each item of a panel cost, without reading what was said."""
    names = ("request", "prompt_usd", "output_usd")
    with sound(path):
        for row in read_rows(path, [f"attempts.list.element.{name}" for name in names]):
            yield add_up(tuple(attempt[name] for name in names) for attempt in row["attempts"])


def open_panel(path: Path) -> Any:
    """The Parquet file of a panel of this format, with all its columns; or a clear error."""
    pa, parquet = arrow()
    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as a panel: {' '.join(str(error).split())}") from None
    _header(file, path)
    for column in _schema(pa):
        if column.name not in file.schema_arrow.names:
            raise InputError(f"{path} has no column {column.name!r}; it is damaged, collect it anew")
        if file.schema_arrow.field(column.name).type != column.type:
            raise InputError(f"{path}: column {column.name!r} is not of its type; it is damaged, collect it anew")
    return file


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Whatever turns out to be wrong with the values in a panel is the file's fault, and said so."""
    pa, _ = arrow()
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError, pa.ArrowException) as error:
        why = one_line(error, 200)
        raise InputError(f"{path} is damaged ({type(error).__name__}: {why}); collect it anew") from None


def _header(file: Any, path: Path) -> Header:
    metadata = file.schema_arrow.metadata or {}
    if HEADER not in metadata:
        raise InputError(f"{path} is a Parquet file, but not a panel of ODAR")
    return Header.from_json(metadata[HEADER].decode("utf-8", "replace"), str(path))


def _row(entry: Entry) -> dict[str, Any]:
    row = asdict(entry)
    row["key"] = entry.key._asdict()
    row["gold"] = json.dumps(entry.gold, ensure_ascii=False)
    for nested, attempt in zip(row["attempts"], entry.attempts, strict=True):
        nested["figures"] = asdict(figures_of(attempt))
    return row


def _entry(row: dict[str, Any]) -> Entry:
    attempts: list[Attempt] = []
    for nested in row["attempts"]:
        del nested["figures"]
        attempts.append(attempt_from_json(nested))
    rest = {"key": Key(*row["key"].values()), "gold": json.loads(row["gold"]), "features": tuple(row["features"])}
    return Entry(**{**row, **rest, "attempts": tuple(attempts)})


def _schema(pa: Any) -> Any:
    text, whole, real, flag = pa.string(), pa.int64(), pa.float64(), pa.bool_()
    usage = pa.struct([(name, whole) for name in ("input", "cached", "output", "reasoning")])
    figures = pa.struct(
        [(name, whole if kind == "int" else real) for name, kind in Figures.__annotations__.items()]
    )
    attempt = pa.struct(
        [
            ("step", text), ("index", whole), ("model", text), ("text", text), ("answer", text),
            ("judgment", flag), ("finish", text), ("score", real),
            ("tokens", pa.list_(text)), ("logprobs", pa.list_(pa.float32())), ("control", pa.list_(flag)),
            ("request", whole), ("usage", usage), ("prompt_usd", real), ("output_usd", real), ("seconds", real),
            ("stated", flag), ("figures", figures),
        ]
    )  # fmt: skip
    return pa.schema(
        [
            ("key", pa.struct([("benchmark", text), ("id", text), ("seed", whole)])),
            ("category", text), ("metric", text), ("stratum", text), ("fold", whole), ("query", text),
            ("gold", text), ("effort", real), ("features", pa.list_(real)), ("difficulty", real), ("expert", text),
            ("attempts", pa.list_(attempt)),
        ]
    )  # fmt: skip
