"""A live gateway on its own port, with scripted upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from odar.config import load_settings
from odar.errors import UnknownName
from odar.serving.app import create_app
from odar.serving.keys import PREFIX_LENGTH, Key, KeyCache, digest_of
from odar.serving.server import DrainingServer, make_server
from odar.serving.service import Service
from odar.traces.confidence_sequence import Differences
from odar.traces.record import Record
from odar.traces.writer import Health
from support.fault_server import FaultServer


def api_key(id_: str, secret: str, *, admin: bool = False, **limits: Any) -> Key:
    """Return a key with this secret."""
    prefix, digest = secret[:PREFIX_LENGTH], digest_of(secret)
    return Key(id_, id_, prefix, digest, "2026-11-15T00:00:00+00:00", admin=admin, **limits)


class MemoryStore:
    """A store in memory that tests can read."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.entries: list[Record] = []
        self.records: list[Record] = []
        self.marks: list[tuple[str, bool, str | None]] = []
        self.closed = False
        self.key_cache = KeyCache()
        self.key_cache.load(keys)
        self.sessions = None
        self.observations = SimpleNamespace(
            fallback_at=None, fell_back=lambda key_id: False, comparison=Differences
        )

    def put(self, record: Record) -> None:
        self.records.append(record)

    def health(self) -> Health:
        return Health(True, 0, len(self.records), 0, 0, None)

    async def mark(self, trace_id: str, correct: bool, note: str | None = None, by: str | None = None) -> None:
        if all(record.trace.id != trace_id for record in self.records):
            raise UnknownName("trace", trace_id, [])
        self.marks.append((trace_id, correct, note))

    async def close(self) -> None:
        self.closed = True


@dataclass
class Live:
    """A running gateway."""

    url: str
    server: DrainingServer
    service: Service
    memory_store: MemoryStore
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

    async def entry(self) -> Record:
        """Wait for the first record, which is written after the answer was sent."""
        async with asyncio.timeout(60):
            while not self.memory_store.entries:
                await asyncio.sleep(0.005)
        return self.memory_store.entries[0]

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
async def start(up: FaultServer, slow: FaultServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Return a function that starts gateways; they are stopped after the test, and no upstream request may be left.

    Failed calls are not repeated, and a gateway stops at once, unless `constants` of the code say otherwise.
    """
    async with AsyncExitStack() as stack:

        async def go(
            keys: Iterable[Key] = (),
            store: Any = None,
            slow_kind: str = "openai",
            app_options: Any = None,
            constants: Mapping[str, Any] | None = None,
            **overrides: Any,
        ) -> Live:
            once = {"odar.providers.http.ATTEMPTS": 1, "odar.serving.server.NOTICE_S": 0.0}
            for name, value in (once | dict(constants or {})).items():
                monkeypatch.setattr(name, value)
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
                        "price": {"input": 10, "output": 20},
                    },
                },
                "fast__model": "quick",
                "slow__model": "deep",
                "gateway__port": 0,
            }
            settings = load_settings("tiny", environ={}, **{**base, **overrides})
            memory_store = MemoryStore(keys)
            app = create_app(settings, **{"store": store or memory_store} | (app_options or {}))
            service: Service = app.state.service
            finish = service.finish

            def finish_and_note(entry: Record) -> None:
                finish(entry)
                memory_store.entries.append(entry)

            service.finish = finish_and_note  # type: ignore[method-assign]
            server = make_server(app, settings.gateway)
            task = asyncio.create_task(server.serve())
            while not server.started:
                assert not task.done(), task.result()
                await asyncio.sleep(0.005)
            url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

            async def stop() -> None:
                server.should_exit = True
                await task
                assert service.store is not memory_store or memory_store.closed

            stack.push_async_callback(stop)  # before the clients: they leave first
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return Live(url, server, service, memory_store, http, stack)

        yield go
    await up.until_idle(connections=0)
    await slow.until_idle(connections=0)


@pytest.fixture
async def live(start: Start) -> Live:
    """A gateway with the usual settings."""
    return await start()
