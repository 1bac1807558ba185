"""Recent conversations of this process, for the decisions of `odar.policy.session`.

A conversation is identified by its `x-session-id` (or Codex's `session_id`) header, or else by its beginning: the
client's messages before the model's last turn, for each API key and `user`. Only digests are stored. The table is
limited in size and age and belongs to one process: another process routes a request as the first of a conversation.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from odar.conversation import Message
from odar.policy.session import Session, SessionRequest
from odar.types import Query, Trace

_SESSION_HEADERS = (b"x-session-id", b"session_id")


class _StoredSession(NamedTuple):
    session: Session
    prefix: bytes
    """Digest of the client's messages so far."""
    at: float


_DECODER = msgspec.msgpack.Decoder(_StoredSession)


class OpenSession(NamedTuple):
    """A session while a request of it is being answered."""

    request: SessionRequest
    key: bytes
    prefix: bytes


class SessionTable:
    """Sessions by their digests; the least recently used are dropped first.

    Args:
        size: largest number of sessions.
        ttl_s: seconds after its last request that a session is kept.
        clock: returns the time in seconds.
    """

    def __init__(self, size: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._ttl_s, self._clock = size, ttl_s, clock
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        """Each `_StoredSession` as MessagePack, which takes a quarter of the memory."""

    def __len__(self) -> int:
        return len(self._entries)

    def open(
        self, query: Query, headers: Iterable[tuple[bytes, bytes]] = (), key_id: str | None = None
    ) -> OpenSession:
        """Return the session that a request continues, or a new one."""
        name = next((value for header, value in headers if header in _SESSION_HEADERS and value.strip()), b"")
        owner = repr((key_id, name, "" if name else query.options.user)).encode()
        scope = hashlib.blake2b(owner, digest_size=16).digest()
        before, whole = _digests(query.messages, scope)
        now = self._clock()
        stored = self._entries.get(scope if name else before)
        entry = None if stored is None else _DECODER.decode(stored)
        if entry is None or now - entry.at > self._ttl_s:
            entry = _StoredSession(Session(), b"", now)
        request = entry.session.request(query, now, same_prefix=entry.prefix == before)
        return OpenSession(request, scope if name else whole, whole)

    def close(self, opened: OpenSession, trace: Trace) -> None:
        """Store the state of the session after its answer."""
        now = self._clock()
        assert trace.plan.session is not None
        session = opened.request.after(trace.plan.session, trace.plan.agents, trace.calls, now)
        entry = _StoredSession(session, opened.prefix, now)
        self._entries[opened.key] = msgspec.msgpack.encode(entry)
        self._entries.move_to_end(opened.key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)


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
