"""Panels with wrong or missing columns, a changed header or damaged bytes are read, or rejected by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fuzz.strategies import examples, json_values, mutated
from odar.errors import InputError, UsageError
from odar.evals.replay.table import load_table
from odar.recording.files import METADATA_KEY, open_recording
from support.panels import synthetic_panel

READERS = {
    "header": lambda path: open_recording(path).header,
    "items": lambda path: list(open_recording(path).items()),
    "table": load_table,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> pa.Table:
    return parquet.read_table(synthetic_panel(tmp_path_factory.mktemp("panel"), items=3))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "recording.parquet"


def read_all(path: Path) -> dict[str, bool]:
    """Return which readers accept the file; check that the others name it in a one-line error."""
    taken = {}
    for name, read in READERS.items():
        try:
            read(path)
            taken[name] = True
        except UsageError as error:
            assert "\n" not in str(error), str(error)
            taken[name] = False
    return taken


def test_a_valid_panel_is_read(good, place):
    parquet.write_table(good, place)
    assert all(read_all(place).values())


@pytest.mark.parametrize("column", ["key", "attempts", "fold", "features", "gold"])
def test_a_missing_column_is_named(good, place, column):
    parquet.write_table(good.drop_columns([column]), place)
    for read in READERS.values():
        with pytest.raises(InputError, match=f"has no column '{column}'"):
            read(place)


@examples(30)
@given(data=st.data())
def test_columns_of_another_type_are_read_or_rejected(good, place, data):
    name = data.draw(st.sampled_from(good.column_names))
    values = data.draw(st.lists(st.none() | st.text() | st.integers(0, 9), min_size=3, max_size=3))
    text = pa.array([None if value is None else str(value) for value in values])
    at = good.column_names.index(name)
    changed = good.set_column(at, name, text).replace_schema_metadata(good.schema.metadata)
    parquet.write_table(changed, place)
    taken = read_all(place)
    assert not any(taken.values()) or good.schema.field(name).type == pa.string()


@examples(60)
@given(data=st.data())
def test_mutated_rows_are_read_or_rejected(good, place, data):
    rows = data.draw(mutated(good.to_pylist()))
    try:
        table = pa.Table.from_pylist(rows, schema=good.schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError):
        return  # no Parquet file can hold that
    parquet.write_table(table, place)
    read_all(place)


@examples(30)
@given(data=st.data())
def test_mutated_headers_are_read_or_rejected(good, place, data):
    header = json.loads(good.schema.metadata[METADATA_KEY])
    changed: Any = data.draw(mutated(header) | json_values)
    parquet.write_table(good.replace_schema_metadata({METADATA_KEY: json.dumps(changed).encode()}), place)
    read_all(place)


@examples(30)
@given(data=st.data())
def test_damaged_files_are_read_or_rejected(good, place, data):
    parquet.write_table(good, place)
    whole = place.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.booleans())
    place.write_bytes(whole[:at] if cut else whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + 4 :])
    read_all(place)
