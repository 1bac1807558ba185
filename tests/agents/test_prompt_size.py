from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.agents.ledger import Ledger
from odar.agents.prompt_size import IMAGE_TOKENS, TURN_TOKENS, most_tokens, writes_cache
from odar.catalogue import ModelCard, Price
from odar.conversation import Image, Message, Wire
from odar.errors import BudgetExceeded

PRICED = ModelCard("priced", "p", "priced", price=Price(1.0, 0.1, 10.0))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=4),
    max_leaves=12,
)


def written(value, text="", **fields) -> Message:
    return Message("user", text, wire=Wire("anthropic", value), **fields)


@given(st.text(), json_values)
def test_a_turn_as_the_client_wrote_it_counts_with_all_it_holds(text, value):
    size = most_tokens([written({"role": "user", "content": value}, text)])
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


def test_what_we_do_not_understand_is_paid_for_all_the_same():
    """A search result block holds text that `Message.text` has nothing of."""
    block = {"type": "search_result", "content": [{"type": "text", "text": "x" * 100_000}]}
    plain = Ledger.worst_cost(PRICED, (Message("user", "Sum it up."),), 10)
    assert Ledger.worst_cost(PRICED, (written({"content": [block]}, "Sum it up."),), 10) > plain + 0.1


def test_an_image_counts_as_one_whatever_its_bytes():
    data = "A" * 1_000_000
    anthropic = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    openai = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    for block in (anthropic, openai):
        image = Image("image/png", b"...")
        assert IMAGE_TOKENS < most_tokens([written({"content": [block]}, images=(image,))]) < IMAGE_TOKENS + 200


def test_an_image_by_address_counts_too():
    for source in (
        {"source": {"type": "url", "url": "https://x/y.png"}},
        {"image_url": {"url": "https://x/y.png"}},
    ):
        block = {"type": "image" if "source" in source else "image_url", **source}
        assert most_tokens([written({"content": [block]})]) > IMAGE_TOKENS


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "url", "url": "https://x/long.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "file", "file": {"file_id": "file_1"}},
    ],
)
def test_a_file_that_is_elsewhere_cannot_be_bounded(block):
    with pytest.raises(BudgetExceeded, match="a file whose size is not known"):
        Ledger.worst_cost(PRICED, (written({"content": [block]}),), 10)


def test_writing_to_the_cache_is_reserved_at_its_own_price():
    marked = written({"content": [{"type": "text", "text": "x" * 1000, "cache_control": {"type": "ephemeral"}}]})
    assert writes_cache([marked])
    assert not writes_cache([Message("user", "cache_control")])
    with pytest.raises(BudgetExceeded, match="what priced charges for cache_control is unknown"):
        Ledger.worst_cost(PRICED, (marked,), 10)
    known = ModelCard("known", "p", "known", price=Price(1.0, 0.1, 10.0, 1.25, 2.0))
    assert Ledger.worst_cost(known, (marked,), 0) >= 2.0 * 1000 / 1e6


def test_a_prompt_beyond_its_prices_cannot_be_bounded():
    card = ModelCard("m", "p", "m", price=Price(1.0, 0.1, 10.0, up_to=1000))
    assert Ledger.worst_cost(card, (Message("user", "x" * 900),), 10) > 0
    with pytest.raises(BudgetExceeded, match="holds for prompts of up to 1,000 tokens"):
        Ledger.worst_cost(card, (Message("user", "x" * 1000),), 10)
