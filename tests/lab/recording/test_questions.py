from __future__ import annotations

import json
from collections import Counter

import pytest

from odar.config import load_settings
from odar.conversation import Message
from odar.engine import Odar
from odar.errors import InputError
from odar.lab.recording.questions import Question, load_questions, question_set, starter_questions
from odar.lab.runs.batch import digest_question
from odar.types import Query, Route

PNG = b"\x89PNG\r\n\x1a\n"


def conversation(body):
    messages = body["messages"]
    if not all("content" in message for message in messages):
        raise ValueError("messages[0].content is missing")
    return Query.from_messages(tuple(Message(m["role"], m["content"]) for m in messages))


def load(tmp_path, *rows):
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return load_questions(file, conversation)


def test_every_field_is_read(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    full = {"id": 7, "query": "2 + 2?", "image": "a.png", "path": "hard", "max_cost_usd": 1, "seed": 3}
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    first, second, third = load(tmp_path, full, "", {"messages": turns}, {"query": "x"})
    assert first == Question("7", first.query, [], path=Route.HARD, max_cost_usd=1.0, seed=3)
    assert first.query.images[0].data == PNG
    assert (second.id, second.query.text, len(second.query.turns)) == ("3", "Hello", 2)
    assert third == Question("4", Query("x"), [])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{", "line 2: is not JSON .Expecting property name"),
        ("[]", "line 2: Expected `object`, got `array`"),
        ({}, "line 2: must have either query or messages"),
        ({"query": "x", "messages": []}, "either query or messages"),
        ({"query": 7}, "Expected `str \\| null`, got `int` - at `\\$.query`"),
        ({"query": " "}, "the question is empty"),
        ({"query": "a\0b"}, "NUL character at position 1"),
        ('{"query": "\\ud800"}', "unpaired surrogate"),
        ({"messages": "x"}, "messages must be a list"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content is missing"),
        ({"query": "x", "path": "easy"}, "Invalid enum value 'easy' - at `\\$.path`"),
        ({"query": "x", "path": ["hard"]}, "got `array` - at `\\$.path`"),
        ({"query": "x", "max_cost_usd": -1}, ">= 0.0 - at `\\$.max_cost_usd`"),
        ('{"query": "x", "max_cost_usd": NaN}', ">= 0.0 - at `\\$.max_cost_usd`"),
        ({"query": "x", "max_cost_usd": 10**400}, "out of range - at `\\$.max_cost_usd`"),
        ('{"query": "x", "max_cost_usd": 1e999}', "at `\\$.max_cost_usd`"),
        ({"query": "x", "seed": 1.5}, "at `\\$.seed`"),
        ({"query": "x", "id": ["a"]}, "at `\\$.id`"),
        ({"query": "x", "image": 7}, "Expected `str \\| null`, got `int` - at `\\$.image`"),
        ({"query": "x", "image": "none.png"}, "none.png' cannot be read"),
        ({"query": "x", "pth": "hard"}, "unknown field 'pth'; did you mean 'path'. .known: query, messages, "),
        ({"query": "x", "id": "1"}, "id '1' is that of line 1 too"),
        (b"\xff".decode("latin-1"), "line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, why):
    with pytest.raises(InputError, match=why):
        load(tmp_path, {"query": "good"}, row)


def test_several_bad_lines_are_reported_together(tmp_path):
    faults = [{"query": 1}, {"query": 2}, {"question": "x"}, {"query": " "}, {"id": 1}]
    with pytest.raises(InputError, match=r"line 1 and 1 more: .*line 3: unknown .*line 4: .*\(and 1 more\)"):
        load(tmp_path, *faults)


def test_a_missing_or_empty_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_questions(tmp_path / "none", conversation)
    with pytest.raises(InputError, match="holds no questions"):
        load(tmp_path, "", " ")


def test_questions_with_answers_are_read(tmp_path):
    file = tmp_path / "in.jsonl"
    rows = [
        {"query": "2 + 2?", "answer": 4, "time": 3.5, "set": "a", "split": "held-out"},
        {"id": "x", "query": "?", "answer": "Paris", "accept": ["City of Light"], "reasoning": "I know it."},
        {"query": "?", "gold": {"any": 1}, "set": "ifeval", "domain": "d", "meta": {"free": 1}},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    first, second, third = load_questions(file, answers=True)
    assert (first.gold, first.effort, first.set, first.split) == (["4"], 3.5, "a", "held-out")
    assert (second.id, second.effort, second.gold) == ("x", 3.0, ["Paris", "City of Light"])
    assert question_set("own").score(second, "", "the city of light.")
    assert not question_set("own").score(first, "", "5")
    assert (third.gold, third.stratum) == ({"any": 1}, "d")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"query": "x"}, "line 1: has no answer"),
        ({"query": "x", "answer": None}, "has no answer"),
        ({"query": "x", "answer": True}, "got `bool` - at `\\$.answer`"),
        ({"query": "x", "answer": "y", "accept": "yes"}, "got `str` - at `\\$.accept`"),
        ({"query": "x", "answer": "y", "time": 10**400}, "out of range - at `\\$.time`"),
        ({"query": "x", "answer": "y", "time": -1}, ">= 0.0 - at `\\$.time`"),
        ({"query": "x", "answer": "y", "split": "test"}, "Invalid enum value 'test' - at `\\$.split`"),
        ({"query": "x", "gold": "y"}, "gold needs set"),
        ({"messages": [{}], "answer": "y"}, "messages are not supported here"),
    ],
)
def test_an_invalid_answer_is_an_error(tmp_path, row, why):
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(InputError, match=why):
        load_questions(file, answers=True)


def test_the_starter_set_covers_eight_domains():
    questions = starter_questions()
    counts = Counter(question.stratum for question in questions)
    assert len(counts) == 8
    assert min(counts.values()) >= 20
    assert len({question.query.text for question in questions}) == len(questions)
    own = question_set("own")
    assert all(own.score(each, "", each.gold[0]) and each.effort for each in questions)


def test_the_digest_covers_everything_that_changes_the_answer():
    def digest(question=None, seed=None, **settings):
        odar = Odar(load_settings("tiny", environ={}, **settings))
        return digest_question(question or Question("1", Query("x"), []), odar, seed)

    same = digest()
    assert digest() == digest(Question("2", Query("x"), [])) == digest(gateway__port=1) == same
    others = [
        digest(Question("1", Query("y"), [])),
        digest(Question("1", Query("x"), [], path=Route.HARD)),
        digest(seed=1),
        digest(fast__temperature=0.9),
        digest(routing__samples=3),
        digest(prompts="paper"),
    ]
    assert len({same, *others}) == len(others) + 1
    assert digest(Question("1", Query("x"), [], seed=1)) != same
