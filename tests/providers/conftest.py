"""A model server, and a check that no task or connection is left after a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from odar.providers import http
from odar.providers.anthropic import AnthropicProvider
from odar.providers.llamacpp import Engine, acquire_engine, release_engine
from odar.providers.local import LocalProvider
from odar.providers.openai import OpenAIProvider
from odar.providers.weights import ensure_weights, find_weights
from support.fault_server import FaultServer
from support.requests import KEY


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    """Fail the test if a task or a connection is left."""
    async with FaultServer() as server:
        before = asyncio.all_tasks()
        yield server
        await server.until_idle(connections=0)
        own = {asyncio.current_task()}  # fixtures are torn down in a task of their own
        left = asyncio.all_tasks() - before - server.tasks - own
        assert not left, f"left behind: {left}"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.005)


@pytest.fixture
async def openai(server: FaultServer) -> AsyncIterator[OpenAIProvider]:
    provider = OpenAIProvider("up", server.url, KEY, key_hint="set UP_API_KEY")
    yield provider
    await provider.close()


@pytest.fixture
async def anthropic(server: FaultServer) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider("claude", server.origin, KEY, key_hint="set UP_API_KEY")
    yield provider
    await provider.close()


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine of the session with the loaded model, on one thread."""
    engine = acquire_engine(ensure_weights(find_weights("smollm2-135m")), threads=1, context=512)
    yield engine
    release_engine(engine)


@pytest.fixture
async def provider(engine: Engine) -> AsyncIterator[LocalProvider]:
    """A local provider that uses this engine."""
    provider = LocalProvider(threads=1, contexts={"smollm2-135m": 512})
    yield provider
    await provider.close()
