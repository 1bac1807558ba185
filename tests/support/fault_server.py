"""A model server on localhost with scripted behaviour, correct or faulty.

    async with FaultServer() as server:
        server.enqueue(status(429, retry_after=0.01), reset())   # the next two requests
        server.behave(ok("Answer: 4"))                           # every request after that
        provider = OpenAIProvider("test", server.url)
        ...
        assert server.requests[0].json["model"] == "m"

It writes HTTP by hand over asyncio streams, so that it can also violate it: resets, bodies cut short, bytes
that trickle. A behaviour is any `async def (exchange: Exchange) -> None`. It is cancelled when the client
goes away.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from support.payloads import (
    LogprobEntry,
    chat_events,
    chat_payload,
    logprob_entries,
    message_events,
    message_payload,
)


@dataclass
class Exchange:
    """One request, and the means to answer it."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    _writer: asyncio.StreamWriter = field(repr=False)
    keep_alive: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body or "{}")

    @property
    def client(self) -> int:
        """The port it came from."""
        port: int = self._writer.get_extra_info("peername")[1]
        return port

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, content_type: str, length: int | None, **headers: str) -> None:
        """The status line and headers; without a length, the end of the body is the end of the connection."""
        lines = [f"HTTP/1.1 {status} Status", f"Content-Type: {content_type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if length is None:
            self.keep_alive = False
            lines.append("Connection: close")
        else:
            lines.append(f"Content-Length: {length}")
        await self.write("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes, status: int = 200, content_type: str = "application/json", **headers: str):
        await self.head(status, content_type, len(data), **headers)
        await self.write(data)

    async def send_json(self, payload: Any, status: int = 200, **headers: str) -> None:
        await self.send(json.dumps(payload).encode(), status, **headers)

    async def send_events(self, payloads: Sequence[Any], *, done: bool = True, delay_s: float = 0.0) -> None:
        """A stream in chunked encoding; strings are sent as they are, anything else as JSON."""
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8"]
        await self.write("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())
        for payload in [*payloads, *(["[DONE]"] if done else [])]:
            data = payload if isinstance(payload, str) else json.dumps(payload)
            await self.chunk(f"data: {data}\n\n".encode())
            await asyncio.sleep(delay_s)
        await self.chunk(b"")

    async def chunk(self, data: bytes) -> None:
        await self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def reset(self) -> None:
        """Break the connection off at once."""
        self.keep_alive = False
        self._writer.transport.abort()


Behaviour = Callable[[Exchange], Awaitable[None]]


class FaultServer:
    """Record requests; answer with the enqueued behaviours, then with the default one."""

    def __init__(self) -> None:
        self.requests: list[Exchange] = []
        self.connections = 0
        """Connections accepted so far."""
        self.open_connections = 0
        self.busy = 0
        """Requests being answered now."""
        self.most_busy = 0
        """The most that were answered at the same time."""
        self.clients: set[int] = set()
        """Ports at the other end of those requests."""
        self._queue: deque[Behaviour] = deque()
        self._default: Behaviour = ok()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FaultServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def origin(self) -> str:
        """http://127.0.0.1:port"""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def url(self) -> str:
        """The base_url of an OpenAI-compatible provider."""
        return self.origin + "/v1"

    @property
    def tasks(self) -> frozenset[asyncio.Task[Any]]:
        """The server's own tasks, for tests that look for left-over ones."""
        return frozenset(self._tasks)

    def enqueue(self, *behaviours: Behaviour) -> None:
        """Behave like this for the next requests, one each."""
        self._queue.extend(behaviours)

    def behave(self, behaviour: Behaviour) -> None:
        """Behave like this whenever nothing is enqueued."""
        self._default = behaviour

    async def until_idle(self, timeout_s: float = 60.0, *, connections: int | None = None) -> None:
        """Wait until no request is being answered (and so many connections are open), or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while self.busy or (connections is not None and self.open_connections != connections):
                await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open_connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while (exchange := await _read_request(reader, writer)) is not None:
                    await self._answer(exchange, reader)
                    if not exchange.keep_alive:
                        break
        finally:
            self.open_connections -= 1
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        self.requests.append(exchange)
        behaviour = self._queue.popleft() if self._queue else self._default
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        self.clients.add(exchange.client)
        answer = asyncio.ensure_future(behaviour(exchange))
        gone = asyncio.ensure_future(reader.read(1))  # no pipelining: only the end can come now
        self._tasks |= {answer, gone}
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                exchange.keep_alive = False
        finally:
            self.busy -= 1
            self.clients.discard(exchange.client)
            for task in (answer, gone):
                task.cancel()
            results = await asyncio.gather(answer, gone, return_exceptions=True)
            self._tasks -= {answer, gone}
        if isinstance(results[0], Exception) and not isinstance(results[0], ConnectionError):
            raise results[0]  # a bug in a behaviour


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
    try:
        first = await reader.readexactly(1)
        if not first.isalpha():  # TLS
            writer.write(b"HTTP/1.1 400 Plain HTTP spoken here\r\n\r\n")
            return None
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = request_line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Exchange(method, path, headers, body, writer)


# ---------------------------------------------------------------- behaviours that work


def ok(
    text: str = "Answer: 4",
    tokens: list[LogprobEntry] | None = None,
    *,
    delay_s: float = 0.0,
    usage: Any = ...,
) -> Behaviour:
    """One choice, however many were asked for; streamed if asked for."""

    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(delay_s)
        if exchange.json.get("stream"):
            await exchange.send_events(chat_events(text, tokens))
        else:
            await exchange.send_json(chat_payload(text, tokens=tokens, usage=usage))

    return behave


ignores_n = ok


def echo_n(text: str = "Answer: 4", *, delay_s: float = 0.0) -> Behaviour:
    """As many choices as were asked for."""

    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(delay_s)
        await exchange.send_json(chat_payload(*[text] * exchange.json.get("n", 1)))

    return behave


def missing_logprobs(share: float, text: str = "one two three four five", seed: int = 0) -> Behaviour:
    """Null instead of a log-probability on this share of the tokens, rounded to whole ones."""
    entries = logprob_entries(text)
    for index in random.Random(seed).sample(range(len(entries)), round(share * len(entries))):
        entries[index]["logprob"] = None
    return ok(text, entries)


def no_logprobs(text: str = "Answer: 4") -> Behaviour:
    """Reply without log-probabilities."""
    payload = chat_payload(text)
    del payload["choices"][0]["logprobs"]
    return answer(payload)


def models(count: int) -> Behaviour:
    """A list of models, for `check`."""
    return answer({"object": "list", "data": [{"id": f"model-{i}"} for i in range(count)]})


def anthropic_ok(text: str = "Answer: 4", *, delay_s: float = 0.0) -> Behaviour:
    """The Messages API; streamed if asked for."""

    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(delay_s)
        if exchange.json.get("stream"):
            await exchange.send_events(message_events(text), done=False)
        else:
            await exchange.send_json(message_payload(text))

    return behave


def answer(payload: Any, status: int = 200) -> Behaviour:
    """This JSON."""
    return lambda exchange: exchange.send_json(payload, status)


def events(payloads: Sequence[Any], *, done: bool = True, delay_s: float = 0.0) -> Behaviour:
    """This stream."""
    return lambda exchange: exchange.send_events(payloads, done=done, delay_s=delay_s)


# ---------------------------------------------------------------- behaviours that do not


def status(code: int, *, retry_after: float | str | None = None, body: Any = None, **headers: str) -> Behaviour:
    """An error status, with OpenAI's error shape unless another body is given."""
    payload = {"error": {"message": f"upstream says {code}", "code": None}} if body is None else body
    if retry_after is not None:
        headers["retry_after"] = str(retry_after)
    return lambda exchange: exchange.send_json(payload, code, **headers)


def anthropic_error(code: int, kind: str, message: str = "upstream says no") -> Behaviour:
    """An error in the shape of the Messages API."""
    return answer({"type": "error", "error": {"type": kind, "message": message}}, code)


def hang() -> Behaviour:
    """Never answer."""

    async def behave(_: Exchange) -> None:
        await asyncio.Event().wait()

    return behave


def trickle(text: str = "Answer: 4", *, every_s: float = 0.05, stream: bool = False) -> Behaviour:
    """A good answer, a byte at a time."""

    async def behave(exchange: Exchange) -> None:
        if stream:
            await exchange.send_events(chat_events(text), delay_s=every_s)
            return
        data = json.dumps(chat_payload(text)).encode()
        await exchange.head(200, "application/json", len(data))
        for byte in data:
            await exchange.write(bytes([byte]))
            await asyncio.sleep(every_s)

    return behave


def garbage() -> Behaviour:
    """Status 200, JSON by its content type, but not by its content."""
    return lambda exchange: exchange.send(b"\x00\xff{]not json")


def html() -> Behaviour:
    """Status 200 and a web page, as from a wrong base_url."""
    return lambda exchange: exchange.send(b"<html>Welcome</html>", content_type="text/html")


def not_http() -> Behaviour:
    """Bytes of some other protocol."""

    async def behave(exchange: Exchange) -> None:
        exchange.keep_alive = False
        await exchange.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    return behave


def truncated() -> Behaviour:
    """A body shorter than its content-length, then the end of the connection."""

    async def behave(exchange: Exchange) -> None:
        data = json.dumps(chat_payload("Answer: 4")).encode()
        await exchange.head(200, "application/json", len(data))
        await exchange.write(data[: len(data) // 2])
        exchange.keep_alive = False

    return behave


def reset() -> Behaviour:
    """Break the connection off before any answer."""

    async def behave(exchange: Exchange) -> None:
        exchange.reset()

    return behave


def empty_choices() -> Behaviour:
    """A well-formed reply that holds no answer."""
    return answer(chat_payload())


def dies_mid_stream(text: str = "one two three", *, after: int = 2) -> Behaviour:
    """A chat-completions stream whose connection breaks off after this many events."""

    async def behave(exchange: Exchange) -> None:
        await exchange.head(200, "text/event-stream", 100_000)
        for payload in chat_events(text)[:after]:
            await exchange.write(f"data: {json.dumps(payload)}\n\n".encode())
        exchange.keep_alive = False

    return behave
