from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.catalogue import Price
from odar.config import load_settings
from odar.errors import SettingsError, UnknownName
from odar.policy.experts import Expert
from odar.types import Usage

tokens = st.integers(0, 10**9)


def test_cached_input_has_its_own_price_and_reasoning_is_output():
    price = Price(input=2.0, cached=0.5, output=8.0)
    assert price.cost(Usage(1_000_000, 250_000, 100_000, 90_000)) == pytest.approx(0.75 * 2 + 0.25 * 0.5 + 0.1 * 8)


def test_cache_writes_are_priced_by_their_lifetime():
    price = Price(3.0, 0.3, 15.0, written=3.75, written_1h=6.0)
    usage = Usage(100, 20, 10, 0, written=50, written_1h=30)
    assert price.cost(usage) == pytest.approx((30 * 3 + 20 * 0.3 + 20 * 3.75 + 30 * 6 + 10 * 15) / 1e6)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(input=5),
        Usage(output=5),
        Usage(100, 0, 10, 0, written=50, written_1h=0),  # price unknown
        Usage(100, 0, 10, 0, written=50, written_1h=50),
        Usage(100, 60, 10, 0, written=50, written_1h=0),  # more parts than the whole has
        Usage(10, 20, 10, 0),
        Usage(10, 0, 10, 0, unpriced=True),
        Usage(5000, 0, 10, 0),  # longer than the prices hold for
    ],
)
def test_usage_without_a_known_price_has_an_unknown_cost(usage):
    assert Price(1.0, 0.1, 4.0, up_to=4000).cost(usage) is None
    assert Price(0.0, 0.0, 0.0).cost(usage) == 0.0


def test_a_cache_write_of_unknown_lifetime_has_an_unknown_cost():
    usage = Usage(100, 0, 10, 0, written=50, written_1h=None)
    assert Price(3.0, 0.3, 15.0, 3.75, 6.0).cost(usage) is None


@given(tokens, tokens, tokens, tokens, tokens, tokens)
def test_no_cost_is_negative(a, b, c, d, e, f):
    cost = Price(1.25, 0.125, 10.0, 1.5, 2.5).cost(Usage(a, b, c, d, e, f))
    assert cost is None or cost >= 0


@given(tokens, tokens, tokens, tokens)
def test_the_cost_of_two_calls_is_the_sum_of_their_costs(a, b, c, d):
    price = Price(1.25, 0.125, 10.0)
    one, two = Usage(a + c, c, b, 0), Usage(b + d, d, a, 0)
    assert price.cost(one + two) == pytest.approx(price.cost(one) + price.cost(two))


def test_the_shipped_catalogue_is_consistent():
    settings = load_settings("tiny", environ={})
    families = {"openai", "anthropic", "deepseek", "vllm-fast", "qwen", "google", "mistral"}
    cards = [settings.card(name) for name in settings.models]
    assert families <= {card.provider for card in cards}
    for card in cards:
        assert card.provider in settings.providers, card.name
        assert card.price in (None, Price(0.0, 0.0, 0.0)) or card.price_date, card.name
        assert set(card.scores) <= set(Expert), card.name
        if card.price is not None and not card.price.free:
            price = card.price
            assert price.cached <= price.input <= (price.written or price.input) <= (price.written_1h or 1e9)
        if card.provider == "anthropic":
            assert card.price.written == pytest.approx(1.25 * card.price.input), card.name
            assert card.price.written_1h == pytest.approx(2 * card.price.input), card.name
            assert not card.logprobs
            assert not card.n
    assert settings.card("gpt-5.1").extra == {"reasoning_effort": "none"}  # or there would be no log-probs


@pytest.mark.parametrize(
    ("model", "provider", "logprobs"),
    [
        ("gpt-4o-mini-2024-07-18", "openai", True),
        ("claude-3-haiku-20240307", "anthropic", False),
        ("gemini-2.0-flash-lite", "google", True),
    ],
)
def test_a_vendors_model_needs_no_provider_in_its_name(model, provider, logprobs):
    settings = load_settings("tiny", environ={})
    short, full = settings.card(model), settings.card(f"{provider}/{model}")
    assert (short.provider, short.id, short.logprobs) == (provider, model, logprobs)
    assert short.price == full.price is not None
    assert short.price_date


def test_a_name_that_no_vendor_has_is_unknown():
    with pytest.raises(UnknownName):
        load_settings("tiny", environ={}).card("qwen2.5-72b-instruct")  # together and others sell it


def card_at(name, effort):
    return load_settings("tiny", environ={}).card(f"{name}@{effort}")


def test_a_model_at_an_effort_is_a_model_of_its_own():
    plain, high = load_settings("tiny", environ={}).card("gpt-5.4"), card_at("gpt-5.4", "high")
    assert (high.name, high.id, high.price, high.effort) == ("gpt-5.4@high", "gpt-5.4", plain.price, "high")
    # OpenAI has log-probabilities and a temperature only without reasoning
    assert plain.logprobs and not high.logprobs and {"temperature", "top_p"} <= set(high.drop)
    assert "reasoning_effort" not in high.extra  # sent as `Request.effort`
    assert card_at("gpt-5.4", "none").logprobs
    assert card_at("gpt-4.1", "high").scores == {}  # measured without it


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("claude-opus-5-5", "high", {"type": "adaptive"}),
        ("claude-sonnet-5-5", "none", {"type": "disabled"}),
        ("anthropic/claude-next", "low", {"type": "adaptive"}),
        ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 2400}),
        ("claude-haiku-4-5", "none", None),
    ],
)
def test_an_effort_is_translated_for_anthropic(model, effort, thinking):
    assert card_at(model, effort).extra.get("thinking") == thinking


@pytest.mark.parametrize(
    ("model", "effort", "reason"),
    [("smollm2-135m", "low", "in this process have no"), ("claude-opus-5-5", "minimal", "it has low, medium")],
)
def test_an_effort_that_does_not_exist_is_refused(model, effort, reason):
    with pytest.raises(SettingsError, match=reason):
        card_at(model, effort)
