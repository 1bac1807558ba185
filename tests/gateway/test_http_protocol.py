from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from odar.gateway.http_protocol import GatheredTransport


class Wire:
    """A transport that remembers."""

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


async def test_what_is_written_in_one_turn_is_sent_at_once():
    wire = Wire()
    transport = GatheredTransport(wire)
    transport.write(b"head")
    transport.write(b"body")
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [b"headbody"]
    transport.write(b"more")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert wire.sent == [b"headbody", b"more"]


async def test_closing_sends_first():
    wire = Wire()
    transport = GatheredTransport(wire)
    transport.write(b"goodbye")
    transport.close()
    await asyncio.sleep(0)
    assert (wire.sent, wire.closed) == ([b"goodbye"], True)


async def test_a_client_that_has_gone_is_sent_nothing():
    wire = Wire()
    transport = GatheredTransport(wire)
    transport.write(b"too late")
    wire.closed = True
    await asyncio.sleep(0)
    assert wire.sent == []


async def test_everything_else_is_the_transports_own():
    transport = GatheredTransport(Wire())
    assert transport.get_extra_info("peername") == "the peername"
    assert transport.get_write_buffer_size() == 7
    assert not transport.is_closing()


@given(st.lists(st.lists(st.binary(max_size=5), max_size=4), max_size=5))
def test_no_byte_is_lost_or_out_of_order(turns):
    async def send() -> Wire:
        wire = Wire()
        transport = GatheredTransport(wire)
        for turn in turns:
            for data in turn:
                transport.write(data)
            await asyncio.sleep(0)
        transport.close()
        return wire

    wire = asyncio.run(send())
    assert b"".join(wire.sent) == b"".join(data for turn in turns for data in turn)
    assert len(wire.sent) == sum(1 for turn in turns if turn)


async def test_an_answer_of_the_gateway_comes_in_one_piece(start):
    where = urlsplit((await start()).url)
    with socket.create_connection((where.hostname, where.port)) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n")
        answer = await asyncio.to_thread(client.recv, 65536)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'{"status":"ok"}')
