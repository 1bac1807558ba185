"""The most tokens a conversation can be billed as: for reservations, which must never be too small (SPEC 6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odar.conversation import Message
from odar.errors import BudgetExceeded

IMAGE_TOKENS = 4096
"""More than any provider in the catalogue bills for one image."""
TURN_TOKENS = 16
"""Room for what a chat template puts around a turn."""
_ELSEWHERE = frozenset({"file_id", "file_url"})
"""Fields that name a file which is not part of the request."""


def most_tokens(messages: Iterable[Message]) -> int:
    """A token is at least one byte, so the bytes bound the tokens; images count by number.

    A turn that is sent as the client wrote it counts with all it holds, not only with what we understood of it.

    >>> most_tokens([Message("user", "hello")])
    21

    Raises:
        BudgetExceeded: the conversation refers to a file whose size nobody here knows.
    """
    return sum(TURN_TOKENS + max(_understood(message), _as_written(message)) for message in messages)


def writes_cache(messages: Iterable[Message]) -> bool:
    """Whether the client asks the provider to keep a part of the conversation in its cache."""
    return any(message.wire is not None and _mentions(message.wire.value, "cache_control") for message in messages)


def _understood(message: Message) -> int:
    calls = sum(len(str(call).encode()) for call in message.tool_calls)
    return len(message.text.encode()) + calls + IMAGE_TOKENS * len(message.images)


def _as_written(message: Message) -> int:
    return 0 if message.wire is None else _bytes(message.wire.value)


def _bytes(value: Any) -> int:
    """Bytes of everything in a JSON value that can be read as text, and IMAGE_TOKENS for each image in it."""
    match value:
        case str():
            return IMAGE_TOKENS if value.startswith("data:image/") else len(value.encode("utf-8", "replace"))
        case Mapping():
            if value.get("type") == "base64" and str(value.get("media_type", "")).startswith("image/"):
                return IMAGE_TOKENS
            if _ELSEWHERE & value.keys() or (value.get("type") == "document" and _by_address(value)):
                raise BudgetExceeded(
                    "max_cost cannot be kept: the conversation refers to a file whose size is not known here; "
                    "send its content instead"
                )
            if value.get("type") in ("image", "image_url") and _by_address(value):
                return IMAGE_TOKENS
            return sum(len(str(name)) + _bytes(each) for name, each in value.items())
        case list() | tuple():
            return sum(map(_bytes, value))
        case _:
            return len(str(value))


def _by_address(block: Mapping[str, Any]) -> bool:
    """Whether a block's content is to be fetched by the provider."""
    source = block.get("source") or block.get("image_url")
    address = source.get("url") if isinstance(source, Mapping) else source
    return isinstance(address, str) and not address.startswith("data:")


def _mentions(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return name in value or any(_mentions(each, name) for each in value.values())
    return isinstance(value, Sequence) and not isinstance(value, str) and any(_mentions(e, name) for e in value)
