"""Attacks of one key that cost the others: large numbers, refusals, replies and statistics that it provokes (issue 36)."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
from collections import Counter
from functools import partial
from typing import Any

from attack.availability import CHAT, MARK, again_and_again, marked, question, status_of
from attack.scene import HEALTHY, Scene, attack

from odar.served.counts import SYNC_S
from support.fault_server import Behaviour, Exchange, status


@attack(36.02, "large numbers", keys={"greedy": ("--budget-day", "1"), "fast": ("--rate", "6000/min")}, brief=True)
async def large_numbers(scene: Scene) -> None:
    """`max_tokens` of 200 million and of 2**53, `n` of 128, from keys with a budget and with a rate."""
    bodies = [
        (CHAT, question("odar-medium", max_tokens=200_000_000)),
        (CHAT, question("odar-hard", max_tokens=2**53, n=128)),
        ("/v1/completions", {"model": "quick", "prompt": ["a"] * 64, "max_tokens": 2**53, "best_of": 128}),
    ]
    seen: Counter[int] = Counter()
    for key in ("greedy", "fast"):
        for path, body in bodies:
            asked = [scene.post(path, body, headers=scene.auth(key)) for _ in range(4)]
            seen += Counter(status for status, _ in await asyncio.gather(*asked))
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 400, 429}, f"got {dict(seen)}")


@attack(36.04, "large questions that are refused")
async def large_refusals(scene: Scene) -> None:
    """26 questions of 30 MB that the model server refuses; their memory is free again within 20 seconds."""
    refuse: Behaviour = status(413)
    marked(scene.fast, refuse)
    marked(scene.slow, refuse)
    body = json.dumps(question("quick", MARK + "x" * 30_000_000)).encode()
    seen: Counter[Any] = Counter()
    for _ in range(13):
        seen += Counter(await asyncio.gather(*(status_of(scene, CHAT, body) for _ in range(2))))
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) == {413}, f"got {dict(seen)}")


SECRET = "marmalade-of-zanzibar"


@attack(36.11, "errors that quote the request", brief=True)
async def quoting_errors(scene: Scene) -> None:
    """A model server whose errors quote tools, arguments and earlier turns, also in base64; nothing is stored or logged."""
    encoded = base64.b64encode(SECRET.encode()).decode()

    async def quote(exchange: Exchange) -> None:
        error = {"message": f"cannot read {SECRET} {encoded}", "code": f"bad {SECRET}", "type": SECRET}
        await exchange.send_json({"error": error}, 400)

    marked(scene.fast, quote)
    marked(scene.slow, quote)
    tool = {"type": "function", "function": {"name": "f", "description": SECRET, "parameters": {}}}
    turns = [{"role": "user", "content": MARK}, {"role": "assistant", "content": SECRET}]
    for model in ("quick", "odar-simple", "odar-medium", "odar-hard"):
        for stream in (False, True):
            body = question(model, tools=[tool], stream=stream) | {"messages": [*turns, *turns[:1]]}
            await status_of(scene, CHAT, body)
    await asyncio.sleep(1.0)  # the store is written every 0.2 s
    files = [scene.gateway.log, *scene.folder.glob("traces.db*")]
    found = [file.name for file in files if any(each.encode() in file.read_bytes() for each in (SECRET, encoded))]
    scene.check(not found, f"text of the request is in {', '.join(found)}")
    scene.say("8 requests")


def _logprobs(tokens: int, alternatives: int) -> dict[str, Any]:
    entry = {"token": " word", "logprob": -0.25, "bytes": list(b" word")}
    return {"content": [{**entry, "top_logprobs": [entry] * alternatives}] * tokens}


def _reply(choices: int, tokens: int, alternatives: int) -> bytes:
    """A long answer with log-probabilities, as a model server writes it."""
    message = {"role": "assistant", "content": " word" * (tokens - 2) + "\nAnswer: 4"}
    choice = {"message": message, "finish_reason": "stop", "logprobs": _logprobs(tokens, alternatives)}
    usage = {"prompt_tokens": 10, "completion_tokens": choices * tokens}
    listed = [{"index": index, **choice} for index in range(choices)]
    return json.dumps({"model": "served", "choices": listed, "usage": usage}).encode()


def _embeddings(count: int, size: int) -> bytes:
    vector = [round(0.001 * number - 0.7, 6) for number in range(size)]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)]
    return json.dumps({"object": "list", "data": data, "model": "served", "usage": {"prompt_tokens": 9}}).encode()


async def _send(reply: bytes, exchange: Exchange) -> None:
    await exchange.send(reply)


@attack(36.06, "large replies")
async def large_replies(scene: Scene) -> None:
    """60 samples of 100 tokens with 20 alternatives, ten Hard questions of 4,000 tokens, 2,048 embeddings of 1,536 numbers."""
    requests: dict[str, tuple[str, dict[str, Any], int]] = {
        "samples": (CHAT, question("quick", n=60, logprobs=True, top_logprobs=20), 1),
        "answers": (CHAT, question("odar-hard"), 10),
        "embeddings": ("/v1/embeddings", {"model": "quick", "input": [MARK] * 2048}, 1),
    }
    replies = {"samples": _reply(1, 100, 20), "answers": _reply(1, 4000, 1), "embeddings": _embeddings(2048, 1536)}
    seen: Counter[Any] = Counter()
    for name, (path, body, at_once) in requests.items():
        marked(scene.fast, partial(_send, replies[name]))
        marked(scene.slow, partial(_send, replies[name]))
        statuses = Counter(await asyncio.gather(*(status_of(scene, path, body) for _ in range(at_once))))
        seen += statuses
        scene.check(set(statuses) <= {200, 504}, f"{name}: got {dict(statuses)}")
    scene.say(f"{seen[200]} of {seen.total()} answered")


@attack(36.07, "replies beyond the limit")
async def replies_beyond_limit(scene: Scene) -> None:
    """18 replies of more than 64 MB, as a client gets with `n`; the provider stays available to everybody else."""
    piece = b" " * 2**20

    async def endless(exchange: Exchange) -> None:
        await exchange.head(200, "application/json", 80 * len(piece))
        for _ in range(80):
            await exchange.write(piece)

    marked(scene.fast, endless)
    seen: Counter[Any] = Counter()
    for _ in range(3):
        seen += Counter(await asyncio.gather(*(status_of(scene, CHAT, question("quick")) for _ in range(6))))
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) == {502}, f"got {dict(seen)}")


@attack(36.05, "thousands of targets", keys={"fickle": ()}, brief=True)
async def many_targets(scene: Scene) -> None:
    """Every request of one key has another target, while a question of another key with a target is on its way."""

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.5)
        await scene.fast.answer_normally(exchange)

    marked(scene.fast, slowly)
    own = question("odar", odar={"target_calls": 1.25})
    asked = [asyncio.create_task(scene.post(CHAT, own, headers=scene.auth(HEALTHY))) for _ in range(10)]
    numbers = itertools.count()

    async def ask() -> int:
        body = question("odar", "2 + 2?", odar={"target_calls": 1.5 + next(numbers) / 100_000})
        status, _ = await scene.post(CHAT, body, headers=scene.auth("fickle"))
        return status

    seen = await again_and_again(scene, 12, ask)
    statuses = {status for status, _ in await asyncio.gather(*asked)}
    scene.say(f"{seen.total()} requests")
    scene.check(statuses == {200}, f"questions of another key got {statuses}")
    scene.check(set(seen) == {200}, f"got {dict(seen)}")


@attack(
    36.02,
    "long questions",
    keys={"paid": ("--budget-day", "100000"), "metered": ("--tokens", "1000000000"), "free": ()},
)
async def long_questions(scene: Scene) -> None:
    """Questions of 24 MB, with budgets and limits on tokens, whose text is measured, hashed and sent many times."""
    text = MARK + " é" * 8_000_000
    bodies = {
        CHAT: question("odar", text, max_tokens=100),
        "/v1/messages": question("odar-hard", text, max_tokens=100),
        "/v1/completions": {"model": "quick", "prompt": text, "max_tokens": 5},
    }
    seen: Counter[Any] = Counter()
    for key in ("paid", "metered", "free"):
        for path, body in bodies.items():
            data = io.BytesIO(json.dumps(body, ensure_ascii=False).encode())
            async with scene.http.post(scene.url + path, data=data, headers=scene.auth(key)) as response:
                await response.read()
                seen[response.status] += 1
    scene.say(f"{seen.total()} requests")
    scene.check(set(seen) <= {200, 504}, f"got {dict(seen)}")


def _long_answer(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"model": "served", "choices": [choice], "usage": {"prompt_tokens": 9}}).encode()


@attack(36.06, "long answers")
async def long_answers(scene: Scene) -> None:
    """Answers of 3 and of 16 MB without log-probabilities, and thinking that is streamed in a million small pieces."""
    pieces = ("Answer: 4\n", "\n", "\\boxed{", '"', "**", "<task>\n", "é ")
    seen: Counter[Any] = Counter()
    for size in (3_000_000, 16_000_000):
        for piece in pieces:
            reply = _long_answer(piece * (size // len(piece)))
            for upstream in (scene.fast, scene.slow):
                marked(upstream, partial(_send, reply))
            seen[await status_of(scene, CHAT, question("odar-medium", f"{MARK}: what is 2 + 2?"))] += 1

    async def think(exchange: Exchange) -> None:
        delta = json.dumps({"choices": [{"index": 0, "delta": {"content": "a > b "}}]})
        begin = json.dumps({"choices": [{"index": 0, "delta": {"content": "<think>"}}]})
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", "", ""]
        await exchange.write("\r\n".join(lines).encode())
        await exchange.chunk(f"data: {begin}\n\n".encode())
        for _ in range(1000):
            await exchange.chunk(f"data: {delta}\n\n".encode() * 100)
        await exchange.chunk(
            b'data: {"choices": [{"index": 0, "delta": {"content": "</think>4"}, "finish_reason": "stop"}]}\n\n'
        )
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    marked(scene.fast, think)
    seen[await status_of(scene, CHAT, question("quick", stream=True))] += 1
    scene.say(f"{seen[200]} of {seen.total()} answered, {seen[502]} refused")
    scene.check(set(seen) <= {200, 502, 504}, f"got {dict(seen)}")


@attack(36.08, "answers that move statistics", keys={"noisy": (), "honest": ()})
async def moved_statistics(scene: Scene) -> None:
    """One key fetches hundreds of answers with odd lengths and log-probabilities; those of another are decided as before."""

    async def odd(exchange: Exchange) -> None:
        await exchange.send(_reply(1, 400, 1))

    marked(scene.fast, odd)
    marked(scene.slow, odd)

    async def paths() -> list[Any]:
        found = []
        for number in range(10):
            turns = [{"role": "user", "content": f"Question {number}: what is {number} + {number}?"}]
            body = {"model": "odar", "messages": turns}
            status, text = await scene.post(CHAT, body, headers=scene.auth("honest"))
            found.append((status, json.loads(text)["odar"]["path"]))
        return found

    before = await paths()

    async def ask() -> int:
        return (await scene.post(CHAT, question("odar", f"{MARK}: what?"), headers=scene.auth("noisy")))[0]

    seen = await again_and_again(scene, 8, ask)
    await asyncio.sleep(SYNC_S)
    seen[await ask()] += 1  # now the statistics are added up
    await asyncio.sleep(1.0)
    after = await paths()
    scene.say(f"{seen.total()} requests, paths {' '.join(path for _, path in after)}")
    scene.check(set(seen) == {200}, f"got {dict(seen)}")
    scene.check(before == after, f"paths before {before}, after {after}")
