from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.config import load_settings
from odar.dispatch.catalogue import FREE, Price
from odar.dispatch.experts import Expert
from odar.types import Usage

tokens = st.integers(0, 10**9)


def test_cached_input_has_its_own_price_and_reasoning_is_output():
    price = Price(input=2.0, cached=0.5, output=8.0)
    assert price.cost(Usage(1_000_000, 250_000, 100_000, 90_000)) == pytest.approx(0.75 * 2 + 0.25 * 0.5 + 0.1 * 8)


@pytest.mark.parametrize("usage", [Usage(), Usage(input=5), Usage(output=5)])
def test_unknown_tokens_cost_an_unknown_amount(usage):
    assert Price(1.0, 1.0, 1.0).cost(usage) is None
    assert FREE.cost(usage) == 0.0


@given(tokens, tokens, tokens, tokens)
def test_the_bill_of_two_calls_is_the_sum_of_their_bills(a, b, c, d):
    price = Price(1.25, 0.125, 10.0)
    one, two = Usage(a + c, c, b, 0), Usage(b + d, d, a, 0)
    assert price.cost(one + two) == pytest.approx(price.cost(one) + price.cost(two))


def test_the_shipped_catalogue_holds_together():
    settings = load_settings("embedded", environ={})
    families = {"openai", "anthropic", "deepseek", "vllm-fast", "qwen", "google", "mistral"}
    cards = [settings.card(name) for name in settings.models]
    assert families <= {card.provider for card in cards}
    for card in cards:
        assert card.provider in settings.providers, card.name
        assert card.price in (None, FREE) or card.price_date, card.name
        assert set(card.scores) <= set(Expert), card.name
        if card.provider == "anthropic":
            assert not card.logprobs
            assert not card.n
    assert settings.card("gpt-5.1").extra == {"reasoning_effort": "none"}  # or there would be no log-probs
