from __future__ import annotations

import pytest

from odar.calibration.items import Item
from odar.calibration.records import Attempt, Record, RecordFile
from odar.errors import InputError
from odar.types import Query, Step


def attempt(step=Step.ANSWER, correct=True):
    return Attempt(step, "m", "4", correct, 0.1, 0.01, 12, None, 0.001)


def record(id_="a"):
    return Record(id_, "2 + 2?", 0.2, attempt(), attempt(Step.VERIFY), (attempt(Step.SOLVE),) * 5, 3.0)


def test_what_was_appended_is_there_when_the_file_is_opened_again(tmp_path):
    file = RecordFile(tmp_path / "r.jsonl", "models")
    file.append(record("a"))
    file.append(record("b"))
    again = RecordFile(tmp_path / "r.jsonl", "models")
    assert again.records == [record("a"), record("b")]
    items = [Item(name, Query("q"), ("x",)) for name in "abc"]
    assert [item.id for item in again.missing(items)] == ["c"]


def test_an_item_that_two_runs_recorded_counts_once(tmp_path):
    first, second = (RecordFile(tmp_path / "r.jsonl", "models") for _ in range(2))
    first.append(record("a"))
    second.append(record("a"))
    assert [r.id for r in RecordFile(tmp_path / "r.jsonl", "models").records] == ["a"]


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_half_written_line_is_dropped(tmp_path, cut):
    path = tmp_path / "r.jsonl"
    file = RecordFile(path, "models")
    file.append(record("a"))
    file.append(record("b"))
    path.write_bytes(path.read_bytes()[:-cut])
    again = RecordFile(path, "models")
    assert [r.id for r in again.records] == ["a"]
    again.append(record("c"))
    assert [r.id for r in RecordFile(path, "models").records] == ["a", "c"]


def test_a_file_made_by_something_else_is_refused(tmp_path):
    RecordFile(tmp_path / "r.jsonl", "models").append(record())
    with pytest.raises(InputError, match="made with other models"):
        RecordFile(tmp_path / "r.jsonl", "others")


@pytest.mark.parametrize(
    "content", ["not json\n", '{"format": "odar-records-1", "made_by": "models"}\n{"id": 1}\n']
)
def test_a_file_that_holds_no_records_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="move it away"):
        RecordFile(path, "models")
    assert path.read_text() == content
