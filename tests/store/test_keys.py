from __future__ import annotations

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odar.errors import InputError, KeyRefused
from odar.store.keys import PREFIX_LENGTH, Key, Keyring, Limits, digest_of, new_secret
from odar.store.keytable import all_keys, create_key, revoke_key, spent_by_keys
from odar.store.record import Charge
from odar.store.tally import Spent
from support.traces import make_record

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def news(monkeypatch):
    """Other processes are looked at more often than once a second, so that the test is quick."""
    monkeypatch.setattr("odar.store.store._REFRESH_S", 0.1)


def ring(limits: Limits | None = None, now: float = NOON) -> tuple[Keyring, Key, str]:
    secret = new_secret()
    key = Key("key_1", "ann", secret[:PREFIX_LENGTH], digest_of(secret), "2026-11-15", limits or Limits())
    keyring = Keyring(clock=lambda: now)
    keyring.load([key])
    return keyring, key, secret


def test_only_the_very_secret_opens():
    keyring, key, secret = ring()
    assert keyring.verify(secret) == key
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
        assert keyring.verify(other) is None


def test_two_keys_of_one_prefix_are_told_apart():
    secrets = ["odar_sk_aaaaaa" + tail for tail in ("1" * 37, "2" * 37)]
    keyring = Keyring()
    keyring.load(Key(f"key_{i}", f"k{i}", s[:PREFIX_LENGTH], digest_of(s), "") for i, s in enumerate(secrets))
    assert [keyring.verify(secret).id for secret in secrets] == ["key_0", "key_1"]
    assert len(keyring) == 2


def test_a_revoked_key_is_no_key():
    keyring, key, secret = ring()
    keyring.load([Key(key.id, key.name, key.prefix, key.digest, "", revoked_at="2026-11-15")])
    assert keyring.verify(secret) is None
    assert len(keyring) == 0


def test_neither_secret_nor_digest_is_printed():
    _, key, secret = ring()
    assert secret not in repr(key)
    assert key.digest not in repr(key)


def test_the_limit_that_is_reached_is_named():
    keyring, key, _ = ring(Limits(budget_day_usd=0))
    with pytest.raises(KeyRefused) as raised:
        keyring.allow(key)
    assert (raised.value.kind, str(raised.value)) == ("budget", "key 'ann' has spent $0.0000 of its $0 a day")


def test_a_key_within_its_limits_passes():
    """Models and paths are the gateway's to check: it knows them, and the keyring does not."""
    keyring, key, _ = ring(Limits(models=("m",), paths=("simple",), budget_day_usd=1, budget_month_usd=9))
    keyring.allow(key)


def test_a_rate_refuses_what_comes_too_fast_and_says_when_to_come_back():
    keyring, key, _ = ring(Limits(rate_per_min=6))
    for _ in range(6):
        keyring.allow(key, now=NOON)
    with pytest.raises(KeyRefused) as raised:
        keyring.allow(key, now=NOON + 4)
    assert (raised.value.kind, raised.value.retry_after) == ("rate", pytest.approx(6.0))
    keyring.allow(key, now=NOON + 10)
    with pytest.raises(KeyRefused):
        keyring.allow(key, now=NOON + 10)


def test_a_request_refused_for_another_reason_is_not_counted_against_the_rate():
    keyring, key, _ = ring(Limits(rate_per_min=1, budget_day_usd=1))
    keyring.tally.charge(Charge(key.id, "2026-11-15", 1.0))
    for _ in range(3):
        with pytest.raises(KeyRefused, match="has spent"):
            keyring.allow(key, now=NOON)
    keyring.tally.charge(Charge(key.id, "2026-11-15", -1.0))
    keyring.allow(key, now=NOON)


def test_a_clock_that_is_set_back_neither_gives_nor_blocks():
    keyring, key, _ = ring(Limits(rate_per_min=60))
    for _ in range(60):
        keyring.allow(key, now=NOON)
    with pytest.raises(KeyRefused) as raised:
        keyring.allow(key, now=NOON - 3600)
    assert raised.value.retry_after == pytest.approx(1.0)
    keyring.allow(key, now=NOON - 3599)


@pytest.mark.parametrize(
    ("limits", "day", "wait"),
    [
        (Limits(budget_day_usd=1), "2026-11-15", 12 * 3600),
        (Limits(budget_month_usd=1), "2026-11-03", (15 * 24 + 12) * 3600),
    ],
)
def test_a_spent_budget_opens_again_at_the_next_utc_day_or_month(limits, day, wait):
    keyring, key, _ = ring(limits)
    keyring.tally.charge(Charge(key.id, day, 0.6))
    keyring.allow(key)
    assert keyring.left(key) == pytest.approx(0.4)
    keyring.tally.charge(Charge(key.id, day, 0.6))
    with pytest.raises(KeyRefused) as raised:
        keyring.allow(key)
    assert (raised.value.kind, raised.value.retry_after) == ("budget", wait)
    assert keyring.left(key) == 0
    keyring.allow(key, now=NOON + wait)


def test_a_december_budget_opens_again_in_january():
    keyring, key, _ = ring(Limits(budget_month_usd=0), now=datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp())
    with pytest.raises(KeyRefused) as raised:
        keyring.allow(key)
    assert raised.value.retry_after == 60


def test_unknown_costs_are_counted_apart():
    keyring, key, _ = ring(Limits(budget_day_usd=1))
    keyring.tally.charge(Charge(key.id, "2026-11-15", None))
    keyring.tally.charge(Charge(key.id, "2026-11-15", 0.25))
    assert keyring.spent(key) == (Spent(0.25, 1), Spent(0.25, 1))
    assert keyring.left(key) == 0.75
    assert Keyring().left(ring()[1]) is None


def test_what_is_stored_is_a_hash_and_a_prefix(database):
    limits = Limits(1.5, 20, 60, ("odar", "gpt,5"), ("simple", "medium"))
    key, secret = create_key(database, "ann", limits)
    assert secret.startswith("odar_sk_")
    assert len(secret) >= 40
    with database.read() as connection:
        (stored,) = all_keys(connection)
    assert stored == key
    assert stored.limits == limits
    assert stored.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret.startswith(stored.prefix)
    if database.is_sqlite:
        raw = b"".join(path.read_bytes() for path in Path(database.name).parent.iterdir())
        assert secret.encode() not in raw
        assert secret[PREFIX_LENGTH:].encode() not in raw


def test_an_admin_key_stays_one(database):
    create_key(database, "ann")
    create_key(database, "chief", admin=True)
    with database.read() as connection:
        assert {key.name: key.admin for key in all_keys(connection)} == {"ann": False, "chief": True}


def test_a_name_is_free_again_once_its_key_is_revoked(database):
    first, _ = create_key(database, "ann")
    with pytest.raises(
        InputError, match="a key named 'ann' exists; choose another name, or run: odar keys revoke ann"
    ):
        create_key(database, "ann")
    assert revoke_key(database, first.prefix).id == first.id
    second, _ = create_key(database, "ann")
    assert revoke_key(database, second.id).id == second.id
    with pytest.raises(InputError, match="no key goes by 'ann'; odar keys list"):
        revoke_key(database, "ann")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[31m"])
def test_a_name_can_be_read(database, name):
    with pytest.raises(InputError, match="key name"):
        create_key(database, name)


async def test_a_key_made_elsewhere_works_soon_and_a_revoked_one_no_longer(opened, url, news):
    store, other = opened(url), opened(url)
    key, secret = create_key(other._database, "ann")
    await _until(lambda: store.keyring.verify(secret) == key)
    revoke_key(other._database, "ann")
    await _until(lambda: store.keyring.verify(secret) is None)


async def test_spending_is_seen_at_once_here_and_soon_elsewhere(opened, url, news):
    store, other = opened(url, flush_interval_s=0.05), opened(url, flush_interval_s=0.05)
    key, _ = create_key(store._database, "ann", Limits(budget_day_usd=10))
    await _until(lambda: len(store.keyring) == len(other.keyring) == 1)
    store.put(make_record(key_id=key.id, cost=0.5))
    store.put(make_record(key_id=key.id, cost=None))
    assert store.keyring.spent(key)[0] == Spent(0.5, 1)
    await _until(lambda: other.keyring.spent(key)[0] == Spent(0.5, 1))
    other.put(make_record(key_id=key.id, cost=0.25))
    await _until(lambda: store.keyring.spent(key) == (Spent(0.75, 1), Spent(0.75, 1)))
    assert other.keyring.spent(key)[1] == Spent(0.75, 1)  # not twice, after its own came back to it
    day = datetime.now(UTC).date().isoformat()
    with store._database.read() as connection:
        assert spent_by_keys(connection, day) == {(key.id, day): Spent(0.75, 1), (key.id, day[:7]): Spent(0.75, 1)}


async def test_spending_outlives_the_process_and_its_traces(opened, url):
    store = opened(url)
    key, _ = create_key(store._database, "ann", Limits(budget_month_usd=1))
    store.put(make_record(key_id=key.id, cost=1.0))
    await store.close()
    with pytest.raises(KeyRefused, match="a month"):
        opened(url).keyring.allow(key)


async def test_what_was_shed_is_still_on_the_bill(opened, sqlite_url):
    store = opened(sqlite_url, queue_size=1, flush_interval_s=60)
    key, _ = create_key(store._database, "ann", Limits(budget_day_usd=1))
    for _ in range(3):
        store.put(make_record(key_id=key.id, cost=0.4))
    assert store.dropped == 2
    with pytest.raises(KeyRefused):
        store.keyring.allow(key)


async def test_a_store_that_is_switched_off_keeps_keys_but_no_traces(opened, sqlite_url):
    store = opened(sqlite_url, enabled=False)
    key, _ = create_key(store._database, "ann")
    assert not store.put(make_record(key_id=key.id, cost=0.4))
    assert store.keyring.spent(key)[0].usd == 0.4
    assert (await store.page()).traces == []
    assert store.health().ok


def test_checking_a_key_takes_microseconds():
    keyring, _, secret = ring(Limits(budget_day_usd=1, rate_per_min=10**9))
    started = time.process_time()
    for _ in range(2000):
        keyring.allow(keyring.verify(secret))
    assert (time.process_time() - started) / 2000 < 0.0005


async def _until(condition, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
