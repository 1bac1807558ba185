"""A pool of connections to one server: reuse, closing, TLS."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odar.errors import ProviderUnreachable
from odar.providers import connection as module
from odar.providers.connection import Address, Connection, Connections
from odar.providers.errors import ErrorFactory
from support import fault_server as faults
from support.fault_server import FaultServer
from support.proxy_server import self_signed
from support.waiting import until
from support.wire import Wire

ERRORS = ErrorFactory("up")


@pytest.fixture
async def pool(server: FaultServer) -> AsyncIterator[Connections]:
    pool = Connections(Address.parse(server.url), ERRORS)
    yield pool
    pool.close()


async def get(pool: Connections, body: bytes = b"{}") -> tuple[int, bytes]:
    async with pool.request("POST", "/x", {}, body) as answer:
        return answer.status, await answer.read_all()


async def test_sequential_requests_share_a_connection(server: FaultServer, pool: Connections) -> None:
    for _ in range(5):
        assert (await get(pool))[0] == 200
    assert (server.connections, server.requests[0].path) == (1, "/v1/x")


async def test_concurrent_requests_have_their_own_connections(server: FaultServer, pool: Connections) -> None:
    server.behave(faults.ok(delay_s=0.05))
    await asyncio.gather(*(get(pool) for _ in range(20)))
    assert server.connections == 20
    await asyncio.gather(*(get(pool) for _ in range(20)))
    assert server.connections == 20


async def test_an_unread_answer_closes_its_connection(server: FaultServer, pool: Connections) -> None:
    server.behave(faults.trickle())
    async with pool.request("POST", "/x", {}, b"{}"):
        pass
    await server.until_idle(connections=0)


async def test_a_long_unread_answer_does_not_block_the_next(server: FaultServer, pool: Connections) -> None:
    """Reading pauses after a limit; a paused connection would never receive the next answer."""
    server.enqueue(lambda exchange: exchange.send(b"x" * 2_000_000))
    async with pool.request("POST", "/x", {}, b"{}") as answer:
        await until(lambda: answer.complete or answer._unread > 2**18)
    async with asyncio.timeout(60):
        assert (await get(pool))[0] == 200


def test_a_paused_connection_is_not_reused() -> None:
    """Also if the end of the answer arrives with the piece that exceeds the limit."""
    connection = Connection(ERRORS)
    connection.connection_made(Wire())
    connection.send(b"")
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"
    connection.data_received(head + b"x" * 300_000)
    assert connection.complete
    assert not connection.reusable
    assert asyncio.run(connection.read_all()) == b"x" * 300_000
    assert connection.reusable


async def test_idle_connections_are_closed(
    server: FaultServer, pool: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.1)
    server.behave(faults.ok(delay_s=0.02))
    await asyncio.gather(*(get(pool) for _ in range(5)))
    await get(pool)
    await server.until_idle(connections=0)
    assert not pool._idle
    await get(pool)
    assert server.connections == 6


async def test_a_connection_closed_by_the_server_is_not_reused(server: FaultServer, pool: Connections) -> None:
    async def last(exchange: faults.Exchange) -> None:
        await faults.ok()(exchange)
        exchange.keep_alive = False  # without telling the client

    server.behave(last)
    for _ in range(3):
        assert (await get(pool))[0] == 200
        await server.until_idle(connections=0)
        await asyncio.sleep(0.01)
    assert server.connections == 3


async def test_a_large_body_is_sent_completely(server: FaultServer, pool: Connections) -> None:
    async def count(exchange: faults.Exchange) -> None:
        await exchange.send_json(len(exchange.body))

    server.behave(count)
    assert await get(pool, b"x" * 5_000_000) == (200, b"5000000")


async def test_a_host_name_is_resolved(server: FaultServer) -> None:
    pool = Connections(Address.parse(server.url.replace("127.0.0.1", "localhost")), ERRORS)
    assert (await get(pool))[0] == 200
    assert server.requests[0].headers["host"].startswith("localhost:")
    pool.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 100])
async def test_an_unknown_host_name_is_an_error(host: str) -> None:
    with pytest.raises(
        ProviderUnreachable, match=r"cannot connect to .*:80 \(.+\); check (the network connection, and )?base_url"
    ) as caught:
        await get(Connections(Address.parse(f"http://{host}/v1"), ERRORS))
    assert caught.value.retryable


async def test_the_second_address_is_tried_if_the_first_fails(
    server: FaultServer, pool: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = pool.address.port

    async def two(*_: object, **__: object) -> list[tuple[object, ...]]:
        found = [("127.0.0.2", port), ("127.0.0.1", port)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in found]

    monkeypatch.setattr(pool.loop, "getaddrinfo", two)
    assert (await get(pool))[0] == 200


# ── TLS ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a self-signed certificate for localhost."""
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture
async def secure(certificate: Path) -> AsyncIterator[int]:
    """The port of a server with TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_trusted_certificate_is_accepted(secure: int, certificate: Path) -> None:
    pool = Connections(
        Address.parse(f"https://localhost:{secure}/v1"),
        ERRORS,
        ssl.create_default_context(cafile=f"{certificate}.crt"),
    )
    for _ in range(2):
        async with pool.request("GET", "/x", {}) as answer:
            assert await answer.read_all() == b"secret"
    pool.close()
    await asyncio.sleep(0.05)


async def test_an_untrusted_certificate_is_rejected(secure: int) -> None:
    with pytest.raises(ProviderUnreachable, match="no trusted TLS connection to localhost") as caught:
        await get(Connections(Address.parse(f"https://localhost:{secure}/v1"), ERRORS))
    assert not caught.value.retryable


async def test_a_certificate_for_another_name_is_rejected(secure: int, certificate: Path) -> None:
    with pytest.raises(ProviderUnreachable, match="no trusted TLS connection to 127"):
        await get(
            Connections(
                Address.parse(f"https://127.0.0.1:{secure}/v1"),
                ERRORS,
                ssl.create_default_context(cafile=f"{certificate}.crt"),
            )
        )


async def test_a_server_without_tls_is_an_error(server: FaultServer) -> None:
    with pytest.raises(ProviderUnreachable, match="no trusted TLS") as caught:
        await get(Connections(Address.parse(server.url.replace("http:", "https:")), ERRORS))
    assert not caught.value.retryable


async def test_requests_beyond_the_limit_wait_for_a_connection(server, monkeypatch):
    monkeypatch.setattr("odar.providers.connection.server_connections", lambda: 2)
    pool = Connections(Address.parse(server.url), ERRORS)
    most = 0

    async def note_and_answer(exchange):
        nonlocal most
        most = max(most, server.busy)
        await asyncio.sleep(0.01)
        await faults.ok()(exchange)

    server.behave(note_and_answer)
    await asyncio.gather(*(get(pool) for _ in range(8)))
    assert most == 2
    pool.close()


async def test_a_full_table_of_files_is_logged_and_no_fault_of_the_address(server, monkeypatch, caplog):
    async def full(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("aiohappyeyeballs.start_connection", full)
    with pytest.raises(ProviderUnreachable, match="on this machine"):
        await get(Connections(Address.parse(server.url), ERRORS))
    assert "raise ulimit -n" in caplog.text
