from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.serving.connections import CoalescingTransport
from support.fault_server import hang, ok
from support.gateway import turn


class Wire:
    """A transport that records writes."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed, "nothing may be written to a closed connection"
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 7


async def test_nothing_is_sent_to_a_disconnected_client():
    wire = Wire()
    transport = CoalescingTransport(wire)
    transport.write(b"too late")
    wire.closed = True
    await asyncio.sleep(0)
    assert wire.sent == []


@given(st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=5))
def test_no_byte_is_lost_or_out_of_order(turns):
    async def send() -> Wire:
        wire = Wire()
        transport = CoalescingTransport(wire)
        for written in turns:
            for data in written:
                transport.write(data)
            await asyncio.sleep(0)
        transport.close()
        return wire

    wire = asyncio.run(send())
    assert b"".join(wire.sent) == b"".join(data for turn in turns for data in turn)
    assert len(wire.sent) == sum(1 for turn in turns if turn)


async def test_an_answer_is_sent_in_one_piece(start):
    where = urlsplit((await start()).url)
    with socket.create_connection((where.hostname, where.port)) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n")
        answer = await asyncio.to_thread(client.recv, 65536)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'{"status":"ok"}')


class Client:
    """A client that writes HTTP by hand and can break its rules."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, live) -> Client:
        where = urlsplit(live.url)
        return cls(*await asyncio.open_connection(where.hostname, where.port))

    async def say(self, *data: bytes) -> None:
        """Send this, as far as it is accepted."""
        with suppress(ConnectionError):
            for each in data:
                self.writer.write(each)
                await self.writer.drain()

    async def rest(self) -> bytes:
        """Read everything until the gateway closes the connection."""
        answer = b""
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                while piece := await self.reader.read(65536):
                    answer += piece
        self.writer.transport.abort()
        return answer


HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\n"


async def test_header_bytes_are_limited(start, monkeypatch):
    monkeypatch.setattr("odar.serving.connections.MAX_HEADER_KB", 2)
    live = await start()
    for sent in (b"x-a: " + b"b" * 3000 + b"\r\n\r\n", b"x-a: " + b"b" * 3000, b"x-a: bcdef\r\n" * 400):
        client = await Client.connect(live)
        await client.say(HEAD + sent)
        assert (await client.rest()).startswith(b"HTTP/1.1 431 ")
    client = await Client.connect(live)
    await client.say(HEAD + b"x-a: " + b"b" * 1500 + b"\r\nconnection: close\r\n\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


async def test_an_endless_path_is_rejected(start, monkeypatch):
    monkeypatch.setattr("odar.serving.connections.MAX_HEADER_KB", 2)
    client = await Client.connect(await start())
    await client.say(b"GET /", *[b"a" * 1000] * 20)
    assert not (await client.rest()).startswith(b"HTTP/1.1 200")


async def test_the_number_of_headers_is_limited(start, monkeypatch):
    monkeypatch.setattr("odar.serving.connections.MAX_HEADERS", 20)
    live = await start()
    for count, status in ((19, b"200"), (20, b"431")):  # and the host
        client = await Client.connect(live)
        await client.say(HEAD + b"connection: close\r\n" + b"x: y\r\n" * (count - 1) + b"\r\n")
        assert (await client.rest()).split()[1] == status


@pytest.mark.parametrize("trailer", [b"x: y\r\n", b"x"], ids=["many", "endless"])
async def test_trailers_count_as_headers(start, trailer, monkeypatch):
    monkeypatch.setattr("odar.serving.connections.MAX_HEADER_KB", 2)
    client = await Client.connect(await start())
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\ntransfer-encoding: chunked\r\n\r\n"
    await client.say(head + b"1\r\n{\r\n0\r\n", *[trailer * 1000] * 600)  # more than is read at once
    assert not (await client.rest()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HEAD], ids=["nothing", "half a head"])
async def test_headers_have_a_timeout(start, sent):
    live = await start(constants={"odar.serving.connections.HEADER_TIMEOUT_S": 0.2})
    client = await Client.connect(live)
    await client.say(sent)
    assert b"200" not in (answer := await client.rest())
    assert answer.startswith(b"HTTP/1.1 408 ") == bool(sent)


async def test_headers_of_a_second_request_have_a_timeout(start):
    client = await Client.connect(await start(constants={"odar.serving.connections.HEADER_TIMEOUT_S": 0.2}))
    await client.say(HEAD + b"\r\n" + HEAD)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


async def test_an_incomplete_next_request_does_not_cut_off_an_answer(start, up):
    up.behave(ok("It is four.", delay_s=0.6))
    client = await Client.connect(await start(constants={"odar.serving.connections.HEADER_TIMEOUT_S": 0.1}))
    body = b'{"model": "quick", "messages": [{"role": "user", "content": "2 + 2?"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\ncontent-length: %d\r\n\r\n" % len(body)
    await client.say(head + body, HEAD)
    assert b"It is four." in await client.rest()


@pytest.mark.parametrize("path", [b"GET /healthz", b"POST /v1/chat/completions", b"POST /nowhere"])
async def test_bodies_of_all_paths_have_a_timeout(start, path):
    client = await Client.connect(await start(constants={"odar.serving.exchange.BODY_TIMEOUT_S": 0.2}))
    await client.say(path + b" HTTP/1.1\r\nHost: 127.0.0.1:80\r\ncontent-length: 100\r\n\r\n{")
    assert await client.rest()  # an answer, and then the end


async def test_an_idle_connection_is_closed(start, monkeypatch):
    monkeypatch.setattr("odar.serving.server.IDLE_TIMEOUT_S", 1)
    client = await Client.connect(await start())
    await client.say(HEAD + b"\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


async def test_connections_per_address_are_limited(start):
    live = await start(constants={"odar.serving.connections.MAX_CONNECTIONS_PER_PEER": 2})
    first, second, third = [await Client.connect(live) for _ in range(3)]
    assert (await third.rest()).startswith(b"HTTP/1.1 429 ")
    await first.say(HEAD + b"connection: close\r\n\r\n")
    assert b"200 OK" in await first.rest()
    fourth = await Client.connect(live)
    for client in (second, fourth):
        await client.say(HEAD + b"connection: close\r\n\r\n")
        assert b"200 OK" in await client.rest()


async def test_pipelined_requests_are_limited(start, up):
    up.behave(hang())
    live = await start()
    client = await Client.connect(live)
    body = b'{"model": "quick", "messages": [{"role": "user", "content": "2 + 2?"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\ncontent-length: %d\r\n\r\n" % len(body)
    await client.say(head + body, (HEAD + b"\r\n") * 40)
    assert await client.rest() == b""
    assert (await live.entry()).http_status == 499  # the request that was being answered


async def test_a_request_is_cancelled_if_its_client_leaves_after_sending_another(start, up):
    up.behave(hang())
    live = await start()
    client = await Client.connect(live)
    body = json.dumps({"model": "quick", "messages": turn()}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: %d\r\n\r\n" % len(body)
    await client.say((head + body) * 2)
    async with asyncio.timeout(30):
        while not up.requests:
            await asyncio.sleep(0.01)
    client.writer.transport.abort()
    assert (await live.entry()).http_status == 499


LONG = {"model": "served", "choices": [{"index": 0, "delta": {"content": "word " * 4000}, "finish_reason": None}]}


def events(payloads, then=0):
    """Return a stream that stays open for a while."""

    async def behave(exchange):
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "", ""]
        await exchange.write("\r\n".join(lines).encode())
        for payload in payloads:
            await exchange.chunk(f"data: {json.dumps(payload)}\n\n".encode())
            await asyncio.sleep(0)
        await asyncio.sleep(then)
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    return behave


async def test_a_client_that_does_not_read_is_disconnected(start, up):
    live = await start(constants={"odar.serving.exchange.WRITE_TIMEOUT_S": 0.3}, limits__deadline_s=60)
    where = urlsplit(live.url)

    up.behave(events([LONG] * 500, then=60))
    body = json.dumps({"model": "quick", "messages": turn(), "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (where.hostname, where.port))
        await asyncio.get_running_loop().sock_sendall(client, head + body)
        async with asyncio.timeout(60):
            while not up.busy:
                await asyncio.sleep(0.01)
            while live.service.concurrency_limit.in_flight:
                await asyncio.sleep(0.01)
    assert (await live.entry()).http_status == 499
    await up.until_idle()


async def test_a_slowly_read_stream_ends_at_its_deadline(start, up):
    """The client reads just enough to count as alive, and would take minutes."""
    live = await start(constants={"odar.serving.exchange.WRITE_TIMEOUT_S": 0.5}, limits__deadline_s=0.5)
    where = urlsplit(live.url)
    up.behave(events([LONG] * 500))
    body = json.dumps({"model": "quick", "messages": turn(), "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, (where.hostname, where.port))
        await loop.sock_sendall(client, head + body)
        async with asyncio.timeout(60):
            while not live.memory_store.entries:
                with suppress(ConnectionError):
                    await loop.sock_recv(client, 1024)
                await asyncio.sleep(0.01)
    assert live.service.concurrency_limit.in_flight == 0


# ── valid requests that a server need not take ──────────────────────────────────────────────────────────────

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize("offer", [OFFER, b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
@pytest.mark.parametrize("split", [0, 1, 20])
async def test_the_offer_of_an_upgrade_is_ignored(start, offer, split):
    live = await start()
    body = json.dumps({"model": "quick", "messages": turn()}).encode()
    post = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\n%bContent-Length: %d\r\n\r\n"
    client = await Client.connect(live)
    head = post % (offer, len(body))
    if split:
        await client.say(head)
        await asyncio.sleep(0.01)
        await client.say(body[:split])
        await asyncio.sleep(0.01)
        await client.say(body[split:])
    else:
        await client.say(head + body)
    # a second offer on the same connection, then a request that closes it
    await client.say(head + body, HEAD + b"Connection: close\r\n\r\n")
    answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == 3, answers
    assert answers.endswith(b'{"status":"ok"}')


async def test_many_offers_in_one_packet_are_limited(start, up):
    live = await start()
    up.behave(hang())
    client = await Client.connect(live)
    body = json.dumps({"model": "quick", "messages": turn()}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Length: %d\r\n\r\n" % len(body)
    await client.say(head + body, (HEAD + OFFER + b"\r\n") * 1000)
    assert await client.rest() == b""
    assert live.service.connection_limits.refused["pipelined"] == 1


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, b"invalid_host"),
        (HEAD + b"Host: other\r\n\r\n", 400, b"invalid_host"),
        (HEAD.replace(b"1.1", b"2.0", 1) + b"\r\n", 505, b"http_version"),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 400, b"invalid_http"),
    ],
)
async def test_requests_that_http_forbids_are_refused(start, sent, status, code):
    client = await Client.connect(await start())
    await client.say(sent)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert code in answer


async def test_http_1_0_needs_no_host(start):
    client = await Client.connect(await start())
    await client.say(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(("length", "status"), [(b"0" * 5000, 400), (b"0" * 5000 + b"9" * 18, 413)])
async def test_a_length_of_many_digits_is_read(start, length, status):
    client = await Client.connect(await start())
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: close\r\nContent-Length: "
    await client.say(head + length + b"\r\n\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 %d " % status)
