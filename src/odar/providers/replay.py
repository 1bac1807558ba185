"""Replay of recorded replies: no network, no cost, the same reply every time.

A recording is a JSONL file, one object a line, as written by `record`:

    {"model": "gpt-4.1",                   the requested model
     "messages": "9f2c…",                  digest of the conversation; null for any
     "completions": [{"text": "…", "finish": "stop", "tokens": [["The", -0.01, false], …],
                      "tool_calls": [{"id": "c1", "name": "weather", "arguments": "{}"}, …]}, …],
     "usage": {"input": 12, "cached": 0, "output": 3, "reasoning": 0},     numbers or null
     "served_by": "gpt-4.1-2025-04-14"}    the model as the server named it

Only model and completions are required, and of a completion only its text. Several recordings of the same
request are replayed in file order; those with a digest come before those without.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from odar.errors import InputError, ProviderError
from odar.formats import load_json
from odar.providers.base import Message, OnDelta, Provider, Reply, Request

RecordedReply = tuple[str, Reply, str | None]
"""A model, its reply, and the digest of the conversation; None for any request to the model."""


class ReplayProvider(Provider):
    """Replays each recorded reply once.

    >>> import asyncio
    >>> from odar.providers.base import Completion
    >>> four = ("m", Reply((Completion("4"),)), None)
    >>> provider = ReplayProvider("replay", [four])
    >>> asyncio.run(provider.complete(Request("m", (Message("user", "2 + 2?"),)))).completions[0].text
    '4'
    """

    def __init__(self, name: str, recordings: Iterable[RecordedReply]) -> None:
        self.name = name
        self._left: dict[tuple[str, str | None], deque[Reply]] = defaultdict(deque)
        for model, reply, conversation in recordings:
            self._left[model, conversation].append(reply)

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        exact = digest(request.messages)
        queue = self._left.get((request.model, exact)) or self._left.get((request.model, None))
        if not queue:
            reason = f"no recording is left for model {request.model!r} and messages {exact}; record it first"
            raise ProviderError(f"{self.name}: {reason}", provider=self.name, code="no_recording")
        reply = queue.popleft()
        if on_delta is not None and request.n == 1 and reply.completions:
            on_delta(reply.completions[0].delta)
        return replace(reply, completions=reply.completions[: request.n])

    async def check(self, model: str = "") -> str:
        return f"{sum(map(len, self._left.values()))} recordings"


def digest(messages: Sequence[Message]) -> str:
    """A digest of a conversation: roles, texts and images.

    >>> digest([Message("user", "2 + 2?")])
    '722617401bc0e05c291c905eda21a4c7'
    """
    content = [
        [m.role, m.text, [image.url or hashlib.sha256(image.data).hexdigest() for image in m.images]]
        for m in messages
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def record(request: Request, reply: Reply) -> str:
    """One line of a recording, without its line break."""
    line = {"model": request.model, "messages": digest(request.messages), **reply_to_json(reply)}
    return json.dumps(line, ensure_ascii=False)


def reply_to_json(reply: Reply) -> dict[str, Any]:
    """A reply as plain data, without the raw response.

    >>> reply_from_json(reply_to_json(Reply((), model="m"))).model
    'm'
    """
    completions = [
        {"text": c.text, "tokens": c.tokens, "finish": c.finish, "tool_calls": [asdict(t) for t in c.tool_calls]}
        for c in reply.completions
    ]
    usage = asdict(reply.usage)
    return {"completions": completions, "usage": usage, "served_by": reply.model, "retries": reply.retries}


def reply_from_json(entry: Mapping[str, Any]) -> Reply:
    """The reply from the result of `reply_to_json`; ValueError if it is invalid."""
    fields = {**entry, "usage": entry.get("usage") or {}, "model": entry.get("served_by", "")}
    return msgspec.convert(fields, Reply)


def load_replies(path: Path) -> list[RecordedReply]:
    """The recorded replies of a JSONL file; blank lines are skipped."""
    recordings = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"recording {path} cannot be read: {exc}") from exc
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                entry: dict[str, Any] = load_json(line)
                recordings.append((entry["model"], reply_from_json(entry), entry.get("messages")))
        except (ValueError, TypeError, LookupError, AttributeError) as exc:
            reason = f"{type(exc).__name__}: {exc}"
            raise InputError(f"recording {path}, line {number}: not a recorded reply ({reason})") from exc
    return recordings
