from __future__ import annotations

import json
from collections import Counter

import pytest

from odar.calibration.items import load_items, starter_items
from odar.errors import InputError


def write(tmp_path, *rows):
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return file


def test_the_starter_set_covers_eight_domains():
    items = starter_items()
    counts = Counter(item.domain for item in items)
    assert len(items) >= 160
    assert len(counts) == 8
    assert min(counts.values()) >= 20
    assert len({item.query.text for item in items}) == len(items)
    assert all(item.is_right(item.answers[0]) and item.effort for item in items)


def test_fields_of_ones_own_file(tmp_path):
    file = write(
        tmp_path,
        {"query": "2 + 2?", "answer": 4, "time": 3.5},
        "",
        {"id": "x", "query": "Capital?", "answer": "Paris", "accept": ["City of Light"], "reasoning": "I know it."},
    )
    first, second = load_items(file)
    assert (first.id, first.answers, first.effort) == ("1", ("4",), 3.5)
    assert (second.id, second.effort) == ("x", 3.0)
    assert second.is_right("the city of light.")
    assert first.is_right("4.0")
    assert not first.is_right("5")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 1 is not a question with an answer"),
        ("[]", "line 1 is not a question"),
        ({"query": "x"}, "line 1 is not a question with an answer: lacks 'answer'"),
        ({"query": "", "answer": "x"}, "query is ''"),
        ({"query": "x", "answer": None}, "answer is None"),
        ({"query": "x", "answer": "y", "accept": "yes"}, "accept is 'yes', not a list of answers"),
        ({"query": "x", "answer": "y", "accept": 7}, "accept is 7, not a list of answers"),
        ({"query": "x", "answer": "y", "time": 10**400}, "time is 1000"),
        ({"query": "x", "answer": "y", "time": -1}, "time is -1"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, message):
    with pytest.raises(InputError) as caught:
        load_items(write(tmp_path, row))
    assert message in str(caught.value)


def test_what_is_null_is_left_out(tmp_path):
    rows = [{"id": None, "query": q, "answer": "y", "accept": None, "time": None, "image": None} for q in "ab"]
    assert [(item.id, item.answers, item.effort) for item in load_items(write(tmp_path, *rows))] == [
        ("1", ("y",), None),
        ("2", ("y",), None),
    ]


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_items(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="holds no questions"):
        load_items(write(tmp_path, ""))
    with pytest.raises(InputError, match="same id"):
        load_items(write(tmp_path, {"id": 1, "query": "x", "answer": "y"}, {"id": 1, "query": "z", "answer": "y"}))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_items(tmp_path / "binary")
