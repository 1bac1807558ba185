"""Clients that ask questions continuously, over all three protocols, streamed and whole, and record each result."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp

SLACK_S = 1.5
"""Additional time for a deadline on a busy machine."""
ANSWER, DEGRADED, ERROR, BROKEN, LEFT, SILENT = "answer", "degraded", "error", "broken off", "left", "silent"
_ENDPOINTS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_MODELS = ("odar", "odar-simple", "odar-simple", "odar-medium", "odar-hard")
_ENDS = ("[DONE]", '"message_stop"', '"response.completed"')
_FAILS = ('"error"', '"response.failed"')


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and its result for the client."""

    number: int
    outcome: str
    """answer · degraded · error · broken off · left · silent."""
    seconds: float
    finished_at: float
    """On the monotonic clock."""
    status: int = 0
    code: str = ""
    """The code of an error."""
    trace: str | None = None
    unclear: str = ""
    """The fault of an incomplete answer or an unclear error."""


class Load:
    """Clients of one gateway. `async with Load(...) as load:` asks until the end of the block.

    Args:
        url: the gateway.
        numbers: where questions get their numbers: no two in a run are the same.
        clients: how many ask at a time.
        deadline_s: the gateway's own; a client waits a little longer, then the question counts as silent.
        leaving: share of the questions whose client leaves before the answer.
    """

    def __init__(
        self, url: str, numbers: Iterator[int], clients: int = 16, deadline_s: float = 3.0, leaving: float = 0.0
    ) -> None:
        self.asked: list[Asked] = []
        self._url = url
        self._numbers = numbers
        self._clients = clients
        self._deadline_s = deadline_s
        self._leaving = leaving
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._tasks = [asyncio.create_task(self._client(seed)) for seed in range(self._clients)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self._session.close()

    async def _client(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stop.is_set():
            self.asked.append(await self.ask(rng))
            await asyncio.sleep(0.02)

    async def ask(self, rng: random.Random, model: str | None = None) -> Asked:
        """Ask one question and record its result."""
        number, began = next(self._numbers), time.monotonic()
        endpoint, stream = rng.choice(list(_ENDPOINTS)), rng.random() < 0.5
        body = _body(endpoint, model or rng.choice(_MODELS), number, stream)
        patience = rng.uniform(0, 0.3) if rng.random() < self._leaving else None

        def seen(outcome: str, **more: Any) -> Asked:
            now = time.monotonic()
            return Asked(number, outcome, now - began, now, **more)

        try:
            async with asyncio.timeout(patience or self._deadline_s + SLACK_S):
                async with self._session.post(self._url + _ENDPOINTS[endpoint], json=body) as response:
                    text = await response.text()
                    return _judge(response, text, stream, seen)
        except TimeoutError:
            return seen(SILENT if patience is None else LEFT)
        except (aiohttp.ClientError, ConnectionError) as error:
            return seen(BROKEN, code=type(error).__name__)


def _body(endpoint: str, model: str, number: int, stream: bool) -> dict[str, Any]:
    text = f"Question {number}: what is 2 + 2, and why?"
    turns = [{"role": "user", "content": text}]
    body: dict[str, Any] = {"model": model, "stream": stream}
    match endpoint:
        case "responses":
            return body | {"input": text}
        case "messages":
            return body | {"messages": turns, "max_tokens": 100}
    return body | {"messages": turns}


def _judge(response: aiohttp.ClientResponse, text: str, stream: bool, seen: Any) -> Asked:
    """Return the kind of result, and its fault if a client cannot use it."""
    known = {"status": response.status, "trace": response.headers.get("x-odar-trace")}
    if response.status != 200:
        return seen(ERROR, **known, **_error(text, response.status))
    if stream and not any(end in text for end in _ENDS):
        if not any(fail in text for fail in _FAILS):
            return seen(ERROR, **known, unclear=f"a stream that just ends: …{text[-60:]!r}")
        last = text.rsplit("data: ", 1)[-1]
        return seen(ERROR, **known, **_error(last, response.status))
    if "4" not in text:
        return seen(ANSWER, **known, unclear=f"no answer in it: {text[:60]!r}")
    return seen(DEGRADED if '"degraded":true' in text.replace(" ", "") else ANSWER, **known)


def _error(text: str, status: int) -> dict[str, str]:
    """Return the code of an error and its fault."""
    try:
        body = json.loads(text)
        error = body.get("error") or body["response"]["error"]
        message, code = error["message"], str(error.get("code") or error.get("type") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"unclear": f"an error without words: {status} {text[:80]!r}"}
    if code == "internal_error" or message.startswith("internal error"):
        return {"code": code, "unclear": f"an error nobody foresaw: {message!r}"}
    return {"code": code, "unclear": "" if message else "an error without a message"}


def numbered() -> Iterator[int]:
    """Return numbers for questions."""
    return itertools.count(1)
