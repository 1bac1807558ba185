"""What the gateway keeps: keys that are verified, requests that are written down, in the store or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from odar.errors import KeyRefused, UnknownName
from odar.policy.target import Target
from odar.store.budgets import Need, Reservation
from odar.store.record import CANCELLED, DIRECT, ERROR, OK, Record, Unanswered, path_of
from odar.store.store import Store
from odar.types import NO_USAGE, Answer, Call, Decision, Query, Spend, Trace

CLIENT_LEFT = 499
"""The status of a request whose client left before it was answered."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What a key allows."""

    key_id: str
    models: frozenset[str] | None = None
    """Names that may be asked for; None is any."""
    paths: frozenset[str] | None = None
    """Paths that may be taken; None is any."""
    budgeted: bool = False
    """Its money is limited: what a request can cost is reserved before it starts."""
    counted: bool = False
    """Its money, tokens or requests are limited: each request is reserved before it starts, and settled after."""
    name: str = ""
    admin: bool = False
    """May read every key's traces; others read their own."""
    target: Target | None = None
    """Mean calls or dollars that its questions meet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, for the record."""

    trace_id: str
    """What the client was told to call it."""
    endpoint: str
    model: str
    """The name the client asked for."""
    status: int
    """What the client was told; 499 where it had left."""
    seconds: float
    stream: bool
    key_id: str | None
    query: Query | None = None
    """Prompts: a recorder keeps them only where `store.content` allows it."""
    trace: Trace | None = None
    """None where no answer came about."""
    error: str | None = None
    decision: Decision | None = None
    """The path it had begun to take when it came to nothing."""
    calls: tuple[Call, ...] = ()
    """What had been asked of the providers by then, a call that was cut off with unknown usage."""
    spend: Spend | None = None
    """What was spent although no answer came about; None where nothing was begun."""
    request_id: str = ""
    """What the client called it, or we did."""
    settled: bool = False
    """Whether its key has paid for it already."""


class Keys:
    """Bearer keys; without a store there are none, and only programs on this machine may ask."""

    def empty(self) -> bool:
        """Whether there is no key at all."""
        return True

    def verify(self, secret: str) -> ApiKey | None:
        """The key behind a secret, compared in constant time; None if there is none."""
        return None

    async def reserve(self, key: ApiKey, trace_id: str, needs: Sequence[Need], lease_s: float) -> Reservation:
        """Hold back the first of the needs that fits; called once a request, before anything is spent.

        Raises:
            KeyRefused: none fits, or the key makes too many requests.
            StoreError: the store does not answer.
        """
        raise KeyRefused("no key exists", "revoked", 0.0)

    def settle(self, reservation: Reservation, usd: float | None, tokens: int | None) -> None:
        """Replace a reservation by what was used; returns at once."""


class Recorder:
    """Where requests are written down; without a store, nowhere."""

    def put(self, entry: Entry) -> None:
        """Queue it; returns at once, so that no request is slowed down."""

    async def feedback(self, trace_id: str, correct: bool, note: str, by: str | None = None) -> bool:
        """Mark an answer as right or wrong, `by` this key; False if the trace is not known."""
        return False

    async def save_response(self, response_id: str, key_id: str, items: str) -> None:
        """Keep a conversation, a JSON list of items, for `previous_response_id`."""

    async def response_items(self, response_id: str, key_id: str) -> str | None:
        """The conversation up to this response of this key; None if it is not kept."""
        return None

    async def close(self) -> None:
        """Write everything that is queued."""


class StoredKeys(Keys):
    """Bearer keys made by `odar keys`, and what those with limits may still use."""

    def __init__(self, store: Store) -> None:
        self._ring = store.keyring
        self._budgets = store.budgets

    def empty(self) -> bool:
        """Whether nobody has made a key yet."""
        return len(self._ring) == 0

    def verify(self, secret: str) -> ApiKey | None:
        """The key behind a secret."""
        key = self._ring.verify(secret)
        if key is None:
            return None
        limits = key.limits
        return ApiKey(
            key.id,
            None if limits.models is None else frozenset(limits.models),
            None if limits.paths is None else frozenset(limits.paths),
            limits.budgeted,
            limits.counted,
            key.name,
            key.admin,
            Target.of(calls=limits.target_calls, cost_usd=limits.target_cost_usd),
        )

    async def reserve(self, key: ApiKey, trace_id: str, needs: Sequence[Need], lease_s: float) -> Reservation:
        """Hold back what a request can cost; a client that leaves meanwhile gives it back."""
        granted = self._budgets.reserve(key.key_id, trace_id, needs, lease_s)
        try:
            return await asyncio.shield(asyncio.wrap_future(granted))
        except asyncio.CancelledError:
            granted.add_done_callback(self._give_back)
            raise

    def settle(self, reservation: Reservation, usd: float | None, tokens: int | None) -> None:
        """Replace a reservation by what was used."""
        self._budgets.settle(reservation, usd, tokens)

    def _give_back(self, granted: Future[Reservation]) -> None:
        if not granted.cancelled() and granted.exception() is None:
            self._budgets.settle(granted.result(), 0.0, 0)


class StoredRecord(Recorder):
    """Every request as a trace in the store; one that came to nothing as far as it came."""

    def __init__(self, store: Store, profile: str) -> None:
        self._store = store
        self._profile = profile

    def put(self, entry: Entry) -> None:
        """Queue it; microseconds."""
        extra = {"endpoint": entry.endpoint, "asked": entry.model, "status": entry.status, "stream": entry.stream}
        self._store.put(Record(entry.query or Query(""), self._outcome(entry), entry.key_id, extra, entry.settled))

    async def feedback(self, trace_id: str, correct: bool, note: str, by: str | None = None) -> bool:
        """Mark a trace as right or wrong."""
        try:
            await self._store.mark(trace_id, correct, note or None, by)
        except UnknownName:
            return False
        return True

    async def save_response(self, response_id: str, key_id: str, items: str) -> None:
        """Keep a conversation until `store.retention_days` are over."""
        await asyncio.to_thread(self._store.archive.save_response, response_id, key_id, items)

    async def response_items(self, response_id: str, key_id: str) -> str | None:
        """The conversation up to this response of this key."""
        return await asyncio.to_thread(self._store.archive.response_items, response_id, key_id)

    async def close(self) -> None:
        """Write everything that is queued."""
        await self._store.close()

    def _outcome(self, entry: Entry) -> Answer | Unanswered:
        trace = entry.trace
        if trace is not None:
            winner = trace.candidates[trace.verdict.winner]
            return Answer(winner.answer, winner.text, trace)
        passed = entry.error is None and entry.status == 200  # embeddings or completions: no decision, no candidate
        return Unanswered(
            id=entry.trace_id,
            started_at=_ago(entry.seconds),
            profile=self._profile,
            status=OK if passed else CANCELLED if entry.status == CLIENT_LEFT else ERROR,
            error=entry.error,
            path=DIRECT if passed else path_of(entry.decision) if entry.decision else None,
            decision=entry.decision,
            calls=entry.calls,
            spend=entry.spend or Spend(0, NO_USAGE, 0.0, entry.seconds),
        )


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
