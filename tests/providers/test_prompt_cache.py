"""`cache_control` on prompts that repeat, for clients whose protocol has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from odar.conversation import ChatParameters, Message, Tool
from odar.errors import ProviderError
from odar.providers.anthropic import AnthropicProvider
from odar.providers.base import Request
from odar.providers.prompt_cache import KEPT_S, PromptCache
from support.fault_server import FaultServer, anthropic_ok
from support.requests import ask

LONG = "Answer as a lawyer would. " * 200
MARK = {"type": "ephemeral"}


def chat(*texts: str, system: str = LONG, **fields: Any) -> Request:
    """Return a conversation whose turns alternate."""
    roles = ("user", "assistant")
    turns = [Message(roles[i % 2], text) for i, text in enumerate(texts)]
    return ask(messages=(Message("system", system), *turns), **fields)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cache() -> PromptCache:
    return PromptCache(Clock())


def marks(cache: PromptCache, request: Request) -> tuple[bool, bool]:
    with cache.use(request) as found:
        return found


def test_instructions_are_marked_from_their_second_use_on(cache: PromptCache) -> None:
    assert marks(cache, chat("One?")) == (False, False)
    assert marks(cache, chat("Two?")) == (True, False)
    assert marks(cache, chat("Three?", system=LONG + "!")) == (False, False)  # others
    assert marks(cache, replace(chat("Four?"), model="other")) == (False, False)  # a cache of its own
    cache._clock.now = KEPT_S
    assert marks(cache, chat("Five?")) == (False, False)  # the provider has forgotten them


def test_a_conversation_is_marked_when_it_goes_on(cache: PromptCache) -> None:
    assert marks(cache, chat("One?")) == (False, False)
    assert marks(cache, chat("One?")) == (True, False)  # the same question again is no conversation
    assert marks(cache, chat("One?", "1", "Two?")) == (True, True)
    assert marks(cache, chat("One?", "1", "Two?", "2", "Three?")) == (True, True)


def test_short_prompts_are_not_marked(cache: PromptCache) -> None:
    for text in ("One?", "Two?"):
        assert marks(cache, chat(text, system="Be brief.")) == (False, False)


def test_requests_at_once_do_not_all_pay_for_writing(cache: PromptCache) -> None:
    marks(cache, chat("One?"))
    with cache.use(chat("Two?")) as first, cache.use(chat("Three?")) as second:
        assert (first, second) == ((True, False), (False, False))
    with cache.use(chat("Four?")) as third, cache.use(chat("Five?")) as fourth:
        assert (third, fourth) == ((True, False), (True, False))  # they read


def test_a_failed_request_has_written_nothing(cache: PromptCache) -> None:
    with pytest.raises(ProviderError), cache.use(chat("One?")):
        raise ProviderError("down")
    assert marks(cache, chat("Two?")) == (False, False)
    with pytest.raises(ProviderError), cache.use(chat("Three?")):
        raise ProviderError("down")
    assert marks(cache, chat("Four?")) == (True, False)


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as running:
        running.behave(anthropic_ok("Yes."))
        yield running


async def sent(server: FaultServer, *requests: Request, **options: Any) -> list[dict[str, Any]]:
    provider = AnthropicProvider("claude", server.origin, **options)
    for request in requests:
        await provider.complete(request)
    await provider.close()
    return [exchange.json for exchange in server.requests]


async def test_the_marks_are_sent(server: FaultServer) -> None:
    first, second = await sent(server, chat("One?"), chat("One?", "1", "Two?"))
    assert "cache_control" not in str(first)
    assert second["system"] == [{"type": "text", "text": LONG, "cache_control": MARK}]
    assert second["messages"][-1]["content"] == [{"type": "text", "text": "Two?", "cache_control": MARK}]
    assert str(second).count("cache_control") == 2


async def test_tools_are_marked_if_there_is_no_system_prompt(server: FaultServer) -> None:
    parameters = ChatParameters(tools=(Tool("a", LONG), Tool("b", "B")))
    requests = [ask(messages=(Message("user", text),), parameters=parameters) for text in ("One?", "Two?")]
    _, second = await sent(server, *requests)
    assert [tool.get("cache_control") for tool in second["tools"]] == [None, MARK]


@pytest.mark.parametrize("case", ["switched off", "price unknown", "client of the protocol"])
async def test_nothing_is_marked(server: FaultServer, case: str) -> None:
    fields: dict[str, Any] = {"cache": False} if case == "price unknown" else {}
    if case == "client of the protocol":
        fields["parameters"] = ChatParameters(protocol="anthropic")
    requests = (chat("One?", **fields), chat("One?", "1", "Two?", **fields))
    bodies = await sent(server, *requests, cache_prompts=case != "switched off")
    assert len(bodies) == 2 and "cache_control" not in str(bodies)
