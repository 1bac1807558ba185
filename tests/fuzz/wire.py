"""An answer over HTTP without HTTP: the bytes a server might send, through the code that reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from odar.errors import ProviderError
from odar.providers.base import Reply
from odar.providers.failures import Failures
from odar.providers.response import Collector, Response


class _Content:
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]  # an empty one would be the end

    async def readany(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


class _Raw:
    def __init__(self, chunks: Iterable[bytes], content_type: str) -> None:
        self.content = _Content(chunks)
        self.content_type = content_type


def streamed(chunks: Iterable[bytes], collector: Collector) -> tuple[Reply | ProviderError, str]:
    """What becomes of a stream, and the text that was handed over meanwhile. Anything else that is raised is a bug."""
    response = Response(_Raw(chunks, "text/event-stream"), Failures("p"), ())  # type: ignore[arg-type]
    pieces: list[str] = []
    return _ended(response.stream(collector, pieces.append)), "".join(pieces)


def whole(body: bytes, interpret: Callable[[Any], Reply]) -> Reply | ProviderError:
    """What becomes of a body."""
    response = Response(_Raw([body], "application/json"), Failures("p"), ())  # type: ignore[arg-type]
    return _ended(response.whole(interpret))


def _ended(reading: Any) -> Reply | ProviderError:
    try:
        reply: Reply = asyncio.run(reading)
    except ProviderError as error:
        assert str(error)
        assert "\n" not in str(error)
        return error
    return reply
