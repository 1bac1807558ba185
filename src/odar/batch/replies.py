"""Replies that an unfinished item has paid for already: kept as they come, and not asked for again.

The provider is shared by all items of a process; which item a request belongs to is told by the context it runs in.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from odar.batch.journal import Memo
from odar.conversation import ToolCall
from odar.providers.base import Completion, OnText, ProviderAround, Reply, Request, score_text
from odar.types import Token, Usage


@dataclasses.dataclass(slots=True)
class _Current:
    """The item that a task works on, and how often it has made each request."""

    memo: Memo
    seen: Counter[str] = dataclasses.field(default_factory=Counter)


_current: ContextVar[_Current | None] = ContextVar("odar_batch_item", default=None)


@contextmanager
def replies_kept_in(memo: Memo) -> Iterator[None]:
    """Requests made inside, and in tasks started inside, are answered from this memo where they can be."""
    token = _current.set(_Current(memo))
    try:
        yield
    finally:
        _current.reset(token)


class RememberingProvider(ProviderAround):
    """A provider that asks nothing twice for the same item. A guard for `Odar`."""

    async def complete(self, request: Request, on_text: OnText | None = None) -> Reply:
        """The reply from the memo, or else the provider's, which goes into the memo."""
        return await _remembered(name_of(self.name, request), lambda: self._provider.complete(request, on_text))

    async def score(self, request: Request, text: str) -> Reply:
        """The score from the memo, or else the provider's, if it can score."""
        name = name_of(f"{self.name} score {text}", request)
        return await _remembered(name, lambda: score_text(self._provider, request, text))


async def _remembered(same: str, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    current = _current.get()
    if current is None:
        return await ask()
    name = f"{same}:{current.seen[same]}"  # samples without a seed are several requests that look alike
    current.seen[same] += 1
    if (kept := current.memo.recall(name)) is not None:
        return reply_of(kept)
    reply = await ask()
    if any(completion.text.strip() or completion.tool_calls for completion in reply.completions):
        current.memo.keep(name, plain(reply))  # an empty reply would only make the item fail again
    return reply


def name_of(provider: str, request: Request) -> str:
    """A name for what is asked; how much time is left for it does not matter."""
    timeless = dataclasses.replace(request, timeout_s=0.0)
    return hashlib.sha256(f"{provider} {timeless!r}".encode()).hexdigest()[:32]


def plain(reply: Reply) -> dict[str, Any]:
    """A reply as JSON-ready data, without the words of its protocol.

    >>> reply_of(plain(Reply((Completion("4", (Token("4", -0.1),)),), Usage(1, 0, 1, 0), "m"))).completions[0].text
    '4'
    """
    return {
        "completions": [
            {
                "text": c.text,
                "finish": c.finish,
                "tokens": c.tokens,
                "calls": [dataclasses.astuple(t) for t in c.tool_calls],
            }
            for c in reply.completions
        ],
        "usage": dataclasses.asdict(reply.usage),
        "model": reply.model,
        "retries": reply.retries,
    }


def reply_of(kept: dict[str, Any]) -> Reply:
    """The reply that `plain` was given."""
    completions = tuple(
        Completion(
            each["text"],
            tuple(Token(*token) for token in each["tokens"]),
            each["finish"],
            tuple(ToolCall(*call) for call in each["calls"]),
        )
        for each in kept["completions"]
    )
    return Reply(completions, Usage(**kept["usage"]), kept["model"], kept["retries"])
