"""HTTP over plain ASGI: read the request, send the response, notice that the client has disconnected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from odar.background import run_by_size
from odar.formats import dump_json
from odar.serving.errors import ApiError

Headers = Sequence[tuple[bytes, bytes]]
JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
EVENT_STREAM_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx buffers the stream
)
BODY_TIMEOUT_S = 30.0
"""Seconds that a client has to send its request."""
WRITE_TIMEOUT_S = 10.0
"""Seconds that a client has to read what was sent."""
WATCH_AFTER_S = 0.05
"""Seconds until a request is cancelled if its client disconnects."""
_MAX_DIGITS = 20
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of a client that can be logged."""


class ClientLeft(Exception):
    """The client has disconnected."""


class Exchange:
    """One request and its response; `default_id` is the request's id if the client sent none."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, default_id: str) -> None:
        self.headers: Headers = scope["headers"]
        client_id = next((value for name, value in self.headers if name == b"x-request-id"), b"")
        self.request_id = client_id.decode() if _REQUEST_ID.fullmatch(client_id) else default_id
        self.status = 0
        """The status that was sent; 0 before."""
        self.more_headers: Headers = ()
        self.aborted = False
        """Whether the connection was closed because the client was too slow."""
        self.receive = receive
        self._scope = scope
        self._send = send

    @contextmanager
    def cancel_on_disconnect(self) -> Iterator[None]:
        """Cancel the body when the client disconnects, and raise `ClientLeft` instead; for requests that are read.

        End the response after the body: the server reports a disconnect from then on. It starts to watch after
        `WATCH_AFTER_S`: a fast upstream has answered by then, and a task for each request would cost more than
        parsing the request.
        """
        left = False
        watchers: list[asyncio.Task[None]] = []
        task = asyncio.current_task()
        assert task is not None

        async def watch() -> None:
            nonlocal left
            while (await self.receive())["type"] != "http.disconnect":
                pass
            left = True
            task.cancel()

        loop = asyncio.get_running_loop()
        timer = loop.call_later(WATCH_AFTER_S, lambda: watchers.append(loop.create_task(watch())))
        try:
            yield
        except asyncio.CancelledError:
            if left and task.uncancel() == 0:
                raise ClientLeft from None
            raise
        finally:
            timer.cancel()
            while watchers:  # emptied, because the traceback of a task refers to this frame
                watchers.pop().cancel()

    def abort_after(self, seconds: float) -> asyncio.TimerHandle:
        """Disconnect a client that is still reading `WRITE_TIMEOUT_S` after this time."""
        return asyncio.get_running_loop().call_later(seconds + WRITE_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """Close the connection without sending buffered data."""
        self.aborted = True
        extension = self._scope.get("extensions", {}).get("odar")  # of `LimitedProtocol`
        if extension is not None:
            extension["abort"]("slow_reader")

    async def respond(self, status: int, body: bytes, headers: Headers = JSON_HEADERS) -> None:
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, status: int, headers: Headers) -> None:
        self.status = status
        headers = [*headers, *self.more_headers, (b"x-request-id", self.request_id.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of the body; wait while the client is slow to read."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


async def read_body(
    headers: Headers,
    receive: Receive,
    limit: int,
    hold: Callable[[int], None] = lambda size: None,
) -> bytes:
    """The body of a request; raises ApiError as soon as it is too large or too slow.

    `hold` is called with the number of bytes before they are read, all at once if the length is known.
    """
    # reject it by its declared length, or hold memory for that
    digits = next((value for name, value in headers if name == b"content-length"), b"0")
    digits = digits.lstrip(b"0")[:_MAX_DIGITS]  # Python reads no number of more than 4,300 digits
    length = int(digits) if digits.isdigit() else 0
    if length > limit:
        raise _too_large(limit)
    hold(length)
    # read it, in time and within the limit
    pieces: list[bytes] = []
    size = 0
    message = await receive()
    timeout = asyncio.timeout(BODY_TIMEOUT_S) if message.get("more_body") else nullcontext()
    try:
        async with timeout:
            while True:
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limit:
                    raise _too_large(limit)
                if size > length:  # of unknown length
                    hold(size - length)
                    length = size
                if not message.get("more_body"):
                    return await run_by_size(size, partial(b"".join, pieces))
                message = await receive()
    except TimeoutError:
        raise ApiError(408, f"the request did not arrive within {BODY_TIMEOUT_S:g} s", "body_timeout") from None


def _too_large(limit: int) -> ApiError:
    message = f"the request is larger than gateway.max_body_mb = {limit / 1e6:g} allows"
    return ApiError(413, message, "request_too_large")


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dump_json(content), status, headers, "application/json")
