"""Records as rows of figures."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.traces.record import Record
from odar.traces.writer import BINS, make_row
from odar.types import Call, Query, Step, Usage
from support.traces import make_answer


def row_of(answer, content: bool = False):
    return make_row(Record(Query("2 + 2?"), answer.trace), content=content)


def bin_of(difficulty: float) -> int:
    return row_of(make_answer(difficulty=difficulty))["bin"]


@pytest.mark.parametrize("hundredths", range(BINS))
def test_a_difficulty_in_hundredths_has_its_own_bin(hundredths):
    """In floating point 0.29·100 is a little less than 29, and 0.57·100 than 57."""
    assert bin_of(hundredths / BINS) == hundredths


@given(st.floats(0, 1))
def test_a_bin_begins_at_its_threshold(difficulty):
    found = bin_of(difficulty)
    assert found == 0 or difficulty >= found / BINS
    assert found == BINS - 1 or difficulty < (found + 1) / BINS


@pytest.mark.parametrize(
    ("difficulty", "where"), [(-0.5, 0), (1.0, BINS - 1), (7.0, BINS - 1), (float("nan"), None)]
)
def test_a_difficulty_out_of_range_is_clipped_and_nan_has_no_bin(difficulty, where):
    assert bin_of(difficulty) == where


def with_calls(*calls: Call):
    answer = make_answer()
    return dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, calls=calls))


def slow(cost: float | None, error: str | None = None, samples: int = 1) -> Call:
    return Call(Step.SOLVE, "slow", "p", "dear", samples, Usage(), cost, 1.0, error=error)


def test_calls_to_the_slow_agent_and_its_baseline():
    fast = Call(Step.ANSWER, "fast", "p", "cheap", 1, Usage(), 9.0, 1.0)
    figures = row_of(with_calls(fast, slow(0.25), slow(0.5, samples=4), slow(8.0, "HTTP 500")))
    assert (figures["slow_calls"], figures["baseline_usd"]) == (5, 0.003)
    assert row_of(with_calls(fast))["slow_calls"] == 0
    assert row_of(make_answer(baseline=None))["baseline_usd"] is None


def test_stages_and_answers_by_agent():
    answer = make_answer()
    fast, verifier = answer.trace.candidates
    candidates = (fast, dataclasses.replace(verifier, finish="length"))
    trace = dataclasses.replace(answer.trace, candidates=candidates)
    figures = row_of(dataclasses.replace(answer, trace=trace))
    assert figures["stages"] == "fast,slow:verify"
    assert figures["answers"] == "fast 1 0,slow 1 1"


def test_every_model_is_named_once_in_the_order_of_the_calls():
    figures = row_of(
        with_calls(slow(0.1), slow(0.1), Call(Step.ANSWER, "fast", "p", "cheap", 1, Usage(), 0.0, 1.0))
    )
    assert figures["models"] == ",dear,cheap,"


def test_texts_are_stored_only_with_content_and_cleaned():
    answer = make_answer(text="a\0b\ud800")
    assert row_of(answer)["answer"] is None
    assert row_of(answer, content=True)["answer"] == "a\ufffdb?"


def test_a_count_too_large_for_the_column_is_unknown():
    answer = make_answer()
    spend = dataclasses.replace(answer.trace.spend, usage=Usage(2**70, 0, 5))
    figures = row_of(dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, spend=spend)))
    assert (figures["tokens_in"], figures["tokens_out"]) == (None, 5)
