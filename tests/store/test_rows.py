"""Records as rows of figures."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.store.record import Record
from odar.store.writer import BINS, make_row
from odar.types import Call, Query, Step, Usage
from support.traces import make_answer


def row_of(answer, content: bool = False):
    return make_row(Record(Query("2 + 2?"), answer), content=content)


def bin_of(difficulty: float) -> int:
    return row_of(make_answer(difficulty=difficulty)).figures["bin"]


@pytest.mark.parametrize("hundredths", range(BINS))
def test_a_difficulty_of_some_hundredths_is_in_the_bin_of_that_number(hundredths):
    """0.29·100 is a little less than 29, and so is 0.57·100 than 57."""
    assert bin_of(hundredths / BINS) == hundredths


@given(st.floats(0, 1))
def test_a_bin_begins_where_a_threshold_would(difficulty):
    """The dashboard tries other thresholds on the histogram: its bins must be cut as `d < τ` cuts."""
    found = bin_of(difficulty)
    assert found == 0 or difficulty >= found / BINS
    assert found == BINS - 1 or difficulty < (found + 1) / BINS


@pytest.mark.parametrize(
    ("difficulty", "where"), [(-0.5, 0), (1.0, BINS - 1), (7.0, BINS - 1), (float("nan"), None)]
)
def test_a_difficulty_that_is_none(difficulty, where):
    assert bin_of(difficulty) == where


def test_the_posterior_counts_where_there_is_one():
    answer = make_answer(difficulty=0.2)
    decision = dataclasses.replace(answer.trace.decision, posterior=0.81)
    answer = dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, decision=decision))
    figures = row_of(answer).figures
    assert (figures["difficulty"], figures["bin"]) == (0.81, 81)


def with_calls(*calls: Call):
    answer = make_answer()
    return dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, calls=calls))


def slow(cost: float | None, error: str | None = None, samples: int = 1) -> Call:
    return Call(Step.SOLVE, "p", "dear", samples, Usage(), cost, 1.0, error=error)


def test_what_the_slow_agent_cost():
    fast = Call(Step.ANSWER, "p", "cheap", 1, Usage(), 9.0, 1.0)
    figures = row_of(with_calls(fast, slow(0.25), slow(0.5, samples=4), slow(8.0, "HTTP 500"))).figures
    assert (figures["slow_calls"], figures["slow_cost_usd"]) == (5, 0.75)
    unknown = row_of(with_calls(slow(0.25), slow(None))).figures
    assert (unknown["slow_calls"], unknown["slow_cost_usd"]) == (2, None)
    none = row_of(with_calls(fast)).figures
    assert (none["slow_calls"], none["slow_cost_usd"]) == (0, 0.0)


def test_every_model_is_named_once_in_the_order_of_the_bill():
    figures = row_of(
        with_calls(slow(0.1), slow(0.1), Call(Step.ANSWER, "p", "cheap", 1, Usage(), 0.0, 1.0))
    ).figures
    assert figures["models"] == ",dear,cheap,"


def test_texts_are_kept_only_with_content_and_as_databases_take_them():
    answer = dataclasses.replace(make_answer(), answer="a\0b\ud800")
    assert row_of(answer).document["answer"] is None
    assert row_of(answer, content=True).document["answer"] == "a\ufffdb?"
    assert row_of(answer).figures["answer_characters"] == 4


def test_a_count_that_no_column_holds_is_unknown():
    answer = make_answer()
    spend = dataclasses.replace(answer.trace.spend, usage=Usage(2**70, 0, 5))
    figures = row_of(dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, spend=spend))).figures
    assert (figures["tokens_in"], figures["tokens_out"]) == (None, 5)
