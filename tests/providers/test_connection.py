"""One connection: HTTP/1.1 answers in every form, and invalid ones, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odar.errors import ProviderProtocolError, ProviderUnreachable
from odar.providers import connection as module
from odar.providers.connection import Connection
from odar.providers.errors import ErrorFactory
from support.waiting import until
from support.wire import Wire

ERRORS = ErrorFactory("up")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Connection]:
    """Yield a connection to a server that runs `serve`; close both afterwards."""
    done = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            done.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(ERRORS), host, port)
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await asyncio.wait_for(done.wait(), 60)


@asynccontextmanager
async def talking(*pieces: bytes, close: bool = True, pause_s: float = 0.0) -> AsyncIterator[Connection]:
    """Yield a connection to a server that sends these pieces after the request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if not close:
            await reader.read()

    async with connected(serve) as connection:
        yield connection


def ask(connection: Connection) -> Connection:
    connection.send(b"GET / HTTP/1.1\r\n\r\n")
    return connection


async def read(*pieces: bytes, **how: float) -> tuple[int, dict[str, str], bytes, bool]:
    async with talking(*pieces, **how) as connection, asyncio.timeout(60):  # type: ignore[arg-type]
        answer = ask(connection)
        await answer.read_head()
        body = await answer.read_all()
        assert answer.complete
        return answer.status, answer.headers, body, connection.reusable


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=x\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\nx-trailer: 1\r\n\r\n"
)
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nbody"


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(("raw", "kept"), [(LENGTH, True), (CHUNKED, True), (TO_THE_END, False)])
async def test_every_body_framing_is_read_in_any_chunks(raw: bytes, kept: bool, size: int) -> None:
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    status, headers, body, reusable = await read(*pieces, close=not kept)
    assert (status, body, reusable) == (200, b"body", kept)
    assert "x-trailer" not in headers or raw is CHUNKED


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
async def test_answers_without_a_body_are_read(head: bytes, kept: bool) -> None:
    _, _, body, reusable = await read(head, close=False)
    assert (body, reusable) == (b"", kept)


async def test_header_names_are_lower_case_and_values_joined() -> None:
    raw = b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nVia: a\r\nVIA: b\r\nX-\xe9: \xe9\r\nContent-Length: 0\r\n\r\n"
    raw = raw.replace(b"X-\xe9", b"X-E")
    _, headers, _, _ = await read(raw, close=False)
    assert headers == {"retry-after": "3", "via": "a, b", "x-e": "é", "content-length": "0"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [("application/json; charset=utf-8", "application/json"), (" Text/HTML ", "text/html"), ("", "")],
)
async def test_the_content_type_has_no_parameters(said: str, kind: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {said}\r\nContent-Length: 0\r\n\r\n".encode()
    async with talking(head) as connection:
        answer = ask(connection)
        await answer.read_head()
        assert answer.content_type == kind


async def test_informational_responses_are_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    status, headers, body, reusable = await read(*early, LENGTH, close=False)
    assert (status, body, reusable) == (200, b"body", True)
    assert "link" not in headers


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00",
        b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
async def test_a_response_that_is_not_http_is_an_error(raw: bytes) -> None:
    with pytest.raises(ProviderProtocolError):
        await read(raw, close=False)


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 300 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\na: ", b"b" * 60_000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 1000),
        (CHUNKS + b"0\r\n", b"a: b\r\n" * 10_000),
        (CHUNKS + b"0\r\na: ", b"b" * 60_000),
        (CHUNKS + b"2;", b"b" * 60_000),
    ],
    ids=["headers", "many headers", "one header", "1xx", "trailers", "one trailer", "chunk extension"],
)
async def test_endless_headers_are_rejected(first: bytes, piece: bytes) -> None:
    """The server never stops sending; the client must stop reading."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        while True:
            writer.write(piece)
            await writer.drain()

    async with connected(serve) as connection:
        answer = ask(connection)
        with pytest.raises(ProviderProtocolError):
            async with asyncio.timeout(60):
                await answer.read_head()
                await answer.read_all()
        assert not connection.reusable


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_connection_closed_before_the_headers_is_an_error(raw: bytes) -> None:
    with pytest.raises(ProviderUnreachable, match="the connection broke off"):
        await read(raw)


@pytest.mark.parametrize("raw", [LENGTH[:-1], CHUNKED[:-20], LENGTH[:-4]])
async def test_an_incomplete_body_is_an_error(raw: bytes) -> None:
    async with talking(raw) as connection:
        answer = ask(connection)
        await answer.read_head()
        with pytest.raises(ProviderUnreachable, match="before it was complete"):
            await answer.read_all()
        assert not connection.reusable


async def test_an_unrequested_second_answer_is_not_read() -> None:
    async with talking(LENGTH + LENGTH.replace(b"200", b"500"), close=False) as connection:
        answer = ask(connection)
        assert (await answer.read_all(), answer.status) == (b"body", 200)
        assert not connection.reusable


async def test_unrequested_data_closes_the_connection() -> None:
    async with talking(LENGTH, LENGTH, close=False, pause_s=0.05) as connection:
        assert await ask(connection).read_all() == b"body"
        await until(lambda: not connection.reusable)


async def test_trailers_are_not_headers_of_the_next_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for raw in (CHUNKED, LENGTH):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
        await reader.read()

    async with connected(serve) as connection:
        await ask(connection).read_all()
        assert connection.reusable
        second = ask(connection)
        assert await second.read_all() == b"body"
        assert "x-trailer" not in second.headers


async def test_a_slow_reader_pauses_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_UNREAD_BYTES", 10_000)
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(400):
            writer.write(b"x" * 50_000)
            await writer.drain()
            sent += 50_000

    async with connected(serve) as connection:
        answer = ask(connection)
        await answer.read_head()
        await until(lambda: answer._paused)
        assert sent < 20_000_000
        assert len(await answer.read_all()) == 20_000_000


async def test_at_most_the_limit_is_read() -> None:
    async with talking(LENGTH, close=False) as connection:
        assert await ask(connection).read_all(2) == b"bo"


async def test_a_closed_connection_is_an_error() -> None:
    async with talking(LENGTH) as connection:
        connection.close()
        await asyncio.sleep(0)
        assert not connection.reusable
        with pytest.raises(ProviderUnreachable):
            await ask(connection).read_head()


def fed(pieces: Sequence[bytes]) -> tuple[Connection, Connection, Wire]:
    connection, wire = Connection(ERRORS), Wire()
    connection.connection_made(wire)
    answer = ask(connection)
    for piece in pieces:
        if piece and not wire.closed:
            connection.data_received(piece)
    return connection, answer, wire


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda tail: LENGTH[:70] + tail))
def test_any_bytes_give_an_answer_or_an_error(raw: bytes) -> None:
    connection, answer, wire = fed([raw])
    connection.connection_lost(None)
    assert answer.complete or answer._failure is not None
    assert not connection.reusable or wire.closed or answer.complete
