from __future__ import annotations

import pytest

from odar.catalogue import Price
from odar.config import load_settings
from odar.prices import find_price, table_date

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("address", "model"),
    [
        (OPENAI, "gpt-4o-mini"),
        (OPENAI, "gpt-4.1-2025-04-14"),  # a dated name
        (OPENAI, "GPT-4.1"),
        ("https://api.anthropic.com", "claude-sonnet-4-5-20250929"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-opus-4.5"),
        ("https://house.openai.azure.com/openai/v1", "gpt-4.1"),  # Azure has the models of OpenAI
        ("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),
    ],
)
def test_models_of_many_providers_have_a_price(address, model):
    found = find_price("mine", address, model)
    assert found is not None and 0 < found.price.input < found.price.output < 100
    assert found.price.cached <= found.price.input and table_date() >= "2026-11-18"


@pytest.mark.parametrize(
    ("address", "model"),
    [("http://127.0.0.1:8000/v1", "gpt-4.1"), (OPENAI, "gpt-unheard-of")],
)
def test_an_unknown_address_or_model_has_no_price(address, model):
    assert find_price("mine", address, model) is None


def test_an_embedding_writes_nothing():
    assert find_price("mine", OPENAI, "text-embedding-3-small").price.output == 0


def test_a_price_that_changes_with_the_hour_is_the_highest_of_the_day():
    """DeepSeek charges twice as much from 1 to 4 and from 6 to 10 o'clock UTC."""
    price = find_price("mine", "https://api.deepseek.com/v1", "deepseek-v4-flash").price
    assert (price.input, price.output) == (0.3, 1.2)


def test_the_users_own_price_is_not_touched(tmp_path):
    (tmp_path / "odar.toml").write_text(
        """
        [models."gpt-4.1"]
        price = { input = 9.0, output = 11.0 }
        price_date = "2020-01-01"
        [models."gpt-4.1-mini"]
        price = { input = 9.0 }
        [models."gpt-4o"]
        provider = "openai"
        [providers.anthropic]
        base_url = "http://proxy.house"
        [providers.house]
        kind = "openai"
        base_url = "http://127.0.0.1:1/v1"
        """
    )
    settings = load_settings("tiny", config=tmp_path / "odar.toml", environ={})
    own = settings.card("gpt-4.1")
    assert (own.price, own.price_date) == (Price(9.0, 9.0, 11.0), "2020-01-01")
    part, table = settings.card("gpt-4.1-mini").price, find_price("mine", OPENAI, "gpt-4.1-mini").price
    assert (part.input, part.cached, part.output) == (9.0, table.cached, table.output)
    new = settings.card("gpt-4o")
    assert new.price == find_price("mine", OPENAI, "gpt-4o").price and new.price_date and new.context == 128_000
    assert settings.card("house/gpt-4o").price is None
    assert settings.card("claude-haiku-4-5").price.output == 5.0  # also behind a proxy
