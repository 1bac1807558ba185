"""Replay captured agent sessions through the gateway's routing: switches and dollars, per session and per request.

    PYTHONPATH=src python scripts/benchmarks/replay_sessions.py docs/data/agent-sessions.jsonl.gz
    PYTHONPATH=src python scripts/benchmarks/replay_sessions.py FILE --fast claude-haiku-4-5 --slow claude-4.5-sonnet --json

The file holds requests of real clients, captured with a scripted model. Every request is read by the gateway's own readers and answered by the
engine. Only the two models are simulated: both give the reply of the transcript, the fast one unsurely at steps that the
script of the task marks as hard. Each provider has a prompt cache: the longest common prefix with what the model read
in the last five minutes, in blocks of 128 tokens from 1,024 on, as OpenAI documents it; where the catalogue has a price
for writing to the cache, the rest of the prompt is written at that price. The clock is simulated too: 15 seconds for a
step, 90 between the user's turns. Dollars are those of the ledger at catalogue prices.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odar.config import load_settings
from odar.conversation import Message, ToolCall
from odar.engine import Odar
from odar.formats import dump_json
from odar.options import AskOptions
from odar.policy.session import CACHE_S
from odar.providers.base import Completion, OnDelta, Provider, Reply, Request
from odar.serving.protocols.chat import read_chat
from odar.serving.protocols.messages import read_messages
from odar.serving.protocols.responses import read_responses
from odar.serving.sessions import SessionTable
from odar.types import FAST, SLOW, Answer, Token, Usage

READERS = {"chat": read_chat, "messages": read_messages, "responses": read_responses}
WAYS = ("always fast", "always slow", "per request", "per session")
STEP_S, TURN_S = 15.0, 90.0
_SURE, _UNSURE = -0.02, -1.6
_CHARACTERS_PER_TOKEN = 4
_BLOCK, _SHORTEST = 128, 1024


@dataclass
class Clock:
    """Simulated seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass
class Simulated(Provider):
    """A model that gives the transcript's reply, and its provider's prompt cache."""

    name: str
    clock: Clock
    writes: bool
    """Whether writing to the cache has a price of its own."""
    sure: bool
    step: dict[str, Any] = field(default_factory=dict)
    cache: list[tuple[str, float]] = field(default_factory=list)

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Give the reply of the current step, as many times as asked."""
        prompt = "".join(map(_flat, request.messages))
        tokens = sum(len(f"{tool.name}{tool.description}{tool.parameters}") for tool in request.parameters.tools)
        size = (len(prompt) + tokens) // _CHARACTERS_PER_TOKEN
        known = max((_common(prompt, text) for text, at in self.cache if self.clock() - at < CACHE_S), default=0)
        cached = known // _CHARACTERS_PER_TOKEN // _BLOCK * _BLOCK
        cached = cached if cached >= _SHORTEST else 0
        self.cache = [*self.cache[-20:], (prompt, self.clock())]
        calls = tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in self.step["calls"])
        text = self.step["text"]
        said = text + "".join(map(str, calls))
        logprob = _SURE if self.sure or not self.step["hard"] else _UNSURE
        pieces = [said[i : i + _CHARACTERS_PER_TOKEN] for i in range(0, len(said), _CHARACTERS_PER_TOKEN)]
        tokens_of = tuple(Token(piece, logprob) for piece in pieces) if request.logprobs else ()
        each = Completion(text, tokens_of, "tool_calls" if calls else "stop", calls)
        written = size - cached if self.writes else 0
        usage = Usage(size, cached, request.n * len(pieces), 0, written, 0)
        return Reply((each,) * request.n, usage, request.model)

    async def check(self) -> str:
        """Nothing to check."""
        return "simulated"

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class Totals:
    """The result of one way of routing."""

    usd: float = 0.0
    calls: int = 0
    switches: int = 0
    cached: int = 0
    read: int = 0
    hard: int = 0
    """Hard steps that the slow agent took part in."""
    usd_of: list[float] = field(default_factory=list)
    """Dollars of each session."""


def sessions(file: Path) -> Iterator[dict[str, Any]]:
    """The sessions of a file, each request with its whole body again."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            session = json.loads(line)
            name = "input" if session["protocol"] == "responses" else "messages"
            said: list[Any] = []
            body: dict[str, Any] = {}
            for request in session["requests"]:
                said = said[: request["same"]] + request["more"]
                body = body | request["fields"]
                request["body"] = {**body, name: said}
            yield session


async def replay(way: str, found: list[dict[str, Any]], fast: str, slow: str) -> Totals:
    """Answer every request of every session in one way."""
    clock, totals = Clock(), Totals()
    base = load_settings("custom", environ={}, fast__model=fast, slow__model=slow)
    cards = {agent: base.card(base.agent(agent).model) for agent in (FAST, SLOW)}
    pair = {
        agent: Simulated(card.provider, clock, bool(card.price and card.price.written), agent == SLOW)
        for agent, card in cards.items()
    }
    models = {
        agent: {"provider": agent, "id": card.id, "logprobs": card.logprobs, "price": _price(card.price)}
        for agent, card in cards.items()
    }
    settings = load_settings(
        "custom",
        environ={},
        providers={agent: {"kind": "openai", "base_url": "http://simulated"} for agent in cards},
        models=models,
        fast__model="fast",
        slow__model="slow",
    )
    odar = Odar(settings, providers=pair)
    table = SessionTable(10_000, clock)
    path = {"always fast": "simple", "always slow": None}.get(way)
    for number, session in enumerate(found):
        agent, before = None, totals.usd
        for request in session["requests"]:
            ask = READERS[session["protocol"]](request["body"])
            clock.now += STEP_S if ask.query.messages[-1].role == "tool" else TURN_S
            for model in pair.values():
                model.step = request
            options: dict[str, Any] = {"model": "slow"} if way == "always slow" else {}
            opened = table.find(ask.query, [(b"x-session-id", str(number).encode())]) if way == WAYS[-1] else None
            asked = AskOptions(path=path, session=opened, **options)
            answer: Answer = await odar.aask(ask.query, asked)
            trace = answer.trace
            if opened:
                table.save(opened, trace)
            slow_took_part = any(call.model == "slow" for call in trace.calls)
            answered = "slow" if slow_took_part else "fast"
            totals.switches += agent not in (None, answered)
            agent = answered
            totals.usd += trace.spend.cost_usd or 0.0
            totals.calls += trace.spend.calls
            totals.cached += trace.spend.usage.cached or 0
            totals.read += trace.spend.usage.input or 0
            totals.hard += request["hard"] and slow_took_part
        totals.usd_of.append(totals.usd - before)
        for model in pair.values():
            model.cache = []
    await odar.aclose()
    return totals


def _price(price: Any) -> dict[str, float]:
    names = ("input", "cached", "output", "written", "written_1h")
    return {name: value for name in names if price and (value := getattr(price, name)) is not None}


def _flat(message: Message) -> str:
    return f"<{message.role}>{message.text}{''.join(map(str, message.tool_calls))}"


def _common(one: str, two: str) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == two[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="captured sessions")
    parser.add_argument("--fast", default="gpt-5.4-nano", help="the fast agent's model, for its prices")
    parser.add_argument("--slow", default="gpt-5.4", help="the slow agent's model, for its prices")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    found = list(sessions(given.file))
    requests = sum(len(session["requests"]) for session in found)
    hard = sum(request["hard"] for session in found for request in session["requests"])
    results = {way: asyncio.run(replay(way, found, given.fast, given.slow)) for way in WAYS}
    if given.json:
        rows = {way: {**vars(t), "switches_per_session": t.switches / len(found)} for way, t in results.items()}
        print(dump_json({"sessions": len(found), "requests": requests, "hard_steps": hard, "ways": rows}).decode())
        return
    clients = sorted({session["client"] for session in found})
    print(f"{len(found)} sessions, {requests} requests, {hard} hard steps; clients: {', '.join(clients)}")
    print(f"{given.fast} / {given.slow}\n")
    print("| routing | US dollars | calls | switches per session | cached input ", end="")
    print("| hard steps with the slow agent | sessions above always slow |")
    print("|---" * 7 + "|")
    alone = results["always slow"].usd_of
    for way, t in results.items():
        share, taken = f"{t.cached / t.read:.0%}", f"{t.hard}/{hard}"
        above = sum(usd > slow + 1e-9 for usd, slow in zip(t.usd_of, alone, strict=True))
        print(f"| {way} | {t.usd:.3f} | {t.calls} | {t.switches / len(found):.2f} | {share} | {taken} | {above} |")


if __name__ == "__main__":
    main()
