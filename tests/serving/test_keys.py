from __future__ import annotations

import dataclasses
import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odar.errors import InputError
from odar.serving.keys import (
    PREFIX_LENGTH,
    Key,
    KeyCache,
    all_keys,
    create_key,
    digest_of,
    revoke_key,
    spent_by_keys,
)
from support.traces import make_record
from support.waiting import until

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def news(monkeypatch):
    """Refresh keys more often than once a second, so that the test is quick."""
    monkeypatch.setattr("odar.serving.store._REFRESH_S", 0.1)


def ring() -> tuple[KeyCache, Key, str]:
    secret = "odar_sk_" + "s3cret" * 6
    key = Key("key_1", "ann", secret[:PREFIX_LENGTH], digest_of(secret), "2026-11-15")
    key_cache = KeyCache()
    key_cache.load([key])
    return key_cache, key, secret


def test_only_the_exact_secret_is_accepted():
    key_cache, key, secret = ring()
    assert key_cache.verify(secret) == key
    wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    for other in (
        wrong,
        secret[:-1],
        secret + "x",
        secret[:PREFIX_LENGTH],
        "",
        "odar_sk_",
        "x" * 10**6,
        "\ud800",
        "é" * 50,
    ):
        assert key_cache.verify(other) is None


def test_keys_with_the_same_prefix_are_distinguished():
    secrets = ["odar_sk_aaaaaa" + tail for tail in ("1" * 37, "2" * 37)]
    key_cache = KeyCache()
    key_cache.load(Key(f"key_{i}", f"k{i}", s[:PREFIX_LENGTH], digest_of(s), "") for i, s in enumerate(secrets))
    assert [key_cache.verify(secret).id for secret in secrets] == ["key_0", "key_1"]
    assert len(key_cache) == 2


def test_a_revoked_key_is_rejected():
    key_cache, key, secret = ring()
    key_cache.load([Key(key.id, key.name, key.prefix, key.digest, "", revoked_at="2026-11-15")])
    assert key_cache.verify(secret) is None
    assert len(key_cache) == 0


def test_secret_and_digest_are_not_in_the_repr():
    _, key, secret = ring()
    assert secret not in repr(key)
    assert key.digest not in repr(key)


def test_only_a_hash_and_a_prefix_are_stored(database):
    key, secret = create_key(database, "ann", admin=True, budget_day_usd=1.5, models=("odar", "gpt,5"))
    assert secret.startswith("odar_sk_")
    assert len(secret) >= 40
    with database.read() as connection:
        (stored,) = all_keys(connection)
    assert stored == key
    assert (stored.budget_day_usd, stored.models, stored.admin) == (1.5, ("odar", "gpt,5"), True)
    assert stored.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret.startswith(stored.prefix)
    if database.is_sqlite:
        raw = b"".join(path.read_bytes() for path in Path(database.name).parent.iterdir())
        assert secret.encode() not in raw
        assert secret[PREFIX_LENGTH:].encode() not in raw


def test_the_name_of_a_revoked_key_can_be_used_again(database):
    first, _ = create_key(database, "ann")
    with pytest.raises(
        InputError, match="a key named 'ann' exists; choose another name, or run: odar keys revoke ann"
    ):
        create_key(database, "ann")
    assert revoke_key(database, first.prefix).id == first.id
    second, _ = create_key(database, "ann")
    assert revoke_key(database, second.id).id == second.id
    with pytest.raises(InputError, match="no key matches 'ann'; odar keys list"):
        revoke_key(database, "ann")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m"])
def test_an_empty_or_unprintable_name_is_rejected(database, name):
    with pytest.raises(InputError, match="key name"):
        create_key(database, name)


async def test_keys_created_and_revoked_by_another_process_are_noticed(opened, url, news):
    store, other = opened(url), opened(url)
    key, secret = create_key(other._database, "ann")
    await until(lambda: store.key_cache.verify(secret) == key)
    revoke_key(other._database, "ann")
    await until(lambda: store.key_cache.verify(secret) is None)


async def test_spending_of_a_key_without_limits_is_stored_with_its_traces(opened, url):
    store, other = opened(url, flush_interval_s=0.05), opened(url, flush_interval_s=0.05)
    key, _ = create_key(store._database, "ann")
    store.put(make_record(key_id=key.id, cost=0.5))
    other.put(make_record(key_id=key.id, cost=None))
    await store.flush()
    await other.flush()
    day = datetime.now(UTC).date().isoformat()
    with store._database.read() as connection:
        assert spent_by_keys(connection, day) == {(key.id, day): (0.5, 1), (key.id, day[:7]): (0.5, 1)}


async def test_a_settled_cost_is_not_counted_again_with_its_trace(opened, sqlite_url):
    store = opened(sqlite_url)
    key, _ = create_key(store._database, "ann", budget_day_usd=1)
    store.put(dataclasses.replace(make_record(key_id=key.id, cost=0.5), charged=True))
    await store.flush()
    with store._database.read() as connection:
        assert spent_by_keys(connection, datetime.now(UTC).date().isoformat()) == {}


async def test_a_disabled_store_keeps_keys_but_no_traces(opened, sqlite_url):
    store = opened(sqlite_url, enabled=False)
    key, _ = create_key(store._database, "ann")
    assert not store.put(make_record(key_id=key.id, cost=0.4))
    assert store.archive.page()["traces"] == []
    assert store.health().ok
