"""Questions as callers write them: texts, messages, images; and their checks."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odar.conversation import Message
from odar.errors import InputError
from odar.files import read_errors, user_path
from odar.types import Image, Query

Question = str | Query | Sequence[Mapping[str, Any] | Message]
"""A text, messages as OpenAI's API has them, or a whole query."""
ImageSource = Image | str | os.PathLike[str]
"""An image, a file, or a URL: http:, https: or data:."""
_ROLES = ("system", "developer", "user", "assistant")

MAX_CHARACTERS_PER_TOKEN = 8
"""Most characters per token in ordinary text, for any tokenizer; a longer question cannot fit the context."""
MAX_BYTES = 20 * 1024 * 1024
_SIGNATURES = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
)


def make_query(question: Question, images: Iterable[ImageSource], contexts: Mapping[str, int]) -> Query:
    """A question with its images; raise InputError if it is invalid or cannot fit these contexts, in tokens."""
    query = to_query(question, images)
    check_text(query.text, in_conversation=bool(query.turns))
    length = sum(len(message.text) for message in query.messages)
    for model, context in contexts.items():
        if length > context * MAX_CHARACTERS_PER_TOKEN:
            raise InputError(
                f"the question of {length:,} characters cannot fit the context of {model}, {context:,} tokens; "
                f'name a model with a longer context, or raise that of a local one ([models."{model}"] context)'
            )
    return query


def to_query(question: Question, images: Iterable[ImageSource] = ()) -> Query:
    """A question with its images as a query.

    >>> to_query([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]).text
    'Hello'
    """
    if isinstance(question, Query):
        query = question
    elif isinstance(question, str):
        query = Query(question)
    elif isinstance(question, list | tuple):
        query = Query.from_messages(tuple(_to_message(each, i) for i, each in enumerate(question)))
        if not any(turn.role == "user" for turn in query.turns):
            raise InputError("the messages hold no question: none has the role user")
    else:
        raise InputError(f"the question must be a string or a list of messages, not {type(question).__name__}")
    if isinstance(images, str | bytes | os.PathLike | Image):
        raise InputError(f"images must be a list, such as [{images!r:.80}]")
    if not (added := tuple(map(_to_image, images))):
        return query
    if query.turns:  # the images belong to the last user turn
        turns = list(query.turns)
        last = max(i for i, turn in enumerate(turns) if turn.role == "user")
        turns[last] = dataclasses.replace(turns[last], images=(*turns[last].images, *added))
        query = dataclasses.replace(query, turns=tuple(turns))
    return dataclasses.replace(query, images=(*query.images, *added))


def _to_message(message: Mapping[str, Any] | Message, index: int) -> Message:
    """Convert a message of OpenAI's API; tool calls are only for the gateway."""
    if isinstance(message, Message):
        return message
    where = f"message {index}"
    if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
        raise InputError(f"{where} must be an object with a role ({', '.join(_ROLES)}) and content")
    role = "system" if message["role"] == "developer" else message["role"]
    content = message.get("content")
    if isinstance(content, str):
        return Message(role, content)
    if not isinstance(content, list):
        raise InputError(f"the content of {where} must be a string or a list of parts")
    texts: list[str] = []
    images: list[Image] = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                images.append(image_from_url(url))
            case _:
                raise InputError(f"the content of {where} has a part that is neither text nor image_url")
    return Message(role, "\n".join(texts), tuple(images))


def _to_image(source: ImageSource) -> Image:
    if isinstance(source, Image):
        return source
    if isinstance(source, str) and source.startswith(("http://", "https://", "data:")):
        return image_from_url(source)
    if isinstance(source, str | os.PathLike):
        return load_image(source)
    raise InputError(f"an image must be a file name, a URL or an odar.Image, not {type(source).__name__}")


def image_from_url(url: str) -> Image:
    """An image by its http(s) URL, or the image in a data: URL.

    Raises:
        InputError: it is neither, or its base64 is not valid.
    """
    if url.startswith(("http://", "https://")):
        return Image("image/*", url=url)
    head, comma, data = url.partition(",")
    media_type, _, encoding = head.removeprefix("data:").partition(";")
    if not (url.startswith("data:image/") and comma and encoding.endswith("base64")):
        raise InputError("an image must be an http(s) URL or data:image/…;base64,…")
    return Image(media_type, decode_base64(data))


def decode_base64(data: str) -> bytes:
    """The bytes of an image; raise InputError if this is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the image is not valid base64") from None


def check_text(text: str, *, in_conversation: bool = False) -> None:
    """Raise InputError if a text cannot be a question; a turn of a conversation may be empty or contain NUL."""
    if not isinstance(text, str):
        raise InputError(f"the question must be a string, not {type(text).__name__}")
    if not text.strip() and not in_conversation:
        raise InputError("the question is empty")
    if not in_conversation and (at := text.find("\0")) != -1:
        raise InputError(f"the question holds a NUL character at position {at}; is it a binary file?")
    if text.isascii():  # known without looking at it; to encode 30 MB takes 50 ms
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question holds an unpaired surrogate: it is not valid Unicode text") from None


def load_image(path: str | os.PathLike[str]) -> Image:
    """An image file as part of a query.

    Raises:
        InputError: it is missing, too large, or not a PNG, JPEG, GIF or WebP file.
    """
    file = user_path(path)
    name = f"image {str(path)!r}"
    with read_errors(name):
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{name} is larger than {MAX_BYTES // 1024**2} MB")
        data = file.read_bytes()
    return image_from_bytes(data, name)


def image_from_bytes(data: bytes, name: str) -> Image:
    """The bytes of an image as part of a query; `name` names it in the InputError for other formats."""
    for media_type, offset, signature in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return Image(media_type, data)
    raise InputError(f"{name} is not a PNG, JPEG, GIF or WebP file")
