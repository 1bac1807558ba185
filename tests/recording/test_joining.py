from __future__ import annotations

import pytest

from odar.catalogue import Price
from odar.engine import Odar
from odar.errors import InputError
from odar.recording.files import open_recording, write_recording
from odar.recording.importers import ImportedAnswer, KnownQuestion
from odar.recording.joining import imported_header, join_answers, to_items
from odar.types import Role, Step, Usage
from support import panels


def said(name, query="", answer="4", **more) -> ImportedAnswer:
    return ImportedAnswer(
        **{"id": name, "query": query, "answer": answer, "text": answer, "usage": Usage(), **more}
    )


def test_answers_are_joined_by_the_text_of_the_question():
    fast = [said("1", "2 + 2?", gold="4"), said("2", "3  +\n3?", gold="6"), said("3", "only here", gold="x")]
    slow = [said("x", "3 + 3?", "6"), said("y", "2 + 2?", "4"), said("z", "2 + 2?", "5")]
    first, second = join_answers(fast, [slow])
    assert [(each.id, each.score) for each in first] == [("1", 1.0), ("y", 1.0), ("z", 0.0)]
    assert [(each.id, each.score) for each in second] == [("2", 0.0), ("x", 1.0)]


def test_questions_with_the_same_text_are_joined_by_id():
    fast = [said("1", "Which?", gold="a"), said("2", "Which?", gold="b")]
    slow = [said("2", "Which?", "b"), said("1", "Which?", "a")]
    assert [(one.id, other.answer) for one, other in join_answers(fast, [slow])] == [("1", "a"), ("2", "b")]


def test_answers_without_questions_are_joined_by_id():
    known = {"a": KnownQuestion("2 + 2?", "4"), "b": KnownQuestion("3 + 3?", ["6", "six"])}
    joined = join_answers([said("a"), said("b", answer="six")], [[said("b"), said("a", answer="5")]], known)
    assert [[(each.query, each.score) for each in answers] for answers in joined] == [
        [("2 + 2?", 1.0), ("2 + 2?", 0.0)],
        [("3 + 3?", 1.0), ("3 + 3?", 0.0)],
    ]
    (plain,) = join_answers([said("a", score=0.25)], [[said("a", score=1.0)]])
    assert [each.score for each in plain] == [0.25, 1.0]


def test_answers_that_cannot_be_joined_or_scored_are_an_error():
    with pytest.raises(InputError, match=r"no question is in both files, by text: the first are 'x' and 'y'"):
        join_answers([said("1", "x", score=1)], [[said("1", "y", score=1)]])
    with pytest.raises(InputError, match=r"answer '1' has no score, and no right answer is known: .*--questions"):
        join_answers([said("1", "x")], [[said("1", "x")]])


def test_a_scorer_replaces_the_scores_of_the_files():
    joined = join_answers(
        [said("1", "x", score=1.0, gold="4")], [[said("1", "x", score=1.0)]], None, lambda task, text, answer: 0.5
    )
    assert [each.score for each in joined[0]] == [0.5, 0.5]


def test_joined_answers_become_a_recording(tmp_path):
    fast = said("1", "What is 7 + 0 ?", gold="7", model="small", usage=Usage(1000, 0, 500), seconds=1.0)
    slow = said("1", "What is 7 + 0 ?", "7", model="large", cost_usd=0.25, mean_logprob=-0.5)
    unknown = said("2", "And 8?", gold="8", model="small")
    joined = join_answers([fast, unknown], [[slow, said("1", "What is 7 + 0 ?"), said("2", "And 8?", "8")]])
    items = to_items(joined, panels.Spread(), "mine", {Role.FAST: Price(1.0, 0.1, 4.0)})
    first, second = items[0], items[1]
    assert (first.key.set, first.difficulty, len(first.features)) == ("mine", 7 * 37 % 100 / 100, 24)
    assert [(each.step, each.index) for each in first.attempts] == [
        (Step.ANSWER, 0), (Step.SOLVE, 0), (Step.SOLVE, 1),
    ]  # fmt: skip
    assert first.attempts[0].prompt_usd + first.attempts[0].output_usd == pytest.approx(0.003)
    assert first.attempts[1].output_usd == 0.25
    assert second.attempts[0].prompt_usd is None  # no usage, no cost
    header = imported_header(Odar(panels.settings()), items, {"a.jsonl": "0" * 64})
    assert (header.imported, header.samples, header.models["slow"]) == (True, 1, ["large", "slow"])
    path = tmp_path / "x.jsonl.gz"
    write_recording(path, header, items)
    assert list(open_recording(path).items()) == items
