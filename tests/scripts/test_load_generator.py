"""The load generator: the stub server and the client."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

import load_generator
import pytest
from load_generator import Load, cpu_s, gateway, measure, memory_mb
from load_generator import bodies as questions
from load_generator import stub as stub_process
from stub_upstream import REPLY, Stub, serve

from odar.errors import OdarError
from support.fault_server import FaultServer, html, ok, status


@pytest.fixture
async def stub(unused_tcp_port):
    servers = []

    async def start(delay_s: float = 0.0) -> str:
        loop = asyncio.get_running_loop()
        servers.append(await loop.create_server(lambda: Stub(delay_s), "127.0.0.1", 0))
        return f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}/v1"

    yield start
    for server in servers:
        server.close()


def bodies():
    return itertools.cycle([b'{"a": 1}', b'{"b": "' + b"x" * 70_000 + b'"}'])


async def test_the_client_counts_answers(stub):
    load = await measure(await stub(), bodies(), connections=3, seconds=0.3)
    assert (load.connections, load.errors) == (3, 0)
    assert load.requests > 0 and load.per_second > 0
    assert 0 < load.p50_ms <= load.p99_ms
    assert load.cpu_ms is None


async def test_the_delay_of_the_stub_is_measured(stub):
    load = await measure(await stub(0.05), bodies(), connections=1, seconds=0.2)
    assert load.p50_ms >= 49


async def test_the_stub_answers_requests_in_any_chunks(stub):
    url = await stub()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    request = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"
    for piece in (request[:10], request[10:-2], request[-2:] + request, b"GET / HTTP/1.1\r\n\r\n"):
        writer.write(piece)
        await asyncio.sleep(0.01)
    answered = b""
    async with asyncio.timeout(60):
        while answered.count(REPLY) < 3:
            answered += await reader.read(10_000)
    writer.close()
    assert answered.count(b"HTTP/1.1 200 OK") == 3


async def test_the_stub_tolerates_a_client_that_disconnects(stub):
    url = await stub(0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.split(":")[2].split("/")[0]))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await writer.drain()
    writer.transport.abort()
    await asyncio.sleep(0.1)  # the answer was due, and there was nobody: a warning would fail this test


async def test_error_statuses_are_counted():
    async with FaultServer() as server:
        server.enqueue(status(500))
        server.behave(ok())
        load = await measure(
            server.url, iter([b"{}"] * 10_000), connections=1, seconds=0.1, headers=["Authorization: Bearer sk-1"]
        )
        assert load.errors == 1
        assert server.requests[0].headers["authorization"] == "Bearer sk-1"


async def test_a_chunked_answer_is_read_completely():
    async with FaultServer() as server:
        server.behave(ok("a b c"))
        load = await measure(server.url, itertools.repeat(b'{"stream": true}'), connections=1, seconds=0.1)
        assert load.errors == 0
        assert load.requests > 1


async def test_the_stub_ends_with_its_input(monkeypatch, capsys):
    reads = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Input:
        def read(self) -> str:
            loop.call_soon_threadsafe(reads.set)
            return ""

    monkeypatch.setattr(sys, "stdin", Input())
    await asyncio.wait_for(serve(0, 0.0), 60)
    assert reads.is_set()
    assert int(capsys.readouterr().out) > 0


async def test_a_target_that_cannot_be_measured_is_named():
    async with FaultServer() as server:
        server.behave(html())
        url = server.url
    with pytest.raises(OdarError, match=r"peer at http://127.* cannot be measured"):
        await load_generator._measure(load_generator._Target("peer", url, bodies()), [1], 0.1)


def test_all_requests_differ():
    asked = [json.loads(body) for body in itertools.islice(questions("m"), 500)]
    assert len({body["messages"][0]["content"] for body in asked}) == 500
    assert {body["model"] for body in asked} == {"m"}


def test_figures_of_an_ended_process_are_unknown():
    assert (cpu_s(None), cpu_s(2**22 + 1), memory_mb(None), memory_mb(2**22 + 1)) == (None, None, None, None)


def test_a_stub_that_cannot_listen_is_an_error(unused_tcp_port):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", unused_tcp_port))
        taken.listen()
        with pytest.raises(OdarError, match=f"is port {unused_tcp_port} taken"), stub_process(unused_tcp_port):
            pass


def test_measuring_a_gateway_does_not_touch_user_data(tmp_path, monkeypatch):
    """API keys of the user would reject the load, and the traces would fill the store."""
    monkeypatch.delenv("ODAR_STORE_URL", raising=False)
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    with stub_process() as upstream, gateway(upstream, home) as (url, pid):
        load = asyncio.run(measure(url, questions("odar-simple"), connections=2, seconds=0.5))
        assert load.errors == 0
        assert load.requests > 0
        assert cpu_s(pid) > 0
        assert memory_mb(pid) > 10
    assert not (tmp_path / "data").exists()


def test_a_gateway_that_does_not_start_is_an_error():
    with pytest.raises(OdarError, match=r"the gateway did not start: .*ODAR_GATEWAY_PORT"):  # noqa: SIM117
        with gateway("http://127.0.0.1:1/v1", {"ODAR_GATEWAY_PORT": "many"}):
            pass


def test_the_median_round_is_reported():
    loads = [Load(1, 10, 0, rate, 1.0, 2.0) for rate in (30.0, 10.0, 20.0)]
    assert load_generator._median(loads).per_second == 20.0
    assert load_generator._median(loads[:2]).per_second == 10.0, "of two, the slower"


def test_rounds_alternate_between_targets(monkeypatch):
    monkeypatch.setattr(load_generator, "_WARM_UP_S", 0.1)
    notes: list[str] = []
    rows = load_generator.run(
        {}, connections=(1,), seconds=0.1, rounds=2, models=("odar-simple",), note=notes.append
    )
    assert [note.split(" at ")[0] for note in notes] == ["upstream", "odar-simple"] * 2
    assert [note.rpartition(", ")[2] for note in notes] == ["round 1 of 2"] * 2 + ["round 2 of 2"] * 2
    assert [row.name for row in rows] == ["upstream", "odar-simple"]
    assert all(load.errors == 0 for row in rows for load in row.loads)
