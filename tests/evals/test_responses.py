from __future__ import annotations

import json

import pytest

from odar.errors import InputError
from odar.evals.benchmarks.base import BENCHMARKS, Task
from odar.evals.responses import RecordedResponse, match, read_responses, score_responses
from odar.types import Query

TASKS = [
    Task(f"t{number}", Query(f"Question {number}?"), [str(number)], "even" if number % 2 == 0 else "odd")
    for number in range(20)
]


def test_scores_by_stratum_and_what_is_missing():
    responses = [RecordedResponse(f"Answer: {n}", str(n), f"t{n}") for n in range(9)] + [
        RecordedResponse("Answer: 0", "0", "t9")
    ]
    scores = score_responses(BENCHMARKS["starter"], TASKS, responses)
    assert (scores.mean, scores.count, scores.missing, scores.by_place) == (0.9, 10, 10, 0)
    assert scores.strata == {"even": (1.0, 5), "odd": (0.8, 5)}
    assert scores.figures == {}


def test_prompts_and_places():
    responses = [RecordedResponse(str(n), str(n), prompt=f"Question {n}?") for n in range(20)]
    responses[7] = RecordedResponse("7", "7", prompt="Question seven?")  # edited since
    found, by_place = match(TASKS, responses)
    assert len(found) == 20 and by_place == 1 and found["t7"].text == "7"
    found, by_place = match(TASKS, responses[:-1])  # not one a task: places say nothing
    assert by_place == 0 and "t7" not in found
    strangers = [RecordedResponse("x", "x", prompt="?")] * 20
    assert match(TASKS, strangers) == ({}, 0)
    with pytest.raises(InputError, match="none of the 20 responses"):
        score_responses(BENCHMARKS["starter"], TASKS, strangers)


def test_a_file_of_responses(tmp_path):
    file = tmp_path / "r.jsonl"
    rows = [
        {"id": "a", "response": "So.\nAnswer: 4"},
        {"key": 7, "response": "x", "answer": 5},
        {"prompt": "p", "response": ""},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    first, second, third = read_responses(file)
    assert (first.id, first.answer) == ("a", "4")
    assert (second.id, second.answer) == ("7", "5")
    assert (third.prompt, third.text) == ("p", "")
    file.write_text('{"response": "x"}')
    with pytest.raises(InputError, match="row 0 needs response, and id or prompt"):
        read_responses(file)
