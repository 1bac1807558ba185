"""Attacks of one key that take memory and turns from the others, in ways that the fifteen items do not name (issue 36)."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
from attack.availability import CHAT, MARK, again_and_again, marked, question, status_of
from attack.provoked import _reply, _send
from attack.scene import HEALTHY, Scene, attack

from support.fault_server import Exchange

PATIENCE_S = 3.0
"""How long a question of 67 kB of another key may take at the median; alone it takes 0.05 s."""


@asynccontextmanager
async def long_questions_of_others(scene: Scene) -> AsyncIterator[None]:
    """Another key asks questions of 67 kB meanwhile; they are answered, and in time."""
    body = json.dumps(question(text="word " * 13_400 + " what is 2 + 2?")).encode()
    seconds: list[float] = []
    statuses: Counter[int] = Counter()

    async def ask() -> None:
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.7", 0))
        async with aiohttp.ClientSession(connector=connector, headers=scene.auth(HEALTHY)) as http:
            while True:
                began = time.monotonic()
                async with http.post(scene.url + CHAT, data=io.BytesIO(body)) as response:
                    await response.read()
                seconds.append(time.monotonic() - began)
                statuses[response.status] += 1
                await asyncio.sleep(0.05)

    asking = asyncio.create_task(ask())
    try:
        yield
        while not seconds:
            await asyncio.sleep(0.1)
    finally:
        asking.cancel()
    median = statistics.median(seconds)
    scene.say(f"{len(seconds)} questions of 67 kB took {median:.2f} s at the median")
    scene.check(set(statuses) == {200}, f"questions of another key got {dict(statuses)}")
    scene.check(median < PATIENCE_S, f"questions of another key took {median:.1f} s")


async def _asked(scene: Scene, body: bytes) -> int:
    async with scene.http.post(scene.url + CHAT, data=io.BytesIO(body), headers=scene.auth("large")) as response:
        await response.read()
        return response.status


@attack(36.04, "large questions at once", keys={"large": ()})
async def large_at_once(scene: Scene) -> None:
    """One key sends 12 questions of 30 MB at once, which the model server takes a second to answer."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(1.0)
        await scene.fast.answer_normally(exchange)

    marked(scene.fast, slowly)
    body = json.dumps(question("quick", MARK + "x" * 30_000_000)).encode()
    before = scene.gateway.memory_mb()
    async with long_questions_of_others(scene):
        seen = Counter(await asyncio.gather(*(_asked(scene, body) for _ in range(12))))
    peak = scene.gateway.memory_mb("VmHWM") - before
    scene.say(f"{seen[200]} of {seen.total()} answered, {seen[429]} refused")
    scene.check(set(seen) <= {200, 429, 504}, f"got {dict(seen)}")
    scene.check(peak < 600, f"the memory grew by {peak:.0f} MB")


@attack(36.10, "questions of many parts", keys={"large": ()})
async def many_parts(scene: Scene) -> None:
    """One key sends questions of 4,000 parts, a megabyte each, 24 at a time; each takes long to read."""
    parts = [{"type": "text", "text": "word " * 40} for _ in range(4000)]
    turns = [{"role": "user", "content": [*parts, {"type": "text", "text": MARK}]}]
    body = json.dumps({"model": "odar-simple", "messages": turns}).encode()
    async with long_questions_of_others(scene):
        seen = await again_and_again(scene, 24, partial(_asked, scene, body))
    scene.say(f"{seen[200]} of {seen.total()} answered")
    scene.check(set(seen) <= {200, 429, 504}, f"got {dict(seen)}")


@attack(36.10, "traces of long answers", keys={"large": ()}, settings={"store.content": "true"})
async def long_traces(scene: Scene) -> None:
    """One key reads traces of six answers with 30,000 tokens each, and exports all of them, again and again."""
    for upstream in (scene.fast, scene.slow):
        marked(upstream, partial(_send, _reply(1, 30_000, 1)))
    trace_id = ""
    for _ in range(4):
        asked = question("odar-hard", f"{MARK}: what is 2 + 2?")
        status, text = await scene.post(CHAT, asked, headers=scene.auth("large"))
        scene.check(status in (200, 504), f"got {status}: {text[:200]}")
        trace_id = json.loads(text)["odar"]["trace_id"] if status == 200 else trace_id
    paths = itertools.cycle((f"traces/{trace_id}", "traces?text=nothing", "export", f"traces/{trace_id}"))

    async def read() -> int:
        url = f"{scene.url}/dashboard/api/{next(paths)}"
        async with scene.http.get(url, headers=scene.auth("large")) as response:
            await response.read()
            return response.status

    seen = await again_and_again(scene, 4, read)
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 429}, f"got {dict(seen)}")


@attack(36.06, "streams of tiny events")
async def tiny_events(scene: Scene) -> None:
    """A model server streams a million events of nine bytes, 28,000 at a time."""

    async def stream(exchange: Exchange) -> None:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "", ""]
        await exchange.write("\r\n".join(lines).encode())
        for _ in range(40):
            await exchange.chunk(b"data:{}\n\n" * 28_000)
        await exchange.chunk(b"")

    marked(scene.fast, stream)
    seen = Counter([await status_of(scene, CHAT, question("quick", stream=True)) for _ in range(2)])
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 502, 504}, f"got {dict(seen)}")


@attack(36.06, "errors of many megabytes")
async def large_errors(scene: Scene) -> None:
    """A model server answers with status 200 and an error of 9 MB of numbers, then of 30 MB of text."""
    errors: list[Any] = [
        {"message": "no", "type": "server_error", "more": list(range(1_000_000))},
        "é" * 15_000_000,
    ]
    seen: Counter[Any] = Counter()
    for error in errors:
        marked(scene.fast, partial(_send, json.dumps({"error": error}, ensure_ascii=False).encode()))
        seen += Counter([await status_of(scene, CHAT, question("quick")) for _ in range(3)])
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {500, 502, 504}, f"got {dict(seen)}")


@attack(36.02, "dials beyond reason", brief=True)
async def odd_dials(scene: Scene) -> None:
    """Dials, values, targets and limits of 5e-324 to 1e308, not a number, or 5,000 digits, in bodies and headers."""
    names = ("dial", "value_usd", "target_calls", "target_cost_usd", "max_calls", "max_cost_usd", "deadline_s")
    values = (5e-324, 1e-308, 1e-12, 1e308, -1, 2**63, 10**400, "nan", "inf", "1e999", "5" * 5000, "٣")
    seen: Counter[int] = Counter()
    for name, value in itertools.product(names, values):
        header = {f"x-odar-{name.replace('_', '-')}": str(value)}
        for _ in range(2):  # the second one meets what the first left in the statistics
            seen[(await scene.post(CHAT, question("odar", "What is 2 + 2?", odar={name: value})))[0]] += 1
            seen[(await scene.post(CHAT, question("odar", "What is 2 + 2?"), headers=header))[0]] += 1
    scene.say(f"{seen.total()} requests, {seen[200]} answered")
    scene.check(set(seen) <= {200, 400, 422, 504}, f"got {dict(seen)}")


@attack(36.10, "decisions with many answers")
async def many_answers(scene: Scene) -> None:
    """Requests for a decision with 32 answers: short ones, ones of 100 kB, and ones with 300 log-probabilities each."""
    logprobs = [{"token": " word", "logprob": -0.25}] * 300
    kinds: list[list[dict[str, Any]]] = [
        [{"agent": "slow", "text": f"Answer: {number}"} for number in range(32)],
        [{"agent": "slow", "text": f"word {number} " * 10_000 + f"\nAnswer: {number}"} for number in range(32)],
        [
            {"agent": ("fast", "slow")[number % 2], "text": " word" * 300, "logprobs": logprobs}
            for number in range(32)
        ],
    ]
    bodies = itertools.cycle(
        json.dumps(question("odar", "What is 2 + 2?", answers=each)).encode() for each in kinds
    )
    seen = await again_and_again(scene, 3, lambda: status_of(scene, "/v1/decision", next(bodies)))
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 400, 504}, f"got {dict(seen)}")
