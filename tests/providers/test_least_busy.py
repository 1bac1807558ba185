from __future__ import annotations

import asyncio

from odar.providers.base import Message, Request
from odar.providers.pool import LeastBusyProvider
from support.scripted import ScriptedProvider, completion

REQUEST = Request("m", (Message("user", "Hi"),))


def members(count, delay_s=0.01):
    return [ScriptedProvider(lambda r, i: [completion("Answer: 4")], "m", delay_s) for _ in range(count)]


async def test_each_request_goes_to_the_least_busy_member():
    group = members(3)
    several = LeastBusyProvider(group)
    replies = await asyncio.gather(*(several.complete(REQUEST) for _ in range(9)))
    assert [reply.completions[0].text for reply in replies] == ["Answer: 4"] * 9
    assert [len(member.requests) for member in group] == [3, 3, 3]
    await several.close()
    assert all(member.closed for member in group)


async def test_a_cancelled_request_frees_its_member():
    group = members(2, delay_s=10)
    several = LeastBusyProvider(group)
    task = asyncio.create_task(several.complete(REQUEST))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for member in group:
        member.delay_s = 0.0
    await several.complete(REQUEST)
    assert [len(member.requests) for member in group] == [2, 0]  # the first is free again
    assert (several.name, await several.check()) == ("m", "scripted")
