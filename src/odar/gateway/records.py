"""The store behind the gateway's ports: keys that are verified there, requests that are written down there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from odar.errors import KeyRefused, UnknownName
from odar.gateway.errors import CLIENT_LEFT
from odar.gateway.ports import ApiKey, Entry, Stop
from odar.store.keys import Key
from odar.store.record import CANCELLED, ERROR, Record, Unanswered, path_of
from odar.store.store import Store
from odar.types import NO_USAGE, Answer, Query, Spend


@dataclass(frozen=True, slots=True)
class StoredApiKey(ApiKey):
    """A grant that remembers its key."""

    key: Key | None = None


class StoredKeys:
    """Bearer keys made by `odar keys`. What requests cost is booked by the store when they are written down."""

    def __init__(self, store: Store) -> None:
        self._ring = store.keyring

    def empty(self) -> bool:
        """Whether nobody has made a key yet."""
        return len(self._ring) == 0

    def verify(self, secret: str) -> ApiKey | None:
        """The grant behind a secret."""
        key = self._ring.verify(secret)
        if key is None:
            return None
        models, paths = key.limits.models, key.limits.paths
        return StoredApiKey(
            key.id,
            None if models is None else frozenset(models),
            None if paths is None else frozenset(paths),
            self._ring.left(key),
            key.name,
            key.admin,
            key,
        )

    def admit(self, grant: ApiKey) -> Stop | None:
        """Count a request against the key's rate, and look at its budget."""
        assert isinstance(grant, StoredApiKey)
        assert grant.key is not None
        try:
            self._ring.allow(grant.key)
        except KeyRefused as refused:
            return Stop(str(refused), refused.retry_after)
        return None


class StoredRecord:
    """Every request as a trace in the store; one that came to nothing as far as it came."""

    def __init__(self, store: Store, profile: str) -> None:
        self._store = store
        self._profile = profile

    def put(self, entry: Entry) -> None:
        """Queue it; microseconds."""
        extra = {"endpoint": entry.endpoint, "asked": entry.model, "status": entry.status, "stream": entry.stream}
        self._store.put(Record(entry.query or Query(""), self._outcome(entry), entry.key_id, extra))

    async def feedback(self, trace_id: str, correct: bool, note: str) -> bool:
        """Mark a trace as right or wrong."""
        try:
            await self._store.mark(trace_id, correct, note or None)
        except UnknownName:
            return False
        return True

    async def close(self) -> None:
        """Write everything that is queued."""
        await self._store.close()

    def _outcome(self, entry: Entry) -> Answer | Unanswered:
        trace = entry.trace
        if trace is not None:
            winner = trace.candidates[trace.verdict.winner]
            return Answer(winner.answer, winner.text, trace)
        return Unanswered(
            id=entry.trace_id,
            started_at=_ago(entry.seconds),
            profile=self._profile,
            status=CANCELLED if entry.status == CLIENT_LEFT else ERROR,
            error=entry.error,
            path=path_of(entry.decision) if entry.decision else None,
            decision=entry.decision,
            calls=entry.calls,
            spend=entry.spend or Spend(0, NO_USAGE, 0.0, entry.seconds),
        )


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
