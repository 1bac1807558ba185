"""Recent conversations of this process, for the decisions of `odar.policy.session`.

A conversation is identified by its `x-session-id` (or Codex's `session_id`) header, or else by its beginning: the
client's messages before the model's last turn, for each API key and `user`. Only digests are stored. The table is
limited in size and age and belongs to one process: another process routes a request as the first of a conversation.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from odar.conversation import Message
from odar.policy.session import Session, SessionRequest
from odar.types import Query, Trace

_SESSION_HEADERS = (b"x-session-id", b"session_id")


_DECODER = msgspec.msgpack.Decoder(Session)


class SessionTable:
    """Sessions by their digests; the least recently used of the key that has most are dropped first.

    Args:
        size: largest number of sessions.
        ttl_s: seconds after its last request that a session is kept.
        clock: returns the time in seconds.
        explicit: providers whose cache keeps only what a request marks.
    """

    def __init__(
        self,
        size: int,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
        explicit: Collection[str] = (),
    ) -> None:
        self._size, self._ttl_s, self._clock = size, ttl_s, clock
        self._explicit = explicit
        self._entries: dict[str | None, OrderedDict[bytes, bytes]] = {}
        """By API key. Each `Session` is MessagePack, which takes a quarter of the memory."""

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def open(
        self, query: Query, headers: Iterable[tuple[bytes, bytes]] = (), key_id: str | None = None
    ) -> SessionRequest:
        """Return a request as the next of its session, or as the first of a new one."""
        name = next((value for header, value in headers if header in _SESSION_HEADERS and value.strip()), b"")
        owner = repr((key_id, name, "" if name else query.options.user)).encode()
        scope = hashlib.blake2b(owner, digest_size=16).digest()
        before, whole = _digests(query.messages, scope)
        now = self._clock()
        own = self._entries.get(key_id)
        stored = None if own is None else own.get(scope if name else before)
        session = Session() if stored is None else _DECODER.decode(stored)
        if now - session.at > self._ttl_s:
            session = Session()
        return session.request(query, now, before, key=scope if name else whole, whole=whole)

    def close(self, request: SessionRequest, trace: Trace, key_id: str | None = None) -> None:
        """Store the state of the session after its answer."""
        session = request.after(trace, self._clock(), self._explicit)
        own = self._entries.setdefault(key_id, OrderedDict())
        own[request.key] = msgspec.msgpack.encode(session)
        own.move_to_end(request.key)
        while len(self) > self._size:
            key, largest = max(self._entries.items(), key=lambda each: len(each[1]))
            largest.popitem(last=False)
            if not largest:
                del self._entries[key]


def _digests(messages: Sequence[Message], scope: bytes) -> tuple[bytes, bytes]:
    """Return digests of the client's messages before the model's last turn (empty if it had none), and of all.

    The model's messages are left out: clients change their format, and they follow from the rest.
    """
    digest, before = hashlib.blake2b(scope, digest_size=16), b""
    for message in messages:
        if message.role == "assistant":
            before = digest.digest()
            continue
        parts = [message.role, message.text, message.tool_call_id or "", *(i.url or "" for i in message.images)]
        for raw in (*(part.encode("utf-8", "replace") for part in parts), *(i.data for i in message.images)):
            digest.update(len(raw).to_bytes(8, "big") + raw)
    return before, digest.digest()
