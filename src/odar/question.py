"""What can be asked at all."""

from __future__ import annotations

from collections.abc import Mapping

from odar.errors import InputError
from odar.types import Query

CHARACTERS_PER_TOKEN_AT_MOST = 8
"""No tokenizer packs ordinary text more tightly: a query above this times the context cannot fit."""


def check_text(text: str, *, in_conversation: bool = False) -> None:
    """Raise InputError where a text cannot be a question; a turn of a conversation may be empty or hold NUL."""
    if not isinstance(text, str):
        raise InputError(f"the question must be a string, not {type(text).__name__}")
    if not text.strip() and not in_conversation:
        raise InputError("the question is empty")
    if not in_conversation and (at := text.find("\0")) != -1:
        raise InputError(f"the question holds a NUL character at position {at}; is it a binary file?")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question holds an unpaired surrogate: it is not valid Unicode text") from None


def check_length(query: Query, contexts: Mapping[str, int]) -> None:
    """Raise InputError where a query cannot fit the context, in tokens, of one of these models."""
    length = sum(len(message.text) for message in query.messages)
    for model, context in contexts.items():
        if length > context * CHARACTERS_PER_TOKEN_AT_MOST:
            raise InputError(
                f"the question of {length:,} characters cannot fit the context of {model}, {context:,} tokens"
            )
