"""Training rows for the estimator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odar.cli.train import TrainingLine, targets, training_row
from odar.errors import InputError
from odar.lab.recording.questions import load_lines


def write(tmp_path: Path, *rows: object) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
    return file


def load_rows(path: Path) -> list[TrainingLine]:
    return [line for _, line in load_lines(path, TrainingLine, training_row, "rows")]


def test_a_given_difficulty_is_the_target(tmp_path: Path) -> None:
    rows = load_rows(write(tmp_path, {"query": "a", "difficulty": 0.25}, "", {"query": "b", "difficulty": 1}))
    assert [row.query for row in rows] == ["a", "b"]
    assert targets(rows).tolist() == [0.25, 1.0]


def test_targets_are_computed_from_outcomes(tmp_path: Path) -> None:
    rows = load_rows(
        write(
            tmp_path,
            {"query": "a", "correct": True},
            {"query": "b", "correct": False, "time": 60},
            {"query": "c", "correct": 0.5, "reasoning": "first this then that and so on " * 10},
        )
    )
    assert [row.effort for row in rows] == [None, 60.0, 70.0]
    easy, timed, reasoned = targets(rows)
    assert easy == 0.0
    assert timed == pytest.approx(0.5 + 0.5 * 60 / 70, abs=0.01)
    assert reasoned == pytest.approx(0.75)


def test_effort_does_not_change_a_given_difficulty() -> None:
    rows = [TrainingLine(query="a", difficulty=0.3, time=9.0), TrainingLine(query="b", correct=0.0, time=1.0)]
    assert targets(rows).tolist() == [0.3, 1.0]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("not json", "line 1"),
        ("[]", "line 1"),
        ({"difficulty": 0.5}, "must have either query or messages"),
        ({"query": " ", "difficulty": 0.5}, "the question is empty"),
        ({"query": "a"}, "either difficulty or correct"),
        ({"query": "a", "difficulty": 0.5, "correct": True}, "either difficulty or correct"),
        ({"query": "a", "difficulty": 1.5}, "Expected `float` <= 1.0 - at `\\$.difficulty`"),
        ({"query": "a", "correct": "yes"}, "Expected .*, got `str` - at `\\$.correct`"),
        ({"query": "a", "correct": True, "time": -1}, "Expected `float` >= 0.0 - at `\\$.time`"),
        ({"query": "a", "correct": True, "time": "long"}, "Expected `float.*, got `str` - at `\\$.time`"),
    ],
)
def test_an_invalid_row_names_its_line(tmp_path: Path, row: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_rows(write(tmp_path, row))


def test_empty_and_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no rows"):
        load_rows(write(tmp_path, ""))
    with pytest.raises(InputError, match="cannot be read"):
        load_rows(tmp_path / "none.jsonl")
