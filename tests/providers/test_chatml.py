from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import ProviderError
from odar.providers.base import Message
from odar.providers.chatml import SPECIAL, chatml, plain_pieces
from odar.types import Image

TURN, END = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")
TEXTS = st.lists(st.one_of(st.sampled_from(SPECIAL), st.text(max_size=5), st.just("<"))).map("".join)


@given(TEXTS)
def test_no_piece_holds_a_control_token_and_nothing_is_lost(text):
    pieces = plain_pieces(text)
    assert "".join(pieces) == text
    assert not any(token in piece for piece in pieces for token in SPECIAL)


@given(st.lists(TEXTS.filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)), min_size=1))
def test_there_are_as_many_turns_as_messages_whatever_they_say(texts):
    """Ids count as control tokens; pieces do not. One turn is the assistant's own, which is still open."""
    prompt = chatml([Message("system", "s"), *(Message("user", text) for text in texts)], "local")
    assert prompt.count(TURN) == len(texts) + 2
    assert prompt.count(END) == len(texts) + 1
    assert prompt[-2:] == [TURN, "assistant\n"]


def test_without_a_system_turn_the_model_gets_its_own():
    assert "SmolLM" in str(chatml([Message("user", "Hi")], "local")[2])
    assert "SmolLM" in str(chatml([], "local")[2])
    assert "SmolLM" not in str(chatml([Message("system", "Be brief.")], "local"))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("user", "a", (Image("image/png", b"x"),)), "cannot see images: choose a model that can"),
        (Message("tool", "42"), r"unknown role 'tool' \(known: assistant, system, user\)"),
        (Message("user", "a\ud800b"), "a user message is not valid Unicode"),
    ],
)
def test_what_it_cannot_read_is_refused_by_name(message, why):
    with pytest.raises(ProviderError, match=why) as raised:
        chatml([message], "mine")
    assert (raised.value.provider, raised.value.status, raised.value.retryable) == ("mine", 400, False)
