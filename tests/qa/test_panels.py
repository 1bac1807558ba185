"""Recordings with wrong or missing fields, a changed header or damaged bytes are read, or rejected by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fuzz.strategies import examples, json_values, mutated
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import UsageError
from odar.lab.recording.files import open_recording
from odar.lab.replay.table import load_table
from support.panels import synthetic_panel

READERS = {
    "header": lambda path: open_recording(path).header,
    "items": lambda path: list(open_recording(path).items()),
    "table": load_table,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> list[str]:
    return synthetic_panel(tmp_path_factory.mktemp("panel"), items=3).read_text().splitlines()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "recording.jsonl"


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


def write(place: Path, lines: list[str]) -> None:
    place.write_text("".join(f"{line}\n" for line in lines))


def test_a_valid_recording_is_read(good, place):
    write(place, good)
    assert all(read_all(place).values())


@pytest.mark.parametrize("field", ["attempts", "fold", "features", "gold"])
def test_a_missing_field_is_rejected(good, place, field):
    row = json.loads(good[1])
    del (row if field in row else row["item"])[field]
    write(place, [good[0], json.dumps(row), *good[2:]])
    assert read_all(place) == {"header": True, "items": False, "table": False}


@examples(60)
@given(data=st.data())
def test_mutated_rows_are_read_or_rejected(good, place, data):
    rows = data.draw(mutated([json.loads(line) for line in good[1:]]))
    write(place, [good[0], *map(json.dumps, rows if isinstance(rows, list) else [rows])])
    read_all(place)


@pytest.mark.parametrize("prompts", [None, [], {"answer": []}])
def test_prompts_of_another_type_are_rejected(good, place, prompts):
    header = json.loads(good[0])
    header["facts"]["prompts"] = prompts
    write(place, [json.dumps(header), *good[1:]])
    assert not read_all(place)["table"]


@examples(30)
@given(data=st.data())
def test_mutated_headers_are_read_or_rejected(good, place, data):
    changed = data.draw(mutated(json.loads(good[0])) | json_values)
    write(place, [json.dumps(changed), *good[1:]])
    read_all(place)


@examples(30)
@given(data=st.data())
def test_damaged_files_are_read_or_rejected(good, place, data):
    write(place, good)
    whole = place.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.booleans())
    place.write_bytes(whole[:at] if cut else whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + 4 :])
    read_all(place)
