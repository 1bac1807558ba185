"""Which parts of a prompt are worth keeping in a provider's cache that keeps only what a request marks.

Anthropic charges 1.25 times the price of a prompt for writing it to the cache, and a tenth for reading it. So a
prefix is marked from its second use on: instructions and tools if an earlier request had them, and the whole
conversation if an earlier request was its beginning. What is too short for the model is not cached, and costs
nothing extra. Only digests are kept.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odar.providers.base import Request

MIN_CHARS = 4 * 1024
"""Characters of the shortest prefix that is marked, about 1,024 tokens: the minimum of most models."""
KEPT_S = 300.0
"""Seconds that a prefix stays in the cache after its last use."""
_MAX_PREFIXES = 10_000


class PromptCache:
    """Prefixes of recent prompts of one provider."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()
        """When a prefix was last used, and whether it was marked."""
        self._in_flight: set[bytes] = set()
        """Prefixes that a request is writing: others that start meanwhile would pay for writing them again."""

    @contextmanager
    def use(self, request: Request) -> Iterator[tuple[bool, bool]]:
        """Yield whether to mark the instructions (tools and system prompt) and the whole conversation.

        The prefixes of the request are remembered after it has been answered.
        """
        prefixes = list(_prefixes(request))
        head, head_size = prefixes[0]
        whole, size = prefixes[-1]
        between = prefixes[1:-1]
        earlier = [self._was_marked(digest) for digest, _ in between]
        continues = any(marked is not None for marked in earlier)
        writing: list[bytes] = []
        repeated = head_size >= MIN_CHARS and self._was_marked(head) is not None
        instructions = repeated and self._may_mark(head, writing)
        conversation = size >= MIN_CHARS and continues and (any(earlier) or self._may_mark(whole, writing))
        try:
            yield instructions, conversation
        finally:
            self._in_flight.difference_update(writing)
        for digest, marked in ((head, instructions), (whole, conversation)):
            self._seen[digest] = (self._clock(), bool(marked or self._was_marked(digest)))
            self._seen.move_to_end(digest)
        while len(self._seen) > _MAX_PREFIXES:
            self._seen.popitem(last=False)

    def _was_marked(self, digest: bytes) -> bool | None:
        """Whether a prefix was marked at its last use; None without a recent use."""
        used_at, marked = self._seen.get(digest, (-math.inf, False))
        return marked if self._clock() - used_at < KEPT_S else None

    def _may_mark(self, digest: bytes, writing: list[bytes]) -> bool:
        """Whether a prefix is in the cache, or no other request is writing it."""
        if self._was_marked(digest):
            return True
        if digest in self._in_flight:
            return False
        self._in_flight.add(digest)
        writing.append(digest)
        return True


def _prefixes(request: Request) -> Iterator[tuple[bytes, int]]:
    """Yield digest and length of the instructions, then of the conversation up to each turn."""
    system = [message.text for message in request.messages if message.role == "system"]
    tools = [f"{tool.name}\0{tool.description}\0{tool.parameters}" for tool in request.parameters.tools]
    digest = hashlib.blake2b(digest_size=16)
    size = 0
    for parts in ([request.model, *tools, "\0", *system], *_turns(request)):
        for part in parts:
            raw = part.encode("utf-8", "replace")
            size += len(part)
            digest.update(len(raw).to_bytes(8, "big") + raw)
        yield digest.digest(), size


def _turns(request: Request) -> Iterator[list[str]]:
    """Yield the parts of each turn of the user and of tools; the model's own follow from them."""
    for message in request.messages:
        if message.role in ("user", "tool"):
            images = [image.url or hashlib.blake2b(image.data).hexdigest() for image in message.images]
            yield [message.role, message.text, message.tool_call_id or "", *images]
