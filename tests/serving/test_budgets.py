"""Budgets and limits shared by all processes that use one store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import pytest

from odar.errors import KeyRefused, StoreError
from odar.serving.budgets import LEASE_GRACE_S, Budgets, Need
from odar.serving.keys import Spent, create_key, spent_by_keys
from odar.traces.database import Database
from support.waiting import wait_until

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
DAY = "2026-11-15"


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def replicas(url, settings_of):
    """The budgets of two processes on one database, with one clock."""
    clock = Clock()
    databases = [Database(settings_of(url).store) for _ in range(2)]
    budgets = [Budgets(database, clock) for database in databases]
    yield budgets, clock, databases[0]
    for each in budgets:
        each.close(5)
    for each in databases:
        each.close()


def reserve(budgets, key, name, *needs, lease_s=60.0):
    return budgets.reserve(key.id, name, needs or [Need()], lease_s).result(10)


def spent(database, key, day=DAY) -> Spent:
    with database.read() as connection:
        return spent_by_keys(connection, day).get((key.id, day), (0.0, 0))


def test_a_replaced_worker_frees_what_its_predecessor_reserved(url, settings_of):
    with closing(Database(settings_of(url).store)) as database:
        key, _ = create_key(database, "k", max_parallel=2)
        for owner in ("a", "b"):
            reserve(Budgets(database, owner=owner), key, f"of {owner}")
        assert refused(Budgets(database), key, "third").kind == "parallel"
        replacement = Budgets(database, owner="a")
        reserve(replacement, key, "third")
        assert refused(replacement, key, "fourth").kind == "parallel", "b is alive"


def refused(budgets, key, name, *needs) -> KeyRefused:
    with pytest.raises(KeyRefused) as raised:
        reserve(budgets, key, name, *needs)
    return raised.value


def charge(budgets, key, *ended) -> None:
    for reservation, usd, tokens in ended:
        budgets.charge(reservation, usd, tokens)
    wait_until(lambda: not budgets._queue)


def test_parallel_reservations_of_two_processes_never_exceed_the_budget(replicas):
    (here, there), _, database = replicas
    key, _ = create_key(database, "ann", budget_day_usd=10)
    together = threading.Barrier(20)

    def ask(i):
        together.wait()
        try:
            return reserve((here, there)[i % 2], key, f"r{i}", Need(0.9))
        except KeyRefused as error:
            return error

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(ask, range(20)))
    assert sum(not isinstance(outcome, KeyRefused) for outcome in outcomes) == 11  # 11 × 0.9 ≤ 10 < 12 × 0.9


def test_a_settled_request_counts_with_its_actual_cost(replicas):
    (here, there), _, database = replicas
    key, _ = create_key(database, "ann", budget_day_usd=1)
    held = reserve(here, key, "a", Need(0.9))
    error = refused(there, key, "b", Need(0.9))
    assert (error.kind, error.retry_after) == ("budget", 1.0)
    assert "can cost $0.900000" in str(error)
    charge(here, key, (held, 0.05, 10))
    assert spent(database, key) == (0.05, 0)
    assert reserve(there, key, "b", Need(0.9)).day == DAY


def test_a_repeated_settlement_counts_once(replicas):
    (here, _), _, database = replicas
    key, _ = create_key(database, "ann", budget_day_usd=1)
    held = reserve(here, key, "a", Need(0.5))
    charge(here, key, (held, 0.5, 1), (held, 0.5, 1))
    assert spent(database, key) == (0.5, 0)


def test_the_first_path_that_fits_the_budget_is_chosen(replicas):
    (here, _), _, database = replicas
    key, _ = create_key(database, "ann", budget_day_usd=1)
    held = reserve(here, key, "a", Need(6.0), Need(2.0), Need(0.25))
    assert (held.choice, held.need.usd) == (2, 0.25)
    assert "can cost $0.800000" in str(refused(here, key, "b", Need(6.0), Need(0.8)))


def test_reservations_of_a_crashed_process_end_with_their_lease(replicas):
    (here, there), clock, database = replicas
    key, _ = create_key(database, "ann", budget_day_usd=1, max_parallel=1)
    held = reserve(here, key, "a", Need(1.0), lease_s=5)
    assert refused(there, key, "b", Need(1.0)).kind == "parallel"
    clock.now += 5 + LEASE_GRACE_S + 0.1
    assert reserve(there, key, "b", Need(1.0))
    charge(here, key, (held, 0.5, 1))  # it was only slow: its cost still counts
    assert spent(database, key)[0] == 0.5


def test_a_monthly_budget_resets_with_the_month(replicas):
    (here, _), clock, database = replicas
    key, _ = create_key(database, "ann", budget_month_usd=1)
    charge(here, key, (reserve(here, key, "a", Need(0.75)), 0.75, 1))
    clock.now += 3 * 86_400
    assert refused(here, key, "b", Need(0.5)).retry_after == pytest.approx((12 * 24 + 12) * 3600)
    clock.now += 13 * 86_400
    assert reserve(here, key, "c", Need(0.5))


def test_requests_per_minute_apply_across_processes(replicas):
    (here, there), clock, database = replicas
    key, _ = create_key(database, "ann", rate_per_min=6)
    for i in range(6):
        reserve((here, there)[i % 2], key, f"r{i}")
    clock.now += 4
    error = refused(there, key, "late")
    assert (error.kind, error.retry_after) == ("rate", pytest.approx(6.0))
    clock.now += 6
    assert reserve(here, key, "r6")
    clock.now -= 3600
    assert refused(here, key, "back").kind == "rate"


def test_unused_tokens_per_minute_are_returned(replicas):
    (here, there), clock, database = replicas
    key, _ = create_key(database, "ann", tokens_per_min=1000)
    held = reserve(here, key, "a", Need(tokens=900))
    error = refused(there, key, "b", Need(tokens=400))
    assert (error.kind, error.retry_after) == ("tokens", pytest.approx(18.0))
    charge(here, key, (held, None, 100))
    assert reserve(there, key, "b", Need(tokens=400))
    assert refused(there, key, "c", Need(tokens=2000)).retry_after == 60.0
    clock.now += 60
    assert reserve(there, key, "d", Need(tokens=1000))
    assert spent(database, key) == (0.0, 1)


def test_tokens_that_a_server_invents_do_not_lock_a_key_out(replicas):
    (here, _), clock, database = replicas
    key, _ = create_key(database, "ann", tokens_per_min=1000)
    charge(here, key, (reserve(here, key, "a", Need(tokens=900)), None, 10**12))
    clock.now += 60
    assert reserve(here, key, "b", Need(tokens=900))


def test_concurrent_requests_are_limited_across_processes(replicas):
    (here, there), _, database = replicas
    key, _ = create_key(database, "ann", max_parallel=2)
    first, _ = reserve(here, key, "a"), reserve(there, key, "b")
    assert refused(here, key, "c").kind == "parallel"
    charge(here, key, (first, 0.0, 0))
    assert reserve(there, key, "c")


def test_if_the_database_fails_requests_are_rejected_and_settlements_kept(sqlite_url, settings_of, monkeypatch):
    database = Database(settings_of(sqlite_url).store)
    key, _ = create_key(database, "ann", budget_day_usd=1)
    budgets = Budgets(database, Clock())
    held = reserve(budgets, key, "a", Need(0.5))
    write = database.write

    def broken():
        raise StoreError("the disk is full")

    monkeypatch.setattr(database, "write", broken)
    budgets.charge(held, 0.25, 1)
    with pytest.raises(StoreError, match="disk is full"):
        reserve(budgets, key, "b", Need(0.1))
    monkeypatch.setattr(database, "write", write)
    assert budgets.close(10)
    assert spent(database, key)[0] == 0.25
    database.close()
