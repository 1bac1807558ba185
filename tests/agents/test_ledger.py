from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.agents.ledger import Ledger, Limits
from odar.catalogue import ModelCard, Price
from odar.errors import BudgetExceeded
from odar.providers.base import Message
from odar.types import Call, Step, Usage

PRICED = ModelCard("priced", "p", "priced", price=Price(1.0, 0.1, 10.0))
UNKNOWN = ModelCard("unknown", "p", "unknown")
MESSAGES = (Message("user", "hello"),)


def ledger(clock=lambda: 0.0, **limits) -> Ledger:
    return Ledger(Limits(**{"deadline_s": 100.0, **limits}), clock)


def call(usage: Usage, cost: float | None, samples: int = 1) -> Call:
    return Call(Step.SOLVE, "p", "priced", samples, usage, cost, 0.1)


def test_calls_are_counted_before_they_are_made():
    book = ledger(calls=6)
    assert book.affordable(PRICED, MESSAGES, 10, 1) == 1
    book.reserve(PRICED, MESSAGES, 10, 1)
    assert book.affordable(PRICED, MESSAGES, 10, 9) == 5
    book.reserve(PRICED, MESSAGES, 10, 5)
    with pytest.raises(BudgetExceeded, match="max_calls = 6 is used up"):
        book.affordable(PRICED, MESSAGES, 10, 1)


def test_money_is_held_back_at_the_most_it_could_be():
    book = ledger(cost_usd=0.0025)
    assert book.affordable(PRICED, MESSAGES, 100, 5) == 2  # 100 tokens out cost $0.001, and a little for the prompt
    held = book.reserve(PRICED, MESSAGES, 100, 2)
    with pytest.raises(BudgetExceeded, match="one call to priced can cost"):
        book.affordable(PRICED, MESSAGES, 100, 1)
    book.settle(held, call(Usage(5, 0, 10, 0), 0.000105, 2))
    assert book.affordable(PRICED, MESSAGES, 100, 5) == 2


def test_a_call_whose_cost_nobody_reported_stays_at_risk():
    book = ledger(cost_usd=0.0015)
    held = book.reserve(PRICED, MESSAGES, 100, 1)
    book.settle(held, call(Usage(), None))
    with pytest.raises(BudgetExceeded):
        book.affordable(PRICED, MESSAGES, 100, 1)


def test_an_unknown_price_cannot_keep_a_money_limit():
    with pytest.raises(BudgetExceeded, match="the price of unknown is unknown"):
        ledger(cost_usd=1.0).affordable(UNKNOWN, MESSAGES, 10, 1)
    assert ledger().affordable(UNKNOWN, MESSAGES, 10, 5) == 5


def test_a_free_model_fits_any_money_limit():
    free = ModelCard("free", "p", "free", price=Price(0.0, 0.0, 0.0))
    assert ledger(cost_usd=0.0).affordable(free, MESSAGES, 10, 5) == 5


def test_time_runs_out():
    now = [0.0]
    book = ledger(lambda: now[0])
    assert book.time_left() == 100
    now[0] = 100.0
    assert book.time_left() == 0
    with pytest.raises(BudgetExceeded, match="the deadline of 100 s has passed"):
        book.affordable(PRICED, MESSAGES, 10, 1)


def test_sums_are_unknown_when_a_part_is():
    book = ledger()
    for usage, cost in ((Usage(10, 2, 3, 1), 0.5), (Usage(1, 0, 1, 0), 0.25)):
        book.settle(book.reserve(PRICED, MESSAGES, 10, 1), call(usage, cost))
    assert book.spend().usage == Usage(11, 2, 4, 1)
    assert (book.spend().calls, book.spend().cost_usd) == (2, 0.75)
    book.settle(book.reserve(PRICED, MESSAGES, 10, 1), call(Usage(), None))
    assert (book.spend().cost_usd, book.spend().usage.input) == (None, None)


def test_a_reservation_can_be_given_back():
    book = ledger(calls=1)
    book.settle(book.reserve(PRICED, MESSAGES, 10, 1), None)
    assert book.affordable(PRICED, MESSAGES, 10, 1) == 1


@given(
    st.floats(0, 0.01),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 300), st.floats(0, 1), st.booleans()), max_size=12),
)
def test_no_sequence_of_calls_passes_the_money_limit(limit, wishes):
    """Whatever is asked for, and whatever share of the reservation each call really costs."""
    book = ledger(cost_usd=limit)
    true_cost = 0.0
    for samples, max_tokens, share, reported in wishes:
        try:
            count = book.affordable(PRICED, MESSAGES, max_tokens, samples)
        except BudgetExceeded:
            continue
        held = book.reserve(PRICED, MESSAGES, max_tokens, count)
        cost = held.cost_usd * share
        true_cost += cost
        book.settle(held, call(Usage(1, 0, 1, 0), cost if reported else None, count))
    assert true_cost <= limit + 1e-9


some = st.none() | st.integers(0, 9)


@given(some, some, st.integers(0, 9), st.none() | st.integers(0, 9))
def test_a_request_may_tighten_limits_and_never_loosen_them(own, asked, deadline, sooner):
    limits = Limits(deadline, own, own).tightened(sooner, asked, asked)
    for found, given_ in (
        (limits.calls, (own, asked)),
        (limits.cost_usd, (own, asked)),
        (limits.deadline_s, (deadline, sooner)),
    ):
        known = [each for each in given_ if each is not None]
        assert found in (known or [None])
        assert all(found <= each for each in known)
