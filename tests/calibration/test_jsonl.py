from __future__ import annotations

import json

import pytest

from odar.calibration.items import load_items
from odar.calibration.jsonl import effort_of, load_lines, query_of
from odar.calibration.training_rows import load_rows
from odar.errors import InputError

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def load(path):
    return load_lines(path, lambda row, number, folder: (row["x"], number, folder), "is no such thing", "things")


def test_lines_are_numbered_as_an_editor_numbers_them(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"x": 1}\n\n  \n{"x": "line\u2028separator"}\n', encoding="utf-8")
    assert load(file) == [(1, 1, tmp_path), ("line\u2028separator", 4, tmp_path)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"x": 1}\n{"y": 2}\n', r"a\.jsonl, line 2 is no such thing: lacks 'x'"),
        (b'{"x": 1}\n{"x": \n', r"line 2 is no such thing: "),
        (b"[1]\n", r"line 1 is no such thing: "),
        (b"\n\n", "holds no things"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path, content, why):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=why):
        load(tmp_path / "a.jsonl")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load(tmp_path / "none.jsonl")


@pytest.mark.parametrize("query", ["", "  \n", None, 7, ["a"]])
def test_a_question_is_text(query, tmp_path):
    with pytest.raises(ValueError, match="query is"):
        query_of({"query": query}, tmp_path)


def test_a_picture_is_looked_for_beside_the_file(tmp_path):
    (tmp_path / "p.png").write_bytes(PNG)
    query = query_of({"query": "What is it?", "image": "p.png"}, tmp_path)
    assert (query.text, len(query.images)) == ("What is it?", 1)
    (tmp_path / "a.jsonl").write_text('{"query": "x", "answer": 1, "image": "none.png"}')
    with pytest.raises(InputError, match=r"none\.png"):
        load_items(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("row", "effort"),
    [
        ({"time": 0}, 0.0),
        ({"time": 2.5, "reasoning": "many words here"}, 2.5),
        ({"reasoning": "three  words \n here"}, 3.0),
        ({"reasoning": ""}, None),
        ({}, None),
    ],
)
def test_effort_is_time_or_else_the_length_of_the_reasoning(row, effort):
    assert effort_of(row) == effort


@pytest.mark.parametrize("time", ["long", -1, float("inf"), float("nan"), True])
@pytest.mark.parametrize("loader", [load_items, load_rows])
def test_a_time_that_is_none_is_refused_by_both_readers(tmp_path, time, loader):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"query": "x", "answer": 1, "correct": True, "time": time}))
    with pytest.raises(InputError, match=r"line 1 .*time is"):
        loader(file)
