"""A conversation in OpenAI's format with a Claude model: what is marked, read from the cache, and paid."""

from __future__ import annotations

from typing import Any

from support.fault_server import Exchange
from support.payloads import message_payload

SYSTEM = {"role": "system", "content": "Answer as a lawyer would. " * 200}
MODELS = {
    "quick": {"provider": "f", "price": {"input": 1, "output": 2}},
    "claude": {"provider": "s", "price": {"input": 1.0, "cached": 0.1, "output": 5.0, "written": 1.25}},
}


class Cache:
    """A server that reads what an earlier request has marked, and writes what this one marks."""

    def __init__(self) -> None:
        self.size = 0

    async def __call__(self, exchange: Exchange) -> None:
        body = exchange.json
        total = len(str(body["messages"])) + len(str(body["system"]))
        marked = total if "cache_control" in str(body["messages"][-1]) else 0
        read = self.size if marked else 0
        self.size = max(self.size, marked)
        usage = {"input_tokens": total - max(marked, read), "cache_read_input_tokens": read, "output_tokens": 3}
        usage |= {"cache_creation_input_tokens": marked - read, "cache_creation": {"ephemeral_1h_input_tokens": 0}}
        await exchange.send_json(message_payload("Yes.") | {"usage": usage})


async def test_a_conversation_is_read_from_the_cache_and_priced_so(start: Any, slow: Any) -> None:
    slow.behave(Cache())
    live = await start(slow_kind="anthropic", models=MODELS, slow__model="claude", policy="slow")
    messages: list[Any] = [SYSTEM]
    for text in ("May I?", "And now?", "And tomorrow?", "And on Sundays?"):
        messages.append({"role": "user", "content": text})
        reply = await live.openai.chat.completions.create(model="odar", messages=messages)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    traces = [record.trace for record in live.memory_store.records]
    usages = [trace.calls[0].usage for trace in traces]
    assert usages[0].written == 0, "nobody knows whether it goes on"
    assert usages[1].written == usages[1].input and usages[1].cached == 0
    assert usages[2].cached == usages[1].input and usages[3].cached == usages[2].input
    assert traces[3].spend.cost_usd < 0.2 * traces[0].spend.cost_usd
    # the plan knows it too: what was written is expected to be read (SPEC 9.4)
    planned = [trace.plan.prices["slow"] for trace in traces]
    assert planned[1] >= planned[0] and planned[2] < planned[1]


async def test_it_can_be_switched_off(start: Any, slow: Any) -> None:
    slow.behave(Cache())
    providers = {
        "f": {"kind": "openai", "base_url": slow.url},
        "s": {"kind": "anthropic", "base_url": slow.url, "cache_prompts": False},
    }
    live = await start(providers=providers, models=MODELS, slow__model="claude", policy="slow")
    for _ in range(3):
        await live.openai.chat.completions.create(
            model="odar", messages=[SYSTEM, {"role": "user", "content": "Hm?"}]
        )
    assert "cache_control" not in str([exchange.json for exchange in slow.requests])
