from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.traces.record import Record, Unanswered, to_document, to_json
from odar.types import (
    Assignment,
    Call,
    Candidate,
    Decision,
    Energy,
    Estimate,
    Image,
    Plan,
    Query,
    Spend,
    Stage,
    Step,
    Token,
    Trace,
    Usage,
    Verdict,
)
from support.traces import make_answer, make_record

texts = st.text(max_size=20)  # surrogates and NUL included
numbers = st.floats(allow_nan=False, allow_infinity=False)
maybe = st.none() | numbers
counts = st.none() | st.integers(0, 2**70)
usages = st.builds(Usage, counts, counts, counts, counts)
steps = st.sampled_from(list(Step))
tokens = st.lists(st.builds(Token, texts, maybe, st.booleans()), max_size=5).map(tuple)
energies = st.builds(Energy, numbers, numbers, numbers, maybe)
candidates = st.builds(
    Candidate, steps, texts, texts, texts, texts, tokens, st.none() | st.booleans(), texts, st.none() | energies
)
shares = st.lists(st.tuples(texts, numbers, numbers), max_size=3).map(tuple)
plans = st.builds(
    Plan,
    st.builds(Estimate, numbers, texts, shares),
    st.builds(Assignment, texts, texts, st.dictionaries(texts, texts, max_size=3)),
    policy=texts,
    prices=st.dictionaries(texts, numbers, max_size=3),
    value_usd=numbers,
    dial=texts,
    forced=st.booleans(),
)
stages = st.sampled_from(["fast", "second", "slow*2", "fast+slow*5", "slow:verify"]).map(Stage.parse)
decisions = st.builds(Decision, st.none() | stages, texts, st.booleans(), maybe, maybe, maybe, maybe)
calls = st.builds(
    Call,
    steps,
    texts,
    texts,
    texts,
    st.integers(0, 9),
    usages,
    maybe,
    numbers,
    st.integers(0, 9),
    st.none() | texts,
)
spends = st.builds(Spend, st.integers(0, 99), usages, maybe, numbers)
many = {"calls": st.lists(calls, max_size=3).map(tuple)}
head = {"id": texts, "started_at": texts, "profile": texts, "spend": spends, **many}
traces = st.builds(
    Trace,
    **head,
    plan=plans,
    decisions=st.lists(decisions, max_size=3).map(tuple),
    verdict=st.builds(Verdict, st.just(0), texts, texts, st.lists(numbers, max_size=3).map(tuple)),
    candidates=st.lists(candidates, min_size=1, max_size=3).map(tuple),
    prompts=st.dictionaries(texts, texts, max_size=3).map(lambda d: tuple(d.items())),
    degradations=st.lists(texts, max_size=2).map(tuple),
)
attempts = st.builds(
    Unanswered,
    **head,
    candidates=st.lists(candidates, max_size=3).map(tuple),
    plan=st.none() | plans,
    decisions=st.lists(decisions, max_size=3).map(tuple),
)
queries = st.builds(
    Query, texts, st.lists(st.builds(Image, texts, st.binary(max_size=9), st.none() | texts)).map(tuple)
)
records = st.builds(
    Record,
    queries,
    traces | attempts,
    st.none() | texts,
    error=st.none() | texts,
    endpoint=texts,
    model=texts,
    http_status=st.sampled_from([200, 499, 503]),
)


@given(records)
def test_everything_is_stored_with_content(record):
    body = to_json(to_document(record, content=True))
    body.encode()  # any database takes it
    assert "\0" not in body
    json.loads(body, parse_constant=pytest.fail)  # strict JSON: no NaN, no Infinity
    document = json.loads(body)
    assert document["query"]["text"] == record.query.text
    assert [candidate["text"] for candidate in document["candidates"]] == [c.text for c in record.trace.candidates]
    assert [candidate["tokens"] for candidate in document["candidates"]] == [
        [token.text for token in c.tokens] for c in record.trace.candidates
    ]
    assert document["spend"] == dataclasses.asdict(record.trace.spend)
    assert [call["cost_usd"] for call in document["calls"]] == [call.cost_usd for call in record.trace.calls]


@given(plans)
def test_a_plan_survives_a_round_trip(plan):
    answer = make_answer()
    answer = dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, plan=plan))
    document = json.loads(to_json(to_document(Record(Query("?"), answer.trace), content=True)))
    again = dataclasses.asdict(msgspec.convert(document["plan"], Plan))
    assert json.dumps(again) == json.dumps(dataclasses.asdict(plan))


def test_decisions_name_their_stages_and_candidates_their_stage():
    document = to_document(make_record(), content=False)
    assert [decision["stage"] for decision in document["decisions"]] == ["fast", "slow:verify", None]
    assert [(each["agent"], each["stage"]) for each in document["candidates"]] == [("fast", 0), ("slow", 1)]
    assert document["path"] == "medium"


@given(st.sampled_from([math.nan, math.inf, -math.inf]))
def test_nan_and_infinity_are_stored_as_null(odd):
    answer = make_answer(cost=odd, seconds=odd, difficulty=odd)
    body = to_json(to_document(Record(Query("?"), answer.trace), content=True))
    document = json.loads(body, parse_constant=pytest.fail)
    assert document["spend"]["cost_usd"] is None
    assert document["spend"]["seconds"] is None
    assert document["plan"]["estimate"]["difficulty"] is None


@given(records, st.sampled_from(["query", "answer", "token"]))
def test_without_content_a_document_has_no_text(record, place):
    phrase = "the heron stands in the reeds"
    answer = make_answer(text=f"{phrase} Answer: 4")
    winner = answer.trace.winner
    planted = {
        "query": Record(Query(phrase), record.trace),
        "answer": Record(record.query, replace(answer.trace, candidates=(replace(winner, answer=phrase),) * 2)),
        "token": Record(record.query, answer.trace),
    }[place]
    body = to_json(to_document(planted, content=False))
    assert "heron" not in body
    assert "reeds" not in body


def test_without_content_a_document_has_figures_and_lengths():
    document = to_document(make_record("What is 2 plus 2?"), content=False)
    assert document["query"] == {"text_characters": 17, "images": []}
    assert document["plan"]["estimate"]["contributions"] == (("f1", 12.0, 0.3),)
    candidate = document["candidates"][0]
    assert candidate["logprobs"][0] == -0.25
    assert candidate["control"] == [0]
    assert "tokens" not in candidate
    assert document["plan"]["assignment"]["cue"] == "keywords"
    assert document["answer"] == {"text_characters": 21, "final_characters": 1}


def test_without_content_a_document_has_the_form_of_the_answer():
    record = make_record("What is 2 plus 2?", text="Two. Answer: 4", started_at="2026-11-15T10:00:00.000+00:00")
    document = to_document(record, content=False)
    assert document["groups"] == [0, 0]  # both said 4
    assert document["candidates"][0]["scaffold"] == [1]  # "Answer:"; the first token is control
    assert document["candidates"][0]["control"] == [0]


def test_without_content_a_document_has_only_the_size_of_an_image():
    record = Record(Query("?", (Image("image/png", b"secret", "https://host/me.png"),)), make_answer().trace)
    image = to_document(record, content=False)["query"]["images"][0]
    assert image == {"media_type": "image/png", "bytes": 6}


def test_without_content_errors_are_stored_without_their_messages():
    """Whatever the message quotes, in whatever encoding: a tool's description, an argument, an earlier turn."""
    said = "p: HTTP 400 (too_long): bad input 'bXkgYXVudCBGcmllZGE='"
    record = make_record("Where does my aunt Frieda live?", error=said)
    calls = tuple(
        replace(call, error_summary=call.error and "p: HTTP 400 (too_long)") for call in record.trace.calls
    )
    record = replace(record, trace=replace(record.trace, calls=calls))
    assert to_document(record, content=False)["calls"][1]["error"] == "p: HTTP 400 (too_long)"
    assert to_document(record, content=True)["calls"][1]["error"] == said
    failed = Record(
        Query("?"),
        Unanswered(id="f", started_at="2026-11-15", profile="p"),
        error=said,
        error_summary="p: HTTP 400 (too_long)",
    )
    assert to_document(failed, content=False)["error"] == "p: HTTP 400 (too_long)"
    assert to_document(failed, content=True)["error"] == said


def test_without_content_the_fault_of_an_answer_is_not_described():
    fault = "'find_aunt_frieda' was called in place of 'f'"
    record = make_record(degradations=(fault, "one of three samples"))
    first, *others = record.trace.candidates
    trace = replace(record.trace, candidates=(replace(first, fault=fault), *others))
    record = replace(record, trace=trace)
    stored = to_document(record, content=False)["degradations"]
    assert stored == ["the answer does not have the requested form", "one of three samples"]
    assert to_document(record, content=True)["degradations"][0] == fault
