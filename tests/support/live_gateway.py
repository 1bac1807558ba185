"""A live gateway on a port of its own, in front of a server that does what tests tell it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from odar.config import load_settings
from odar.gateway.app import create_app
from odar.gateway.records import Entry
from odar.gateway.server import DrainingServer, make_server
from odar.gateway.service import Service
from support.fault_server import FaultServer


@dataclass
class Notebook:
    """A recorder that tests can read."""

    entries: list[Entry] = field(default_factory=list)
    marks: list[tuple[str, bool, str]] = field(default_factory=list)
    closed: bool = False

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)

    async def feedback(self, trace_id: str, correct: bool, note: str, by: str | None = None) -> bool:
        known = any(entry.trace is not None and entry.trace.id == trace_id for entry in self.entries)
        if known:
            self.marks.append((trace_id, correct, note))
        return known

    async def close(self) -> None:
        self.closed = True


@dataclass
class Live:
    """A running gateway."""

    url: str
    server: DrainingServer
    service: Service
    notebook: Notebook
    http: aiohttp.ClientSession
    _stack: AsyncExitStack

    @cached_property
    def openai(self) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(base_url=self.url + "/v1", api_key="sk-test", max_retries=0)
        self._stack.push_async_callback(client.close)
        return client

    @cached_property
    def anthropic(self) -> anthropic.AsyncAnthropic:
        client = anthropic.AsyncAnthropic(base_url=self.url, api_key="sk-test", max_retries=0)
        self._stack.push_async_callback(client.close)
        return client

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any, Any]:
        """Status, headers and JSON body."""
        async with self.http.post(self.url + path, json=body, **options) as response:
            return response.status, response.headers, await response.json()

    async def entry(self) -> Entry:
        """The first request in the book; it is written after the answer has left."""
        async with asyncio.timeout(60):
            while not self.notebook.entries:
                await asyncio.sleep(0.005)
        return self.notebook.entries[0]

    async def text(self, path: str, body: Any) -> tuple[int, str]:
        async with self.http.post(self.url + path, json=body) as response:
            return response.status, await response.text()


@pytest.fixture
async def up() -> AsyncIterator[FaultServer]:
    """The fast agent's upstream."""
    async with FaultServer() as server:
        yield server


@pytest.fixture
async def slow() -> AsyncIterator[FaultServer]:
    """The slow agent's upstream."""
    async with FaultServer() as server:
        yield server


Start = Callable[..., Awaitable[Live]]


@pytest.fixture
async def start(up: FaultServer, slow: FaultServer) -> AsyncIterator[Start]:
    """Starts gateways, and stops them after the test; nothing may be left behind upstream."""
    async with AsyncExitStack() as stack:

        async def go(
            keys: Any = None,
            recorder: Any = None,
            slow_kind: str = "openai",
            app_options: Any = None,
            **overrides: Any,
        ) -> Live:
            base = {
                "providers": {
                    "f": {"kind": "openai", "base_url": up.url},
                    "s": {"kind": slow_kind, "base_url": slow.url},
                },
                "models": {
                    "quick": {
                        "provider": "f",
                        "logprobs": True,
                        "n": True,
                        "images": True,
                        "price": {"input": 1, "output": 2},
                    },
                    "deep": {
                        "provider": "s",
                        "logprobs": True,
                        "n": True,
                        "images": True,
                        "price": {"input": 1, "output": 2},
                    },
                },
                "fast__model": "quick",
                "slow__model": "deep",
                "retry": {"attempts": 1},
                "gateway__port": 0,
                "gateway__notice_s": 0,
            }
            settings = load_settings("tiny", environ={}, **{**base, **overrides})
            notebook = Notebook()
            app = create_app(settings, keys=keys, recorder=recorder or notebook, **(app_options or {}))
            server = make_server(app, settings.gateway)
            task = asyncio.create_task(server.serve())
            while not server.started:
                assert not task.done(), task.result()
                await asyncio.sleep(0.005)
            url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

            async def stop() -> None:
                server.should_exit = True
                await task
                assert recorder or notebook.closed

            stack.push_async_callback(stop)  # before the clients: they leave first
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return Live(url, server, app.state.service, notebook, http, stack)

        yield go
    await up.until_idle(connections=0)
    await slow.until_idle(connections=0)


@pytest.fixture
async def live(start: Start) -> Live:
    """A gateway with the usual settings."""
    return await start()
