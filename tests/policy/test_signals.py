"""Signals of a fast answer and their ranks within the model's own answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ToolCall
from odar.policy.signals import (
    LEVELS,
    AnswerKind,
    AnswerSignals,
    QuantileTables,
    answer_kind,
    answer_logprob,
    answer_signals,
)
from odar.types import Candidate, Step, Token

finite = st.floats(-1e6, 1e6)


def tokens(*pairs: tuple[str, float | None]) -> tuple[Token, ...]:
    return tuple(Token(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("text", "answer", "stated", "kind"),
    [
        ("Paris", "Paris", True, AnswerKind.DIRECT),
        ("The answer is (C).", "C", True, AnswerKind.DIRECT),
        ("She has 16 - 3 - 4 = 9 eggs left and sells each for $2. Answer: 18", "18", True, AnswerKind.REASONED),
        ("word " * 40, "word " * 40, True, AnswerKind.FREE_TEXT),
        ("word " * 40, "word " * 40, False, AnswerKind.REASONED),
        ("No.", "No.", False, AnswerKind.DIRECT),
        ("", "", False, AnswerKind.REASONED),
    ],
)
def test_the_kind_of_an_answer(text, answer, stated, kind):
    assert answer_kind(text, answer, stated) is kind


def test_the_last_occurrence_of_the_answer_is_scored():
    found = tokens(("18", -3.0), (" eggs.", -0.1), (" Answer:", -0.2), (" 1", -0.4), ("8", -0.5), ("\n", -9.0))
    assert answer_logprob(found, "18") == pytest.approx(-0.9)


def test_an_answer_without_its_tokens_has_no_probability():
    assert answer_logprob(tokens(("Answer: ½", -0.1)), "1/2") is None
    assert answer_logprob(tokens(("Answer:", -0.1), (" 7", None)), "7") is None
    assert answer_logprob((), "7") is None
    assert answer_logprob(tokens(("x", -0.1)), "") is None


def test_control_tokens_and_missing_ones_do_not_count():
    said = (*tokens((" 7", -0.5), ("!", None)), Token("<eos>", -8.0, control=True))
    found = answer_signals(Candidate(Step.ANSWER, "fast", "m", " 7!", "7", said))
    assert (found.mean_logprob, found.answer_logprob, found.length) == (-0.5, -0.5, 3.0)


@pytest.mark.parametrize(
    ("text", "finish", "stated", "finished"),
    [
        ("So it is 7. " * 9, "length", True, False),
        ("hello", "length", True, True),  # a client may cut a chat short
        ("Let us", "length", False, False),
        ("No.", "stop", False, True),
        ("", "stop", False, False),
    ],
)
def test_an_answer_that_was_cut_off_or_is_empty_is_unfinished(text, finish, stated, finished):
    candidate = Candidate(
        Step.ANSWER, "fast", "m", text, "7" if "7" in text else text, finish=finish, stated=stated
    )
    assert answer_signals(candidate).finished is finished


def test_a_model_without_log_probs_has_length_and_stated():
    found = answer_signals(Candidate(Step.ANSWER, "fast", "m", "Answer: 7", "7"))
    assert (found.mean_logprob, found.answer_logprob, found.length, found.stated) == (None, None, 9.0, True)


@given(st.lists(finite, min_size=30, max_size=200), finite, finite)
def test_ranks_are_monotone_and_inside_the_open_interval(values, one, other):
    tables = QuantileTables.fit({("direct", "length"): values})
    low, high = sorted((one, other))
    ranks = [tables.rank("direct", "length", value) for value in (low, high)]
    assert 0 < ranks[0] <= ranks[1] < 1


def test_a_common_value_has_the_rank_of_its_middle():
    tables = QuantileTables.fit({("direct", "answer_logprob"): [-1.0] * 20 + [0.0] * 80})
    assert tables.rank("direct", "answer_logprob", 0.0) == pytest.approx(0.6, abs=0.02)


def test_few_answers_give_no_table_and_unfinished_ones_are_excluded():
    answer = AnswerSignals(AnswerKind.REASONED, True, 100.0, -0.2, -0.1)
    silent = AnswerSignals(AnswerKind.REASONED, True, 9000.0, -0.2, finished=False)
    assert not QuantileTables.of_answers([answer] * 29 + [silent] * 50).tables
    tables = QuantileTables.of_answers([answer] * 30 + [silent] * 50)
    assert tables.tables["reasoned", "length"].max() == 100
    assert tables.rank("direct", "length", 5.0) is None


def test_own_tables_come_before_shipped_ones():
    shipped = QuantileTables.fit({("direct", "length"): range(100), ("direct", "prior"): range(100)})
    own = QuantileTables.fit({("direct", "length"): range(1000, 1100)}).with_fallback(shipped)
    assert own.rank("direct", "length", 1050.0) == pytest.approx(0.5, abs=0.02)
    assert own.rank("direct", "prior", 50.0) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("table", [[1.0], [float("nan")] * LEVELS, list(range(LEVELS, 0, -1)), ["a"] * LEVELS])
def test_an_invalid_table_is_rejected(table):
    with pytest.raises(ValueError):
        QuantileTables.from_dict({"direct": {"length": table}})


@pytest.mark.parametrize("size", [2, 200])
def test_a_tool_call_is_judged_by_its_mean_logprob(size):
    call = ToolCall("1", "write", "word " * size)
    parts = tokens(*[(f"{part} ", -0.02) for part in str(call).split()])
    found = answer_signals(Candidate(Step.ANSWER, "fast", "m", "", str(call), parts, tool_calls=(call,)))
    assert found.answer_logprob is None
    assert found.mean_logprob == pytest.approx(-0.02)
