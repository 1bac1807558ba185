"""Budgets and limits of API keys, enforced across all processes that share a store (SPEC 6.2b).

`request_cost.py` computes what a request can cost; here it is reserved.

Before a request starts, its maximum cost is reserved in the database; when it ends, its actual cost replaces the
reservation, in one transaction. A reservation counts until it is charged or its lease ends, so that the
reservations of a crashed process are freed; those of a gateway's worker as soon as it is replaced. One thread of
each process does this, all waiting requests in one transaction: no event loop waits for a disk or a lock. If the
database does not answer, requests are refused.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, extract, func, insert, select

from odar.errors import KeyRefused, OdarError, StoreError
from odar.serving.keys import Key, key_of
from odar.traces.database import (
    OBSERVATION,
    Database,
    add_spending,
    key_buckets,
    keys,
    meta,
    reservations,
    spending,
    upsert,
)

LEASE_GRACE_S = 10.0
"""Seconds after the deadline of a request until its reservation is freed."""
_KEEP_S = 3600.0
"""Seconds that rows of freed reservations are kept, so that a late charge is recognised."""
_MIN_RETRY_PAUSE_S = 0.2
_MAX_RETRY_PAUSE_S = 2.0
_SLACK_USD = 1e-9
"""Tolerance for sums of floating-point numbers."""


@dataclass(frozen=True, slots=True)
class Need:
    """The maximum cost and tokens of a request on one path."""

    usd: float = 0.0
    tokens: int = 0


RateLimit = tuple[Literal["requests", "tokens"], float, float]
"""A key's limit on requests or tokens per minute: its unit, how many of it, and how many of these remain."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The budget that is set aside for a running request."""

    id: str
    key_id: str
    day: str
    """The UTC day that is charged, even if the request ends on a later one."""
    need: Need
    choice: int
    """Index of the need that was granted."""
    expires_at: float
    rates: Sequence[RateLimit] = ()
    """The key's limits per minute, with this request counted."""


class _Task(NamedTuple):
    """A change of an account, made in the next transaction."""

    key_id: str
    change: Callable[[_Account, Connection, float], Any]
    done: Future[Any]
    is_charge: bool
    """Charges come before reservations, and are repeated if the transaction fails."""


class Budgets:
    """Makes and charges reservations in its own thread. Safe to use from any thread.

    `clock` gives seconds since 1970; None uses the clock of a PostgreSQL server, so that replicas agree.
    `observe_usd_day` is the limit of the account `OBSERVATION`; if several keys share it, a key can spend as much
    as it leaves to the others. `owner` names this process: what an earlier process of that name has reserved is
    freed.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] | None = None,
        observe_usd_day: float = 0.0,
        owner: str = "",
    ) -> None:
        self._database = database
        self._owner = owner
        if owner:
            with database.write() as connection:
                connection.execute(delete(reservations).where(reservations.c.owner == owner))
        self._observe_usd_day = observe_usd_day
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: list[_Task] = []
        self._pool = ThreadPoolExecutor(1, "odar-budgets")
        self._pause = 0.0

    def reserve(self, key_id: str, request_id: str, needs: Sequence[Need], lease_s: float) -> Future[Reservation]:
        """Reserve the first need that fits the key's limits.

        The future raises KeyRefused if none fits, StoreError if the database does not answer.
        """

        def change(account: _Account, connection: Connection, now: float) -> Reservation:
            choice = account.choose(key_id, needs, now)
            expires_at = now + lease_s + LEASE_GRACE_S
            granted = Reservation(request_id, key_id, account.day, needs[choice], choice, expires_at)
            account.add(connection, granted, self._owner)
            return replace(granted, rates=account.rates())

        return self._put(_Task(key_id, change, Future(), is_charge=False))

    def charge(self, reservation: Reservation, usd: float | None, tokens: int | None) -> Future[None]:
        """Replace a reservation by the actual cost; the future is done when it is in the database.

        Unknown tokens count as reserved.
        """

        def change(account: _Account, connection: Connection, now: float) -> None:
            account.charge(connection, reservation, usd, tokens, now)

        return self._put(_Task(reservation.key_id, change, Future(), is_charge=True))

    def close(self, timeout_s: float) -> bool:
        """Process the queue, within the timeout; return whether it is empty."""
        deadline = time.monotonic() + timeout_s
        while self._queue and time.monotonic() < deadline:
            time.sleep(0.01)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not self._queue

    def _put(self, task: _Task) -> Future[Any]:
        with self._lock:
            self._queue.append(task)
        try:
            self._pool.submit(self._process_queue)
        except RuntimeError:
            if not task.is_charge:
                task.done.set_exception(StoreError("the store is closed"))
        return task.done

    # ── in the thread ───────────────────────────────────────────────────────────────────────────────────────

    def _process_queue(self) -> None:
        """Process the whole queue in one transaction; charges are repeated if it fails."""
        with self._lock:
            tasks = sorted(self._queue, key=lambda task: not task.is_charge)
        if not tasks:
            return
        kept: list[_Task] = []
        try:
            with self._database.write() as connection:
                outcomes = self._apply(connection, tasks)
            self._pause = 0.0
        except Exception as error:  # nothing is granted that is not in the database
            failure = error if isinstance(error, OdarError) else StoreError(f"{type(error).__name__} in a budget")
            outcomes = [failure] * len(tasks)
            kept = [task for task in tasks if task.is_charge]
            self._pause = min(_MAX_RETRY_PAUSE_S, max(_MIN_RETRY_PAUSE_S, 2 * self._pause))
        with self._lock:
            self._queue[: len(tasks)] = kept
        for task, outcome in list(zip(tasks, outcomes, strict=True))[len(kept) :]:
            with contextlib.suppress(InvalidStateError):  # the caller gave up; a lease ends by itself
                if isinstance(outcome, Exception):
                    task.done.set_exception(outcome)
                else:
                    task.done.set_result(outcome)
        if kept:
            time.sleep(self._pause)
            with contextlib.suppress(RuntimeError):  # the store is closed
                self._pool.submit(self._process_queue)

    def _apply(self, connection: Connection, tasks: Sequence[_Task]) -> list[Any]:
        """The result of each task, or why it is refused."""
        now = self._now(connection)
        # Locked in this order until the transaction ends; on SQLite by BEGIN IMMEDIATE.
        ids = sorted({_account_of(task.key_id) for task in tasks})
        accounts = {key_id: _load(connection, key_id, now, self._observe_usd_day) for key_id in ids}
        outcomes: list[Any] = []
        for task in tasks:
            account = accounts[_account_of(task.key_id)]
            try:
                outcomes.append(task.change(account, connection, now))
            except KeyRefused as refused:
                refused.rates = account.rates()
                outcomes.append(refused)
        for account in accounts.values():
            account.save(connection, now)
        connection.execute(delete(reservations).where(reservations.c.expires_at < now - _KEEP_S))
        return outcomes

    def _now(self, connection: Connection) -> float:
        if self._clock is not None:
            return self._clock()
        if connection.dialect.name == "postgresql":
            return float(connection.scalar(select(extract("epoch", func.clock_timestamp()))) or 0.0)
        return time.time()


@dataclass(slots=True)
class _Account:
    """The balance of one key, or of observation, inside a transaction."""

    key: Key
    """That of observation has the budget of the settings."""
    day: str
    spent: dict[str, float]
    """Dollars spent this `day` and this `month`."""
    reserved: dict[str, float]
    """Dollars reserved, by the same periods."""
    running: int
    requests: float
    """Requests that its rate allows now."""
    tokens: float
    """Tokens that it may use now."""
    shares: defaultdict[str, float] | None = None
    """Dollars spent and reserved this day for each key, if keys share the budget."""

    def choose(self, key_id: str, needs: Sequence[Need], now: float) -> int:
        """The index of the first need that fits; raises KeyRefused if none does."""
        if self.key.revoked_at is not None:
            raise KeyRefused(f"key {self.key.name!r} has been revoked", "revoked", 0.0)
        self.key.check_parallel(self.running)
        self.key.check_rate(self.requests)
        refusals: list[tuple[Need, KeyRefused]] = []
        for choice, need in enumerate(needs):
            refusal = self._refusal(need, now) or self._refusal_of_share(key_id, need, now)
            if refusal is None:
                return choice
            refusals.append((need, refusal))
        _, cheapest = min(refusals, key=lambda pair: (pair[0].usd, pair[0].tokens))
        raise cheapest

    def add(self, connection: Connection, granted: Reservation, owner: str) -> None:
        need = granted.need
        row = {"id": granted.id, "key_id": granted.key_id, "day": granted.day, "expires_at": granted.expires_at}
        connection.execute(insert(reservations).values(**row, usd=need.usd, tokens=need.tokens, owner=owner))
        self.running += 1
        self.reserved = {period: usd + need.usd for period, usd in self.reserved.items()}
        if self.shares is not None:
            self.shares[granted.key_id] += need.usd
        self.requests -= 1
        self.tokens -= need.tokens

    def rates(self) -> list[RateLimit]:
        rates: list[RateLimit] = []
        if self.key.rate_per_min:
            rates.append(("requests", self.key.rate_per_min, max(0.0, self.requests)))
        if self.key.tokens_per_min:
            rates.append(("tokens", self.key.tokens_per_min, max(0.0, self.tokens)))
        return rates

    def charge(
        self, connection: Connection, reservation: Reservation, usd: float | None, tokens: int | None, now: float
    ) -> None:
        need = reservation.need
        deleted = connection.execute(delete(reservations).where(reservations.c.id == reservation.id)).rowcount
        if not deleted and now < reservation.expires_at + _KEEP_S:
            return  # already charged by a transaction whose commit was not confirmed
        alive = now < reservation.expires_at
        spent_usd = usd or 0.0
        freed_usd = need.usd if alive else 0.0
        self.running -= alive
        for period in _periods(reservation.day, self.day):
            self.reserved[period] -= freed_usd
            self.spent[period] += spent_usd
        if self.shares is not None and reservation.day == self.day:
            self.shares[reservation.key_id] += spent_usd - freed_usd
        if tokens is not None:  # what a server reports beyond the most that is possible does not count
            self.tokens += max(0, need.tokens - tokens)
        add_spending(connection, reservation.key_id, reservation.day, 1, spent_usd, int(usd is None))

    def save(self, connection: Connection, now: float) -> None:
        if self.key.rate_per_min is None and self.key.tokens_per_min is None:
            return
        values = {"requests": self.requests, "tokens": self.tokens, "at": now}
        statement = upsert(connection)(key_buckets).values(key_id=self.key.id, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=["key_id"], set_=values))

    def _refusal(self, need: Need, now: float) -> KeyRefused | None:
        """Why the need does not fit the budgets or the tokens a minute; None if it fits."""
        budgets = {"day": self.key.budget_day_usd, "month": self.key.budget_month_usd}
        for period, limit in budgets.items():
            spent = self.spent[period]
            reserved = self.reserved[period]
            if limit is None or spent + reserved + need.usd <= limit + _SLACK_USD:
                continue
            running = f" and requests under way hold ${reserved:.4f}" if reserved > _SLACK_USD else ""
            return KeyRefused(
                f"this request can cost ${need.usd:.6f}, and key {self.key.name!r} has spent ${spent:.4f} of its "
                f"${limit:g} a {period}{running}",
                "budget",
                1.0 if spent + need.usd <= limit else _seconds_until_next(period, now),
            )
        per_minute = self.key.tokens_per_min
        if per_minute is None or need.tokens <= self.tokens:
            return None
        wait = (need.tokens - self.tokens) * 60 / per_minute if need.tokens <= per_minute else 60.0
        limit_text = f"key {self.key.name!r} may use {per_minute:g} a minute"
        return KeyRefused(f"this request can use {need.tokens:,} tokens, and {limit_text}", "tokens", wait)

    def _refusal_of_share(self, key_id: str, need: Need, now: float) -> KeyRefused | None:
        """Why a key cannot spend more of a budget that keys share: it must leave as much to the others."""
        limit = self.key.budget_day_usd
        if self.shares is None or limit is None or key_id == self.key.id:
            return None
        own = self.shares[key_id] + need.usd
        left = limit - self.spent["day"] - self.reserved["day"] - need.usd
        if own <= left + _SLACK_USD:
            return None
        message = f"a key has spent ${self.shares[key_id]:.4f} of the ${limit:g} a day that keys share"
        return KeyRefused(message, "budget", _seconds_until_next("day", now))


def _account_of(key_id: str) -> str:
    """The id of the account that is charged: that of the key, or one for observation of all keys.

    >>> _account_of("key_1"), _account_of("observation"), _account_of("observation:key_1")
    ('key_1', 'observation', 'observation')
    """
    return OBSERVATION if key_id.startswith(OBSERVATION) else key_id


def _load(connection: Connection, key_id: str, now: float, observe_usd_day: float) -> _Account:
    """The account of a key or of observation, which is locked until the transaction ends."""
    observing = key_id == OBSERVATION
    of_key = select(keys).where(keys.c.id == key_id)
    locked = select(meta).where(meta.c.name == "schema") if observing else of_key
    row = connection.execute(locked.with_for_update()).mappings().one_or_none()
    if observing:
        key = Key(OBSERVATION, OBSERVATION, budget_day_usd=observe_usd_day)
    else:
        key = Key(key_id, key_id, revoked_at="deleted") if row is None else key_of(row)
    today = datetime.fromtimestamp(now, UTC).date().isoformat()

    def belongs(id_: ColumnElement[str]) -> ColumnElement[bool]:
        return id_.startswith(OBSERVATION) if observing else id_ == key_id

    # dollars by key and day; those of observation for all keys
    s = spending.c
    spent_rows = select(s.key_id, s.day, s.cost_usd).where(belongs(s.key_id), s.day >= f"{today[:7]}-01")
    spent = connection.execute(spent_rows).all()
    r = reservations.c
    reserved_rows = select(r.key_id, r.day, r.usd).where(belongs(r.key_id), r.expires_at > now)
    reserved = connection.execute(reserved_rows).all()
    shares: defaultdict[str, float] | None = None
    live_keys = select(func.count()).select_from(keys).where(keys.c.revoked_at.is_(None))
    if observing and (connection.scalar(live_keys) or 0) > 1:
        shares = defaultdict(float)
        for owner, day, usd in (*spent, *reserved):
            shares[owner] += usd if day == today else 0.0
    # the tokens of its buckets when they were last written
    b = key_buckets.c
    bucket = connection.execute(select(b.requests, b.tokens, b.at).where(b.key_id == key_id)).one_or_none()
    requests, tokens, at = bucket or (None, None, now)
    elapsed = max(0.0, now - at)
    return _Account(
        key=key,
        day=today,
        spent=_sum_by_period(spent, today),
        reserved=_sum_by_period(reserved, today),
        running=len(reserved),
        requests=bucket_level(key.rate_per_min, requests, elapsed),
        tokens=bucket_level(key.tokens_per_min, tokens, elapsed),
        shares=shares,
    )


def _sum_by_period(amounts: Iterable[Any], today: str) -> dict[str, float]:
    """Sum (key, day, dollars) over this day and this month."""
    sums = {"day": 0.0, "month": 0.0}
    for _, day, usd in amounts:
        for period in _periods(day, today):
            sums[period] += usd
    return sums


def _periods(day: str, today: str) -> list[str]:
    """The current periods that a day belongs to: day and month, month, or none."""
    if day == today:
        return ["day", "month"]
    return ["month"] if day[:7] == today[:7] else []


def bucket_level(per_minute: float | None, before: float | None, elapsed: float) -> float:
    """The level of a token bucket that fills at this rate; its capacity is a minute's worth, at least one.

    >>> bucket_level(60, 0.0, 0.5), bucket_level(60, None, 0.0), bucket_level(0.5, 0.0, 600)
    (0.5, 60, 1)
    """
    if per_minute is None:
        return 0.0
    capacity = max(1, per_minute)
    return capacity if before is None else min(capacity, before + elapsed * per_minute / 60)


def _seconds_until_next(period: str, now: float) -> float:
    """Seconds until the next UTC day or month."""
    at = datetime.fromtimestamp(now, UTC)
    start = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        following = (start.replace(day=1) + timedelta(days=32)).replace(day=1)
    else:
        following = start + timedelta(days=1)
    return (following - at).total_seconds()
