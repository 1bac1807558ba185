"""API keys: creation, revocation, and verification in memory.

A key has 256 random bits, so it cannot be found from its SHA-256, although that hash is fast. Slow hashes such as
bcrypt protect passwords that people choose; here one would only add 50 ms to every request. The database holds the
hash, and the first characters, by which a person recognises the key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, or_, select, update

from odar.errors import InputError, KeyRefused, plural
from odar.settings import StoreSettings
from odar.traces.database import Database, keys, meta, spending
from odar.types import Route

KEY_PREFIX = "odar_sk_"
PREFIX_LENGTH = len(KEY_PREFIX) + 6
"""Number of characters that are stored in the clear; the others, about 36, cannot be guessed."""
RETRY_S = 1.0
"""Seconds after which a client is told to try again if it is refused because the gateway or its key is busy."""
_MAX_LENGTH = 200
"""Maximum length of a secret; a longer one cannot be a key, so it is not hashed."""


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key and its limits, of which None is unlimited. Its secret is not stored."""

    id: str
    name: str
    prefix: str = ""
    digest: str = field(default="", repr=False)
    created_at: str = ""
    revoked_at: str | None = None
    admin: bool = False
    """May read every key's traces, not only its own."""
    budget_day_usd: float | None = None
    budget_month_usd: float | None = None
    rate_per_min: float | None = None
    models: tuple[str, ...] | None = None
    max_path: str | None = None
    """The longest path: simple allows no slow call, medium one, hard any number."""
    max_parallel: int | None = None
    tokens_per_min: float | None = None
    target_calls: float | None = None
    """Target for the mean number of calls of the key's questions (SPEC 9.5)."""
    target_cost_usd: float | None = None

    @property
    def has_budget(self) -> bool:
        return self.budget_day_usd is not None or self.budget_month_usd is not None

    @property
    def needs_reservation(self) -> bool:
        """Whether a request must be reserved before it starts."""
        counts = (self.rate_per_min, self.max_parallel, self.tokens_per_min)
        return self.has_budget or any(limit is not None for limit in counts)

    def check_parallel(self, running: int) -> None:
        """Raise KeyRefused if this key has too many requests running for another one."""
        most = self.max_parallel
        if most is not None and running >= most:
            raise KeyRefused(f"key {self.name!r} may make {plural(most, 'request')} at a time", "parallel", RETRY_S)

    def check_rate(self, left: float) -> None:
        """Raise KeyRefused if fewer than one of this key's requests a minute are left."""
        rate = self.rate_per_min
        if rate is not None and left < 1:
            wait_s = (1 - left) * 60 / rate
            raise KeyRefused(f"key {self.name!r} may make {plural(rate, 'request')} a minute", "rate", wait_s)

    def allows_path(self, path: Route) -> bool:
        paths = list(Route)
        return self.max_path is None or paths.index(path) <= paths.index(Route(self.max_path))


NO_KEY = Key("", "this machine", admin=True)
"""Stands for the key of requests from this machine while no key is required."""


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class KeyCache:
    """The keys in memory. No method accesses the database: the store's thread loads changes once a second.

    A revoked key without limits therefore works for up to a second and a flush interval more; a key with limits is
    looked up in the database for every reservation (`odar.serving.budgets`).
    """

    def __init__(self) -> None:
        self._by_digest: dict[str, Key] = {}
        self.lost = False
        """Whether the database of the keys was deleted or damaged while in use; no key can be checked then."""

    def __len__(self) -> int:
        return len(self._by_digest)

    def load(self, keys: Iterable[Key]) -> None:
        """Replace all keys; revoked ones are left out."""
        # one assignment: a reader sees the old table or the new
        self._by_digest = {key.digest: key for key in keys if key.revoked_at is None}
        self.lost = False

    def mark_lost(self) -> None:
        """Forget all keys, because their database is deleted or damaged."""
        self.lost = True
        self._by_digest = {}

    def verify(self, secret: str) -> Key | None:
        # The look-up may leak a part of the digest by its timing, but nobody can choose a secret by its digest.
        return self._by_digest.get(digest_of(secret)) if len(secret) <= _MAX_LENGTH else None


Spent = tuple[float, int]
"""Dollars of the requests with a known cost, and the number of the others."""


def create_key(database: Database, name: str, *, admin: bool = False, **limits: Any) -> tuple[Key, str]:
    """Create a key and return it with its secret, which is not stored; `limits` are those of `Key`.

    Raises:
        InputError: the name is not valid, or a key that is not revoked has it.
    """
    if not name.strip() or not name.isprintable():
        raise InputError(f"key name {name!r} is empty or holds characters that do not print")
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    key = Key(
        id="key_" + secrets.token_hex(6),
        name=name,
        prefix=secret[:PREFIX_LENGTH],
        digest=digest_of(secret),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        admin=admin,
        **limits,
    )
    with database.write() as connection:
        # Lock the counter first, so that two keys of the same name cannot be created at once.
        _increment_version(connection)
        if connection.scalar(select(keys.c.id).where(keys.c.name == name, keys.c.revoked_at.is_(None))):
            raise InputError(f"a key named {name!r} exists; choose another name, or run: odar keys revoke {name}")
        models = None if key.models is None else json.dumps(key.models)
        connection.execute(insert(keys), asdict(key) | {"models": models})
    return key, secret


def revoke_key(database: Database, which: str) -> Key:
    """Revoke the key with this name, id or prefix permanently; raise InputError if none or several match."""
    with database.write() as connection:
        live = connection.execute(
            select(keys).where(
                keys.c.revoked_at.is_(None), or_(keys.c.name == which, keys.c.id == which, keys.c.prefix == which)
            )
        ).mappings()
        found = [key_of(row) for row in live]
        if len(found) != 1:
            number = f"{len(found)} keys match" if found else "no key matches"
            raise InputError(f"{number} {which!r}; odar keys list shows names and ids")
        _increment_version(connection)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        connection.execute(update(keys).where(keys.c.id == found[0].id).values(revoked_at=now))
    return found[0]


def all_keys(connection: Connection) -> list[Key]:
    """All keys, revoked ones included, oldest first."""
    rows = connection.execute(select(keys).order_by(keys.c.created_at, keys.c.name)).mappings()
    return [key_of(row) for row in rows]


def read_keys(settings: StoreSettings) -> KeyCache:
    """The keys in a store; opens and closes its database."""
    cache = KeyCache()
    with closing(Database(settings)) as database, database.read() as connection:
        cache.load(all_keys(connection))
    return cache


def keys_version(connection: Connection) -> tuple[Any, ...]:
    """A value that changes when a key is created or revoked, or the table is emptied or replaced."""
    counter = connection.execute(select(meta.c.value).where(meta.c.name == "keys")).scalar_one()
    rows = connection.execute(select(func.count(), func.min(keys.c.digest), func.max(keys.c.digest))).one()
    return (counter, *rows)


def spent_by_keys(connection: Connection, day: str) -> dict[tuple[str, str], Spent]:
    """The spending on a UTC day ("2026-11-15") and in its month ("2026-11"), by key and period."""
    c = spending.c
    month = day[:7]
    query = select(c.key_id, c.day, c.cost_usd, c.unknown)
    totals: dict[tuple[str, str], Spent] = {}
    for key, at, usd, unknown in connection.execute(query.where(c.day >= f"{month}-01", c.day <= f"{month}-31")):
        for period in (day, month) if at == day else (month,):
            known, others = totals.get((key, period), (0.0, 0))
            totals[key, period] = (known + usd, others + unknown)
    return totals


def _increment_version(connection: Connection) -> None:
    connection.execute(update(meta).where(meta.c.name == "keys").values(value=meta.c.value + 1))


def key_of(row: RowMapping) -> Key:
    models = None if row["models"] is None else tuple(json.loads(row["models"]))
    return Key(**{**row, "models": models})
