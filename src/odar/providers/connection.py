"""One HTTP/1.1 connection to a model server: a request out, its answer in, and again.

The parsing is llhttp's, through httptools, which also reads the gateway's requests. What is left is little: no
redirects, no cookies, one server. aiohttp takes 2.7 times the CPU for a call (measured alone, not in the
gateway; docs/lab-notes.md).
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

_MAX_HEADER_BYTES = 64 * 2**10
"""Of one answer: its head, what is said before it with a status of 1xx, and its trailers."""
_MAX_HEADERS = 256
"""Of one answer likewise."""
_ENOUGH_BYTES = 2**18
"""Unread so far: then the server has to wait."""


class Broken(Exception):
    """The connection is gone, and the answer with it."""


class NotHttp(Exception):
    """What came is no HTTP answer."""


class _TooManyHeaders(Exception):
    """More headers, or more bytes of them, than an answer may have."""


class HttpResponse:
    """An answer as it comes in: its head, then its body piece by piece."""

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; a header that comes twice has its values joined by a comma."""
        self.whole = False
        self._connection = connection
        self._pieces: list[bytes] = []
        self._unread = 0
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        """Such as application/json; empty where the server does not say."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            Broken: there will be none.
            NotHttp: something else came.
        """
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._news()

    async def read(self) -> bytes:
        """What has come of the body since the last time; nothing at its end.

        Raises:
            Broken: its end will not come.
            NotHttp: something else came.
        """
        while not self._pieces:
            if self.whole:
                return b""
            if self._error is not None:
                raise self._error
            await self._news()
        pieces, self._pieces, self._unread = self._pieces, [], 0
        self._connection.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def all(self, limit: int | None = None) -> bytes:
        """The rest of the body; no more than the limit, where there is one."""
        body = bytearray()
        while (limit is None or len(body) < limit) and (piece := await self.read()):
            body += piece
        return bytes(body[:limit])

    def add(self, piece: bytes) -> bool:
        """A piece of the body; whether that is enough for the moment."""
        self._pieces.append(piece)
        self._unread += len(piece)
        self.wake()
        return self._unread > _ENOUGH_BYTES

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will come: the answer is whole, or there is an error."""
        if not self.whole and self._error is None:
            self.whole, self._error = error is None, error
            self.wake()

    def wake(self) -> None:
        """Let the reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class Connection(asyncio.Protocol):
    """A connection; one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: HttpResponse | None = None
        self._unparsed = 0
        """Bytes since the parser last reached a head or a body: an endless header, trailer or chunk extension."""
        self._header_bytes = 0
        self._header_count = 0
        self._headers: dict[str, str] = {}
        self._keep = True
        self._paused = False

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the last answer is whole, and the server stays."""
        done = (self._answer is None or self._answer.whole) and not self._paused  # paused: nobody read the answer
        return done and self._keep and self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> HttpResponse:
        """Send a request, head and body; its answer is to come."""
        self._answer = HttpResponse(self)
        self._unparsed = self._header_bytes = self._header_count = 0
        if self._transport is None:
            self._answer.end(Broken("the connection broke off"))
        else:
            self._transport.write(request)
        return self._answer

    def close(self) -> None:
        """Let go of the connection, and of an answer that is not whole."""
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """The reader has caught up."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # ── what asyncio calls ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        """Read on."""
        answer = self._answer
        if answer is None or answer.whole:  # nobody asked
            self.close()
            return
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(answer)
        if self._unparsed > _MAX_HEADER_BYTES:
            self._refuse(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, also of an answer whose length nobody gave."""
        self._transport = None
        if self._answer is not None and not self._answer.whole:
            headers, status = self._answer.headers, self._answer.status
            if status and exc is None and not {"content-length", "transfer-encoding"} & headers.keys():
                self._answer.end()
            else:
                what = "the answer broke off before it was whole" if status else "the connection broke off"
                self._answer.end(Broken(what))

    # ── what the parser calls ───────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        """An answer, perhaps one that nobody asked for, behind the one that was."""
        self._headers = {}
        if self._answer is not None and self._answer.whole:
            self._answer, self._keep = None, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer."""
        self._header_bytes += len(name) + len(value)
        self._header_count += 1
        if self._header_bytes > _MAX_HEADER_BYTES or self._header_count > _MAX_HEADERS:
            raise _TooManyHeaders
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """The head is whole; that of a 1xx is none yet."""
        status = self._parser.get_status_code()
        if status >= 200 and self._answer is not None:
            self._answer.headers, self._answer.status = self._headers, status
            self._headers = {}  # trailers are counted, and not kept
            self._unparsed = 0
            self._answer.wake()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unparsed = 0
        answer = self._answer
        if answer is None or not answer.status:
            return
        if answer.add(body) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was only to say that one will come."""
        if self._answer is not None and self._answer.status:
            self._keep = self._parser.should_keep_alive()
            self._unparsed = 0
            self._answer.end()

    def _refuse(self, answer: HttpResponse) -> None:
        answer.end(NotHttp("the answer is not HTTP"))
        self._keep = False
        self.close()
