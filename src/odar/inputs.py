"""Checks of question texts and image files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odar.errors import InputError
from odar.files import user_path
from odar.types import Image, Query

MAX_CHARACTERS_PER_TOKEN = 8
"""Most characters per token in ordinary text, for any tokenizer; a longer question cannot fit the context."""
MAX_BYTES = 20 * 1024 * 1024
_SIGNATURES = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
)


def check_text(text: str, *, in_conversation: bool = False) -> None:
    """Raise InputError if a text cannot be a question; a turn of a conversation may be empty or contain NUL."""
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
    """Raise InputError if a query cannot fit the context, in tokens, of one of these models."""
    length = sum(len(message.text) for message in query.messages)
    for model, context in contexts.items():
        if length > context * MAX_CHARACTERS_PER_TOKEN:
            raise InputError(
                f"the question of {length:,} characters cannot fit the context of {model}, {context:,} tokens"
            )


def load_image(path: str | Path) -> Image:
    """Return an image file as part of a query.

    Raises:
        InputError: it is missing, too large, or not a PNG, JPEG, GIF or WebP file.
    """
    file = user_path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"image {str(path)!r} is larger than {MAX_BYTES // 1024**2} MB")
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"image {str(path)!r} cannot be read: {error.strerror or error}") from None
    return image_from_bytes(data, f"image {str(path)!r}")


def image_from_bytes(data: bytes, name: str) -> Image:
    """Return the bytes of an image as part of a query; `name` names it in the InputError for other formats."""
    for media_type, offset, signature in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return Image(media_type, data)
    raise InputError(f"{name} is not a PNG, JPEG, GIF or WebP file")
