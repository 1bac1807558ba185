"""API keys: made once, shown once, checked in memory, and held to their limits.

A key is 256 random bits, so that its SHA-256 cannot be guessed back, however fast the hash is. Slow hashes such as
bcrypt protect passwords that people choose; here one would only cost every request 50 ms. The database holds the
hash, and the first characters by which a person recognises the key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from odar.errors import KeyRefused
from odar.store.limiter import Bucket
from odar.store.tally import Spent, Tally

MARK = "odar_sk_"
PREFIX_LENGTH = len(MARK) + 6
"""Characters kept in the clear; the 36 or so that follow are still far beyond guessing."""
_LONGEST = 200
"""A longer "key" is not one of ours, and not worth hashing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may do; None is no limit."""

    budget_day_usd: float | None = None
    budget_month_usd: float | None = None
    rate_per_min: float | None = None
    models: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the store knows it: not the secret, which nobody keeps."""

    id: str
    name: str
    prefix: str
    digest: str
    created_at: str
    limits: Limits = Limits()
    revoked_at: str | None = None
    admin: bool = False
    """May read every key's traces, not only its own."""

    def __repr__(self) -> str:
        return f"Key(id={self.id!r}, name={self.name!r}, prefix={self.prefix!r})"


def new_secret() -> str:
    """A key to hand out.

    >>> secret = new_secret()
    >>> secret.startswith("odar_sk_"), len(secret) >= 40, secret != new_secret()
    (True, True, True)
    """
    return MARK + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Keyring:
    """The keys in memory. Nothing here touches the database: the store's writer brings news once a second.

    A revoked key therefore works for up to a second and a flush interval more. Rates are counted per process. A
    budget sees what this process spent at once, and what others spent after a second and two flush intervals. So
    what can be overspent is what the others spend in that time, plus what is under way when the limit is reached;
    `left`, passed on as each request's `max_cost_usd`, bounds the latter by what was left times the requests under
    way.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_prefix: dict[str, list[Key]] = {}
        self._buckets: dict[str, Bucket] = {}
        self.tally = Tally()

    def __len__(self) -> int:
        return sum(map(len, self._by_prefix.values()))

    @property
    def has_budgets(self) -> bool:
        """Whether any key's spending needs watching."""
        limits = (key.limits for keys in self._by_prefix.values() for key in keys)
        return any(each.budget_day_usd is not None or each.budget_month_usd is not None for each in limits)

    def load(self, keys: Iterable[Key]) -> None:
        """Take these in place of all that were there; revoked ones are left out."""
        table: dict[str, list[Key]] = {}
        for key in keys:
            if key.revoked_at is None:
                table.setdefault(key.prefix, []).append(key)
        live = {key.id for keys in table.values() for key in keys}
        with self._lock:
            self._buckets = {id_: bucket for id_, bucket in self._buckets.items() if id_ in live}
        self._by_prefix = table  # one assignment: a reader sees the old table or the new

    def verify(self, secret: str) -> Key | None:
        """The key of this secret, or None."""
        if len(secret) > _LONGEST:
            return None
        digest = digest_of(secret)
        found = None
        # Which prefix exists is no secret; how much of the digest agrees is, so all of it is always compared.
        for key in self._by_prefix.get(secret[:PREFIX_LENGTH], ()):
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def allow(self, key: Key, *, now: float | None = None) -> None:
        """Let a request through and count it against the rate, or refuse it.

        Which models and paths a key may use is for whoever knows them to check: `key.limits` says it.

        Args:
            key: from `verify`.
            now: seconds since 1970; the clock's if None.

        Raises:
            KeyRefused: with the kind of limit, and when it makes sense to come back.
        """
        now = self._clock() if now is None else now
        self._allow_budget(key, now)
        self._allow_rate(key, now)

    def spent(self, key: Key, now: float | None = None) -> tuple[Spent, Spent]:
        """What the key has spent today and this month, UTC."""
        day = _day(self._clock() if now is None else now)
        return self.tally.of(key.id, day), self.tally.of(key.id, day[:7])

    def left(self, key: Key, now: float | None = None) -> float | None:
        """Dollars the key may still spend, or None where it has no budget. Pass it on as `max_cost_usd`."""
        today, month = self.spent(key, now)
        budgets = ((key.limits.budget_day_usd, today), (key.limits.budget_month_usd, month))
        return min((max(0.0, limit - spent.usd) for limit, spent in budgets if limit is not None), default=None)

    def _allow_budget(self, key: Key, now: float) -> None:
        today, month = self.spent(key, now)
        for name, limit, spent in (
            ("day", key.limits.budget_day_usd, today),
            ("month", key.limits.budget_month_usd, month),
        ):
            if limit is not None and spent.usd >= limit:
                raise KeyRefused(
                    f"key {key.name!r} has spent ${spent.usd:.4f} of its ${limit:g} a {name}",
                    "budget",
                    _until_next(name, now),
                )

    def _allow_rate(self, key: Key, now: float) -> None:
        rate = key.limits.rate_per_min
        if rate is None:
            return
        with self._lock:
            bucket = self._buckets.setdefault(key.id, Bucket(rate, now))
            wait = bucket.take(now)
        if wait > 0:
            raise KeyRefused(f"key {key.name!r} may make {rate:g} requests a minute", "rate", wait)


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def _until_next(period: str, now: float) -> float:
    """Seconds until the next UTC day or month."""
    at = datetime.fromtimestamp(now, UTC)
    start = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "month":
        start = start.replace(day=1)
        following = (start + timedelta(days=32)).replace(day=1)
    else:
        following = start + timedelta(days=1)
    return (following - at).total_seconds()
