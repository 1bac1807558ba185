"""API keys: made once, shown once, checked in memory.

A key is 256 random bits, so that its SHA-256 cannot be guessed back, however fast the hash is. Slow hashes such as
bcrypt protect passwords that people choose; here one would only cost every request 50 ms. The database holds the
hash, and the first characters by which a person recognises the key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

MARK = "odar_sk_"
PREFIX_LENGTH = len(MARK) + 6
"""Characters kept in the clear; the 36 or so that follow are still far beyond guessing."""
_LONGEST = 200
"""A longer "key" is not one of ours, and not worth hashing."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may do; None is no limit."""

    budget_day_usd: float | None = None
    budget_month_usd: float | None = None
    rate_per_min: float | None = None
    models: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    max_parallel: int | None = None
    tokens_per_min: float | None = None

    @property
    def budgeted(self) -> bool:
        """Whether money is limited."""
        return self.budget_day_usd is not None or self.budget_month_usd is not None

    @property
    def counted(self) -> bool:
        """Whether a request must be reserved before it starts."""
        counts = (self.rate_per_min, self.max_parallel, self.tokens_per_min)
        return self.budgeted or any(limit is not None for limit in counts)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the store knows it: not the secret, which nobody keeps."""

    id: str
    name: str
    prefix: str
    digest: str
    created_at: str
    limits: KeyLimits = KeyLimits()
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
    """The keys in memory. Nothing here touches the database: the store's thread brings changes once a second.

    A revoked key without limits therefore works for up to a second and a flush interval more; one with limits is
    looked up when it reserves (`odar.store.budgets`).
    """

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[Key]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_prefix.values()))

    def load(self, keys: Iterable[Key]) -> None:
        """Take these in place of all that were there; revoked ones are left out."""
        table: dict[str, list[Key]] = {}
        for key in keys:
            if key.revoked_at is None:
                table.setdefault(key.prefix, []).append(key)
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
