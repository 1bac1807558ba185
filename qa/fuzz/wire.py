"""An answer over HTTP without HTTP: the bytes a server might send, through the code that reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from odar.errors import ProviderError
from odar.providers.base import Reply
from odar.providers.errors import ErrorFactory
from odar.providers.response import Collector, Response


class _Answer:
    """Read piece by piece, as it was cut."""

    def __init__(self, pieces: Iterable[bytes], content_type: str) -> None:
        self._pieces = [piece for piece in pieces if piece]  # an empty one would be the end
        self.content_type = content_type

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def read_all(self) -> bytes:
        return b"".join(self._pieces)


def streamed(chunks: Iterable[bytes], collector: Collector) -> tuple[Reply | ProviderError, str]:
    """What becomes of a stream, and the text that was handed over meanwhile. Anything else that is raised is a bug."""
    response = Response(_Answer(chunks, "text/event-stream"), ErrorFactory("p"))  # type: ignore[arg-type]
    pieces: list[str] = []
    return _ended(response.stream(collector, lambda delta: pieces.append(delta.text))), "".join(pieces)


def whole(body: bytes, interpret: Callable[[Any], Reply]) -> Reply | ProviderError:
    """What becomes of a body."""
    response = Response(_Answer([body], "application/json"), ErrorFactory("p"))  # type: ignore[arg-type]
    return _ended(response.read(interpret))


def _ended(reading: Any) -> Reply | ProviderError:
    try:
        reply: Reply = asyncio.run(reading)
    except ProviderError as error:
        assert str(error)
        assert "\n" not in str(error)
        return error
    return reply
