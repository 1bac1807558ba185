"""The budget ledger: reservations, limits and worst-case cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.agents.agents import Agents
from odar.agents.ledger import (
    MAX_IMAGE_TOKENS,
    TURN_TOKENS,
    Ledger,
    token_upper_bound,
    worst_cost,
    writes_cache,
)
from odar.catalogue import ModelCard, Price
from odar.conversation import Image, Message, Wire
from odar.errors import BudgetExceeded
from odar.types import Call, Step, Usage
from support.engine import settings

AGENTS = Agents(settings())
PRICED = ModelCard("priced", "p", "priced", price=Price(1.0, 0.1, 10.0))
UNKNOWN = ModelCard("unknown", "p", "unknown")
MESSAGES = (Message("user", "hello"),)


def ledger(clock=lambda: 0.0, **limits) -> Ledger:
    return Ledger(**{"deadline_s": 100.0, **limits}, clock=clock)


def call(usage: Usage, cost: float | None, samples: int = 1) -> Call:
    return Call(Step.SOLVE, "slow", "p", "priced", samples, usage, cost, 0.1)


def test_calls_are_reserved_before_they_are_made():
    book = ledger(max_calls=6)
    assert book.affordable(PRICED, MESSAGES, 10, 1) == 1
    book.reserve(PRICED, MESSAGES, 10, 1)
    assert book.affordable(PRICED, MESSAGES, 10, 9) == 5
    book.reserve(PRICED, MESSAGES, 10, 5)
    with pytest.raises(BudgetExceeded, match="max_calls = 6 is used up"):
        book.affordable(PRICED, MESSAGES, 10, 1)


def test_a_reservation_holds_the_maximum_cost():
    book = ledger(max_cost_usd=0.0025)
    assert book.affordable(PRICED, MESSAGES, 100, 5) == 2  # 100 tokens out cost $0.001, and a little for the prompt
    held = book.reserve(PRICED, MESSAGES, 100, 2)
    with pytest.raises(BudgetExceeded, match="one call to priced can cost"):
        book.affordable(PRICED, MESSAGES, 100, 1)
    book.charge(held, call(Usage(5, 0, 10, 0), 0.000105, 2))
    assert book.affordable(PRICED, MESSAGES, 100, 5) == 2


def test_a_call_of_unknown_cost_keeps_its_reservation():
    book = ledger(max_cost_usd=0.0015)
    held = book.reserve(PRICED, MESSAGES, 100, 1)
    book.charge(held, call(Usage(), None))
    with pytest.raises(BudgetExceeded):
        book.affordable(PRICED, MESSAGES, 100, 1)


def test_an_unknown_price_is_rejected_under_a_cost_limit():
    with pytest.raises(BudgetExceeded, match="the price of unknown is unknown"):
        ledger(max_cost_usd=1.0).affordable(UNKNOWN, MESSAGES, 10, 1)
    assert ledger().affordable(UNKNOWN, MESSAGES, 10, 5) == 5


def test_a_free_model_fits_any_cost_limit():
    free = ModelCard("free", "p", "free", price=Price(0.0, 0.0, 0.0))
    assert ledger(max_cost_usd=0.0).affordable(free, MESSAGES, 10, 5) == 5


def test_no_call_is_affordable_after_the_deadline():
    now = [0.0]
    book = ledger(lambda: now[0])
    assert book.time_left() == 100
    now[0] = 100.0
    assert book.time_left() == 0
    with pytest.raises(BudgetExceeded, match="the deadline of 100 s has passed"):
        book.affordable(PRICED, MESSAGES, 10, 1)


def test_a_sum_with_an_unknown_part_is_unknown():
    book = ledger()
    for usage, cost in ((Usage(10, 2, 3, 1), 0.5), (Usage(1, 0, 1, 0), 0.25)):
        book.charge(book.reserve(PRICED, MESSAGES, 10, 1), call(usage, cost))
    assert book.spend().usage == Usage(11, 2, 4, 1)
    assert (book.spend().calls, book.spend().cost_usd) == (2, 0.75)
    book.charge(book.reserve(PRICED, MESSAGES, 10, 1), call(Usage(), None))
    assert (book.spend().cost_usd, book.spend().usage.input) == (None, None)


@given(
    st.floats(0, 0.01),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 300), st.floats(0, 1), st.booleans()), max_size=12),
)
def test_no_sequence_of_calls_exceeds_the_cost_limit(limit, wishes):
    """For any requests, and any share of the reservation that each call really costs."""
    book = ledger(max_cost_usd=limit)
    true_cost = 0.0
    for samples, max_tokens, share, reported in wishes:
        try:
            count = book.affordable(PRICED, MESSAGES, max_tokens, samples)
        except BudgetExceeded:
            continue
        held = book.reserve(PRICED, MESSAGES, max_tokens, count)
        cost = held[1] * share
        true_cost += cost
        book.charge(held, call(Usage(1, 0, 1, 0), cost if reported else None, count))
    assert true_cost <= limit + 1e-9


some = st.none() | st.integers(0, 9)


@given(some, some, st.integers(0, 9), st.none() | st.integers(0, 9))
def test_a_request_can_only_tighten_limits(own, asked, deadline, sooner):
    own_limits = replace(AGENTS.settings.limits, deadline_s=deadline, max_calls=own, max_cost_usd=own)
    AGENTS.settings = replace(AGENTS.settings, limits=own_limits)
    limits = AGENTS.ledger(asked, asked, sooner)
    for found, given_ in (
        (limits.max_calls, (own, asked)),
        (limits.max_cost_usd, (own, asked)),
        (limits.deadline_s, (deadline, sooner)),
    ):
        known = [each for each in given_ if each is not None]
        assert found in (known or [None])
        assert all(found <= each for each in known)


PRICED = ModelCard("priced", "p", "priced", price=Price(1.0, 0.1, 10.0))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=4),
    max_leaves=12,
)


def written(value, text="", **fields) -> Message:
    return Message("user", text, wire=Wire("anthropic", value), **fields)


@given(st.text(), json_values)
def test_every_string_of_an_original_turn_is_counted(text, value):
    size = token_upper_bound([written({"role": "user", "content": value}, text)])
    assert size >= TURN_TOKENS + len(text.encode("utf-8", "replace"))
    assert size >= sum(len(each.encode("utf-8", "replace")) for each in _strings(value))


def _strings(value):
    match value:
        case str():
            yield value
        case dict():
            for name, each in value.items():
                yield name
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)


def test_unknown_content_blocks_are_counted():
    """A search result block has text that is not in `Message.text`."""
    block = {"type": "search_result", "content": [{"type": "text", "text": "x" * 100_000}]}
    plain = worst_cost(PRICED, (Message("user", "Sum it up."),), 10)
    assert worst_cost(PRICED, (written({"content": [block]}, "Sum it up."),), 10) > plain + 0.1


def test_an_image_has_a_fixed_number_of_tokens():
    data = "A" * 1_000_000
    anthropic = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    openai = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    for block in (anthropic, openai):
        image = Image("image/png", b"...")
        assert (
            MAX_IMAGE_TOKENS
            < token_upper_bound([written({"content": [block]}, images=(image,))])
            < MAX_IMAGE_TOKENS + 200
        )


def test_an_image_by_url_is_counted():
    for source in (
        {"source": {"type": "url", "url": "https://x/y.png"}},
        {"image_url": {"url": "https://x/y.png"}},
    ):
        block = {"type": "image" if "source" in source else "image_url", **source}
        assert token_upper_bound([written({"content": [block]})]) > MAX_IMAGE_TOKENS


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "url", "url": "https://x/long.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ],
)
def test_a_file_by_reference_has_no_maximum_cost(block):
    with pytest.raises(BudgetExceeded, match="a file whose size is not known"):
        worst_cost(PRICED, (written({"content": [block]}),), 10)


def test_cache_writes_are_reserved_at_their_own_price():
    marked = written({"content": [{"type": "text", "text": "x" * 1000, "cache_control": {"type": "ephemeral"}}]})
    assert writes_cache([marked])
    assert not writes_cache([Message("user", "cache_control")])
    with pytest.raises(BudgetExceeded, match="what priced charges for cache_control is unknown"):
        worst_cost(PRICED, (marked,), 10)
    known = ModelCard("known", "p", "known", price=Price(1.0, 0.1, 10.0, 1.25, 2.0))
    assert worst_cost(known, (marked,), 0) >= 2.0 * 1000 / 1e6


def test_a_prompt_beyond_the_priced_length_has_no_maximum_cost():
    card = ModelCard("m", "p", "m", price=Price(1.0, 0.1, 10.0, up_to=1000))
    assert worst_cost(card, (Message("user", "x" * 900),), 10) > 0
    with pytest.raises(BudgetExceeded, match="holds for prompts of up to 1,000 tokens"):
        worst_cost(card, (Message("user", "x" * 1000),), 10)
