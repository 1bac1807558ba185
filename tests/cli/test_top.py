"""`odar top` against a real gateway: for machines, in a terminal, and where there is none."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from contextlib import contextmanager
from types import SimpleNamespace

import aiohttp
import pytest
from rich.console import Console

from odar.cli.top import _gateway, _History
from odar.cli.top_figures import Sample, figures
from odar.cli.top_view import Page, page
from odar.errors import InputError
from support.environment import kept_environment
from support.fault_server import FaultServer
from support.gateway import turn
from support.gateway_process import Process

CODE = "from odar.cli.main import main; main()"


@pytest.fixture
async def gateway(tmp_path):
    async with FaultServer() as up:
        process = await Process.start(tmp_path, up)
        async with aiohttp.ClientSession() as http:
            for model in ("odar", "odar-hard", "nonsense"):
                async with http.post(
                    process.url + "/v1/chat/completions", json={"model": model, "messages": turn()}
                ):
                    pass
        yield process
        process.process.terminate()
        await process.process.communicate()


async def run(folder, *arguments, **environ):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CODE, "top", *arguments),
        cwd=folder,
        env={**kept_environment(), "HOME": str(folder), **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert "Traceback" not in err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_once_for_machines(gateway, tmp_path):
    code, out, _ = await run(tmp_path, gateway.url, "--once", "--json", "--every", "0.1")
    told = json.loads(out)
    assert code == 0
    assert told["status"] == "ready"
    assert told["since_start"]["requests"] == 3
    assert told["since_start"]["paths"]["hard"]["requests"] == 1
    assert told["since_start"]["errors"] == {"404": 1}
    assert told["now"]["requests_per_s"] == 0
    assert told["now"]["store_up"] is True
    assert told["since_start"]["models"]["m"]["provider"] == "up"


async def test_a_pipe_gets_one_page(gateway, tmp_path):
    code, out, _ = await run(tmp_path, gateway.url.removeprefix("http://"), "--every", "0.1")
    assert code == 0
    assert "store writing" in out
    assert "\x1b" not in out


async def test_nothing_listens_there(tmp_path):
    code, _, err = await run(tmp_path, "http://127.0.0.1:9", "--once")
    assert code == 2
    assert re.match(r"odar: no gateway answers at http://127.0.0.1:9 \(.*\); start one with `odar serve`", err)


async def test_something_else_listens_there(tmp_path):
    async def page(exchange):
        await exchange.send(b"<html>", content_type="text/html")

    async with FaultServer() as other:
        other.behave(page)
        code, _, err = await run(tmp_path, other.origin, "--once")
    assert code == 2
    assert "is not that of an odar gateway (status 200)" in err


@pytest.mark.parametrize("text", [b"odar_in_flight one\n", b'odar_in_flight{a="b} 1\n', b"odar_in_flight \xff\n"])
async def test_what_looks_like_figures_and_is_not(tmp_path, text):
    async def page(exchange):
        await exchange.send(text, content_type="text/plain")

    async with FaultServer() as other:
        other.behave(page)
        code, out, err = await run(tmp_path, other.origin, "--once", "--json")
    assert (code, err) == (2, "")
    assert "is not that of an odar gateway (status 200)" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        ((b"<html>no such page</html>", 404), "/readyz answers with status 404"),
        ((b"[1]", 200), "/readyz answers with status 200"),
        ((b'{"status": "draining"}', 503), "draining"),
    ],
)
async def test_a_proxy_that_lets_only_the_figures_through(tmp_path, ready, said):
    async def proxy(exchange):
        if exchange.path == "/metrics":
            await exchange.send(b"odar_in_flight 2.0\n", content_type="text/plain")
        else:
            await exchange.send(ready[0], status=ready[1], content_type="text/html")

    async with FaultServer() as server:
        server.behave(proxy)
        code, out, _ = await run(tmp_path, server.origin, "--once", "--json", "--every", "0.1")
    told = json.loads(out)
    assert (code, told["status"], told["now"]["in_flight"]) == (0, said, 2.0)


async def test_a_gateway_that_leaves_between_two_looks(tmp_path):
    async def once(exchange):
        if len(server.requests) > 1:
            exchange.reset()
        else:
            await exchange.send(b"odar_in_flight 0.0\n", content_type="text/plain")

    async with FaultServer() as server:
        server.behave(once)
        code, out, err = await run(tmp_path, server.origin, "--once", "--every", "0.1")
    assert (code, out) == (2, "")
    assert "no gateway answers at" in err


@pytest.mark.parametrize("address", ["ftp://127.0.0.1:9", "http://[::1", "http://127.0.0.1:99999"])
async def test_what_is_no_address(tmp_path, address):
    code, _, err = await run(tmp_path, address, "--once")
    assert (code, err) == (2, f"odar: {address} is not an address; write it like http://127.0.0.1:8088\n")


async def test_a_key_from_the_environment(tmp_path):
    async def guarded(exchange):
        await exchange.send(b"who are you?", status=401)

    async with FaultServer() as server:
        server.behave(guarded)
        code, _, err = await run(tmp_path, server.origin, "--once", ODAR_API_KEY="sk-planted")
        assert server.requests[0].headers["authorization"] == "Bearer sk-planted"
    assert code == 2
    assert "wants a key (status 401); set ODAR_API_KEY" in err
    assert "sk-planted" not in err


async def test_json_without_once(tmp_path):
    code, out, _ = await run(tmp_path, "--json")
    assert code == 2
    assert "--json goes with --once" in json.loads(out)["error"]["message"]


@contextmanager
def terminal(folder, url, rows=24, columns=80):
    """`odar top` in a terminal of its own; yields its process id and a way to read the screen's bytes."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environ = {**kept_environment(), "HOME": str(folder), "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-c", CODE, "top", url, "--every", "0.2"], environ)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.set_blocking(descriptor, False)
    try:
        yield pid, descriptor
    finally:
        os.close(descriptor)


async def read_until(descriptor, wanted, seen=b"", timeout_s=20):
    async with asyncio.timeout(timeout_s):
        while wanted not in seen:
            try:
                seen += os.read(descriptor, 65536)
            except BlockingIOError:
                await asyncio.sleep(0.02)
            except OSError:  # the other end is closed
                return seen
    return seen


async def ended(pid):
    async with asyncio.timeout(10):
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("leave", ["q", "ctrl-c", "terminate"])
async def test_a_terminal_is_left_as_it_was(gateway, tmp_path, leave):
    with terminal(tmp_path, gateway.url) as (pid, descriptor):
        before = termios.tcgetattr(descriptor)
        seen = await read_until(descriptor, b"store")
        assert b"\x1b[?1049h" in seen  # the other screen
        assert not termios.tcgetattr(descriptor)[3] & termios.ICANON
        if leave == "terminate":
            os.kill(pid, signal.SIGTERM)
        else:
            os.write(descriptor, b"q" if leave == "q" else b"\x03")
        seen = await read_until(descriptor, b"\x1b[?1049l", seen)
        assert await ended(pid) == 0
        assert b"\x1b[?1049l" in seen
        assert b"\x1b[?25h" in seen  # the cursor is back
        assert termios.tcgetattr(descriptor)[3] == before[3]


async def test_it_goes_on_when_the_gateway_has_gone(tmp_path):
    async with FaultServer() as up:
        gateway = await Process.start(tmp_path, up)
        with terminal(tmp_path, gateway.url) as (pid, descriptor):
            await read_until(descriptor, b"ready")
            gateway.process.kill()
            await gateway.process.communicate()
            await read_until(descriptor, b"gives no answer")
            os.write(descriptor, b"q")
            assert await ended(pid) == 0


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10)])
def test_a_page_fits_its_screen(width, height):
    text = "".join(f'odar_calls_total{{model="m{i}",provider="p"}} {i}\n' for i in range(40))
    shown = figures(Sample.parse("# TYPE odar_calls counter\n" + text, 1.0))
    console = Console(width=width, file=io.StringIO())
    console.print(page(Page("http://127.0.0.1:8088", "ready", shown), width, height))
    text = console.file.getvalue()
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    if height >= 24:
        assert len(lines) <= height
        assert ("34 more on a taller screen" in text) is (height == 24)


async def test_a_gateway_that_comes_back_counts_from_nothing():
    """What it did before it was started anew must not be told as a negative rate, nor twice."""
    told = {"count": 40.0, "up": True}

    async def behave(exchange):
        if not told["up"]:
            exchange.reset()
        elif exchange.path == "/metrics":
            text = f'odar_in_flight 0.0\nodar_requests_total{{path="simple",status="200"}} {told["count"]}\n'
            await exchange.send(text.encode(), content_type="text/plain")
        else:
            await exchange.send_json({"status": "ready"})

    async with FaultServer() as server, _gateway(server.origin) as gateway:
        server.behave(behave)
        history = _History(gateway, window=30)
        first = await history.next()
        assert (first.status, first.figures.window_s, first.figures.requests) == ("ready", None, 40)
        told["count"] = 44.0
        second = await history.next()
        assert (second.figures.requests, len(second.history)) == (4, 1)
        told["up"] = False
        for _ in range(2):
            gone = await history.next()
            assert (gone.status, gone.figures.requests) == ("gives no answer", 4)
        told.update(up=True, count=1.0)
        back = await history.next()
        assert (back.status, back.figures.requests, len(back.history)) == ("ready", 1, 1)
        told["count"] = 3.0
        assert (await history.next()).figures.requests == 2


async def test_looks_older_than_the_window_are_forgotten(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("odar.cli.top.time", SimpleNamespace(monotonic=lambda: float(next(now))))

    async def behave(exchange):
        if exchange.path == "/metrics":
            await exchange.send(b"odar_in_flight 0.0\n", content_type="text/plain")
        else:
            await exchange.send_json({"status": "ready"})

    async with FaultServer() as server, _gateway(server.origin) as gateway:
        server.behave(behave)
        history = _History(gateway, window=25)
        windows = [(await history.next()).figures.window_s for _ in range(6)]
    assert windows == [None, 10, 20, 20, 20, 20]


async def test_the_first_look_at_nothing_is_an_error():
    async with _gateway("http://127.0.0.1:9") as gateway:
        with pytest.raises(InputError, match="no gateway answers"):
            await _History(gateway, window=30).next()


@pytest.mark.parametrize(
    ("up", "queue", "lost", "said"),
    [
        (None, None, None, "store not reported"),
        (True, 3.0, 0.0, "store writing, 3 waiting"),
        (False, 12.0, 2.0, "store cannot write, 12 waiting 2 lost"),
    ],
)
def test_the_line_on_the_store(up, queue, lost, said):
    figure = figures(Sample.parse("odar_in_flight 1\n", 1.0))
    shown = dataclasses.replace(figure, store_up=up, store_queue=queue, store_lost=lost)
    console = Console(width=80, file=io.StringIO())
    console.print(page(Page("http://h", "ready", shown, live=False), 80, 24))
    assert said in console.file.getvalue()
