"""The gateway as a process: started by `odar serve`, stopped by SIGTERM."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys

import aiohttp
import pytest
import uvicorn

from odar.serving import server
from odar.serving.connections import ConnectionLimits
from odar.serving.server import DrainingServer, _on_loop_error
from support.constants import odar_code
from support.entries import part_of_a_service
from support.fault_server import FaultServer, hang, ok
from support.gateway import turn
from support.gateway_process import Process


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def until_busy(up: FaultServer, running: asyncio.Task) -> None:
    """Wait until the request has reached the upstream; fail if it ends first."""
    async with asyncio.timeout(60):
        while not up.busy:
            assert not running.done(), running.result()
            await asyncio.sleep(0.01)


async def get(http: aiohttp.ClientSession, url: str) -> int:
    async with http.get(url) as response:
        return response.status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_signals_let_running_requests_finish(tmp_path, http, number):
    async with FaultServer() as up:
        finish = asyncio.Event()

        async def answer_later(exchange):
            await finish.wait()
            await ok("It is four.")(exchange)

        up.behave(answer_later)
        gateway = await Process.start(tmp_path, up, drain=60)
        assert "no key is configured: only this machine can connect" in gateway.said
        body = {"model": "odar", "messages": turn()}
        running = asyncio.create_task(http.post(gateway.url + "/v1/chat/completions", json=body))
        await until_busy(up, running)
        async with asyncio.timeout(60):
            while await get(http, gateway.url + "/readyz") != 200:  # ready after warm-up
                await asyncio.sleep(0.05)
        gateway.process.send_signal(number)
        async with asyncio.timeout(60):
            while await get(http, gateway.url + "/readyz") != 503:
                await asyncio.sleep(0.01)
        assert await get(http, gateway.url + "/healthz") == 200
        async with http.post(gateway.url + "/v1/chat/completions", json=body) as refused:
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        finish.set()
        async with await running as response:
            assert response.status == 200
            assert (await response.json())["choices"][0]["message"]["content"] == "It is four."
        async with asyncio.timeout(60):
            await gateway.process.wait()
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(http, gateway.url + "/readyz")


async def test_a_request_that_does_not_finish_is_cut_off(tmp_path, http):
    async with FaultServer() as up:
        up.behave(hang())
        gateway = await Process.start(tmp_path, up, drain=1)
        running = asyncio.create_task(
            http.post(gateway.url + "/v1/chat/completions", json={"model": "odar", "messages": turn()})
        )
        await until_busy(up, running)
        gateway.process.terminate()
        async with asyncio.timeout(60):
            await gateway.process.wait()
        async with await running as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "shut_down")
        await up.until_idle(connections=0)


async def run(*arguments: str, folder=None) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", odar_code(), *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_without_keys_only_loopback_addresses_are_accepted(tmp_path):
    code, _, err = await run("serve", "--host", "0.0.0.0", folder=tmp_path)
    assert code == 2
    assert "no key is configured; make one with `odar keys`, or listen on 127.0.0.1" in err


async def test_a_port_in_use_is_named(tmp_path):
    async with FaultServer() as other:
        port = other.origin.rsplit(":", 1)[1]
        code, _, err = await run("serve", "--port", port, folder=tmp_path)
    assert code == 2
    assert f"gateway.port = {port} on 127.0.0.1 cannot be used" in err


def test_a_signal_during_startup_exits_at_once():
    """No client is connected yet, so nothing has to be drained."""
    service = part_of_a_service()
    server = DrainingServer(uvicorn.Config(lambda: None, log_config=None), service)
    server.handle_exit(signal.SIGTERM, None)
    assert (server.should_exit, service.concurrency_limit.draining) == (True, False)


async def test_the_first_signal_is_graceful_and_the_second_immediate():
    service = part_of_a_service()
    server = DrainingServer(uvicorn.Config(lambda: None, log_config=None), service)
    server._loop = asyncio.get_running_loop()
    server.handle_exit(signal.SIGTERM, None)
    await asyncio.sleep(0)
    assert (server.should_exit, service.concurrency_limit.draining) == (False, True)
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit


def test_one_peer_leaves_as_many_connections_as_it_has(monkeypatch):
    monkeypatch.setattr("odar.serving.connections.client_connections", lambda: 8)
    limits = ConnectionLimits()
    assert [limits.acquire("a") for _ in range(6)] == [True] * 4 + [False] * 2
    assert [limits.acquire("b") for _ in range(3)] == [True] * 2 + [False]
    assert limits.acquire("c")


async def test_full_tables_of_files_are_logged(caplog):
    loop = asyncio.get_running_loop()
    _on_loop_error(loop, {"exception": OSError(errno.EMFILE, "Too many open files"), "message": "accept"})
    assert [record.message for record in caplog.records if "raise ulimit -n" in record.message]


async def test_freed_memory_is_returned_once_it_has_grown(monkeypatch):
    trimmed = []
    monkeypatch.setattr(server, "trim_memory", lambda: trimmed.append(True))
    draining = DrainingServer(uvicorn.Config(None), part_of_a_service())
    draining._trim_above = 100
    for size, counter in ((90, 0), (101, 1), (101, 50)):
        monkeypatch.setattr(server, "resident_bytes", lambda size=size: size)
        await draining.on_tick(counter)
    assert trimmed == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is another")
def test_memory_between_objects_in_use_is_returned():
    code = """
from odar.serving.server import resident_bytes, return_freed_memory, trim_memory
return_freed_memory()
texts = [b"x" * 5000 for _ in range(20_000)]
kept = texts[::50]
del texts
before = resident_bytes()
trim_memory()
print(before - resident_bytes())
"""
    freed = int(subprocess.check_output([sys.executable, "-c", code]))
    assert freed > 50e6
