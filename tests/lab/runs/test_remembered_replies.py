from __future__ import annotations

import asyncio

import pytest

from odar.conversation import ToolCall
from odar.errors import ProviderTimeout
from odar.lab.runs.batch import remember_replies, use_memo
from odar.lab.runs.journal import Memo
from odar.providers.base import Completion, Message, Reply, Request, Sampling
from odar.providers.replay import reply_from_json, reply_to_json
from odar.types import Token, Usage
from support.scripted import ScriptedProvider, completion


def request(text="2 + 2?", seed=None):
    return Request("m", (Message("user", text),), Sampling(seed=seed))


@pytest.fixture
def scripted():
    return ScriptedProvider(lambda asked, index: [completion(f"Answer: {index}")])


async def ask(provider, asked):
    reply = await remember_replies(provider)(asked, lambda: provider.complete(asked))
    return reply.completions[0].text


async def test_no_request_of_an_item_is_sent_twice(scripted):
    kept = {}
    with use_memo(Memo({}, kept.__setitem__)):
        first = [await ask(scripted, request()), await ask(scripted, request("3 + 3?"))]
    with use_memo(Memo(kept, kept.__setitem__)):
        again = [await ask(scripted, request()), await ask(scripted, request("3 + 3?"))]
        new = await ask(scripted, request("4 + 4?"))
    assert (first, again, new) == (["Answer: 0", "Answer: 1"], ["Answer: 0", "Answer: 1"], "Answer: 2")
    assert len(kept) == 3


async def test_identical_requests_are_numbered(scripted):
    kept = {}
    with use_memo(Memo({}, kept.__setitem__)):
        first = await asyncio.gather(*(ask(scripted, request()) for _ in range(3)))
    with use_memo(Memo(kept, kept.__setitem__)):
        again = await asyncio.gather(*(ask(scripted, request()) for _ in range(4)))
    assert again == [*first, "Answer: 3"]


async def test_concurrent_items_keep_separate_replies(scripted):
    kept = {}

    async def item(name):
        kept[name] = {}
        with use_memo(Memo({}, kept[name].__setitem__)):
            await asyncio.gather(ask(scripted, request()), ask(scripted, request(name)))

    await asyncio.gather(item("a"), item("b"))
    assert [len(replies) for replies in kept.values()] == [2, 2]


async def test_a_request_is_identified_by_its_seed_but_not_by_its_timeout(scripted):
    kept = {}
    with use_memo(Memo({}, kept.__setitem__)):
        await ask(scripted, request(seed=1))
    with use_memo(Memo(kept, kept.__setitem__)):
        assert await ask(scripted, Request("m", request().messages, Sampling(seed=1), timeout_s=1.5)) == "Answer: 0"
        assert await ask(scripted, request(seed=2)) == "Answer: 1"


async def test_failures_are_not_kept(scripted):
    scripted.script = lambda asked, index: ProviderTimeout("no answer")
    kept = {}
    with use_memo(Memo({}, kept.__setitem__)), pytest.raises(ProviderTimeout):
        await ask(scripted, request())
    assert kept == {}


async def test_outside_of_an_item_every_request_is_sent(scripted):
    assert [await ask(scripted, request()), await ask(scripted, request())] == ["Answer: 0", "Answer: 1"]


def test_a_reply_survives_a_round_trip():
    tokens = (Token("4", -0.1), Token("", None, True))
    calls = (ToolCall("id", "look_up", "{}"),)
    reply = Reply((Completion("4", tokens, "length", calls),), Usage(1, None, 2, 0), "served", retries=2)
    assert reply_from_json(reply_to_json(reply)) == reply
