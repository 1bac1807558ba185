"""Recent conversations, for the decisions of `odar.policy.session`.

A conversation is identified by its `x-session-id` (or Codex's `session_id`) header, or else by its beginning: the
client's messages before the model's last turn, for each API key and `user`. Only digests are stored. The table is
limited in size and age. The workers of a gateway share it; gateways with one PostgreSQL share its table `sessions`.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

import msgspec
from sqlalchemy import delete, select

from odar.conversation import Message
from odar.errors import StoreError
from odar.policy.session import Session, SessionRequest
from odar.traces.database import Database, sessions, upsert
from odar.types import Query, Trace

SESSION_TTL_S = 3600.0
"""Seconds after its last answer that a conversation is kept."""
_MAX_UNSAVED = 10_000
_SESSION_HEADERS = (b"x-session-id", b"session_id")
_DECODER = msgspec.msgpack.Decoder(Session)
_HEAD = struct.Struct("<16s8sdII")
"""Digests of session and API key, time of the last answer, checksum and length of the state that follows."""
_SLOT_BYTES = 1024
_WAYS = 4
"""Slots in which a session can be."""


class StoredSessions:
    """Sessions that gateways on several machines share: written with the traces, read at the next request.

    Thread-safe; only `put` can be called in an event loop.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._unsaved: dict[str, tuple[bytes, float]] = {}
        self._is_down = False

    def put(self, key: bytes, state: bytes, at: float) -> None:
        """Store the state of a session with the next traces; returns at once. If too many wait, it is dropped."""
        with self._lock:
            if len(self._unsaved) < _MAX_UNSAVED:
                self._unsaved[key.hex()] = state, at

    def get(self, key: bytes) -> bytes | None:
        """The last state of a session that a gateway stored; None while the database fails."""
        if self._is_down:
            return None
        with self._database.read() as connection:
            return connection.scalar(select(sessions.c.state).where(sessions.c.id == key.hex()))

    def write(self) -> None:
        """Write the queued states; an older state never replaces a newer one."""
        with self._lock:
            batch, self._unsaved = self._unsaved, {}
        if not batch:
            return
        rows = [{"id": key, "state": state, "at": at} for key, (state, at) in sorted(batch.items())]
        try:
            with self._database.write() as connection:
                statement = upsert(connection)(sessions).values(rows)
                new = {name: statement.excluded[name] for name in ("state", "at")}
                newer = sessions.c.at < statement.excluded.at
                connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=new, where=newer))
            self._is_down = False
        except BaseException:
            self._is_down = True
            with self._lock:
                self._unsaved = batch | self._unsaved
            raise

    def delete_old(self) -> None:
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.at < time.time() - SESSION_TTL_S))


class SessionTable:
    """Sessions by their digests, in memory that processes share if it is made before they are forked.

    A set-associative cache: the digest selects a set of four slots. There are no locks: if two processes write to
    one slot at once, its checksum is wrong and the session counts as missing. A new session replaces an older one
    of the same API key, if the set has one.

    Args:
        size: largest number of sessions, rounded up to a multiple of four.
        clock: returns the time in seconds, the same on all machines.
    """

    def __init__(self, size: int, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sets = max(1, -(-size // _WAYS))
        self._memory = mmap.mmap(-1, self._sets * _WAYS * _SLOT_BYTES)
        self.stored: StoredSessions | None = None
        """Sessions of other machines, which `find` reads too; None if there are none."""
        self.explicit_caches: Collection[str] = ()
        """Providers whose cache keeps only what a request marks."""

    def find(self, query: Query, headers: Iterable[tuple[bytes, bytes]] = (), key_id: str = "") -> SessionRequest:
        """The request as the next of its session, or as the first of a new one; may read the database."""
        # what identifies the session: its name if it has one, else its beginning
        name = next((value for header, value in headers if header in _SESSION_HEADERS and value.strip()), b"")
        client = repr((key_id, name, "" if name else query.parameters.user)).encode()
        scope = hashlib.blake2b(client, digest_size=16).digest()
        before, whole = _digests(query.messages, scope)
        # the last state, from this machine or from another
        now = self._clock()
        session = self._read(scope if name else before)
        if self.stored is not None and (name or before):
            with suppress(StoreError):  # an answer without its prices of caches is better than none
                state = self.stored.get(scope if name else before)
                elsewhere = Session() if state is None else _DECODER.decode(state)
                session = max(session, elsewhere, key=attrgetter("at"))
        if now - session.at > SESSION_TTL_S:
            session = Session()
        return session.request(query, now, before, key=scope if name else whole, whole=whole)

    def save(self, request: SessionRequest, trace: Trace, key_id: str = "") -> None:
        """Keep the state of a session after an answer."""
        now = self._clock()
        state = msgspec.msgpack.encode(request.after(trace, now, self.explicit_caches))
        owner = hashlib.blake2b(key_id.encode(), digest_size=8).digest()
        if len(state) <= _SLOT_BYTES - _HEAD.size:
            self._write(request.key, owner, state, now)
        if self.stored is not None:
            self.stored.put(request.key, state, now)

    def _write(self, key: bytes, owner: bytes, state: bytes, now: float) -> None:
        # the session's own slot, else an empty one, else the oldest of the same API key, else the oldest
        ranks = {
            offset: (stored == key, not any(stored), by == owner, -used)
            for offset, stored, by, used in self._slots(key)
        }
        offset = max(ranks, key=ranks.__getitem__)
        head = _HEAD.pack(key, owner, now, zlib.crc32(state), len(state))
        self._memory[offset : offset + len(head) + len(state)] = head + state

    def _slots(self, key: bytes) -> Iterable[tuple[int, bytes, bytes, float]]:
        """Yield offset, key, owner and time of each slot in which a session can be."""
        first = int.from_bytes(key[:8], "little") % self._sets * _WAYS
        for slot in range(first, first + _WAYS):
            stored, owner, used, *_ = _HEAD.unpack_from(self._memory, slot * _SLOT_BYTES)
            yield slot * _SLOT_BYTES, stored, owner, used

    def _read(self, key: bytes) -> Session:
        for offset, stored, *_ in self._slots(key):
            *_, checksum, length = _HEAD.unpack_from(self._memory, offset)
            state = self._memory[offset + _HEAD.size : offset + _HEAD.size + length]
            if length and stored == key and zlib.crc32(state) == checksum:
                return _DECODER.decode(state)
        return Session()


def _digests(messages: Sequence[Message], scope: bytes) -> tuple[bytes, bytes]:
    """Digests of the client's messages before the model's last turn (empty if it had none), and of all.

    The model's messages are left out: clients change their format, and they follow from the rest.
    """
    digest = hashlib.blake2b(scope, digest_size=16)
    before = b""
    for message in messages:
        if message.role == "assistant":
            before = digest.digest()
            continue
        parts = [message.role, message.text, message.tool_call_id or "", *(i.url or "" for i in message.images)]
        for raw in (*(part.encode("utf-8", "replace") for part in parts), *(i.data for i in message.images)):
            digest.update(len(raw).to_bytes(8, "big") + raw)
    return before, digest.digest()
