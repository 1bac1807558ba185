"""Observations in the store: figures, one sequence for all processes, the fallback of a key and of all (SPEC 10)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from odar.config import load_settings
from odar.errors import KeyRefused
from odar.serving.budgets import OBSERVATION, Budgets, Need
from odar.serving.keys import create_key
from odar.traces.database import Database, observations
from odar.traces.observations import Observation, Observations, cascade_id
from odar.traces.retention import delete_old_traces

NUMBER = iter(range(10**9))


def row(same: bool | None = True, slow_same: bool | None = None, **fields: Any) -> Observation:
    fields = {"key_id": "", "kind": "number", "at": "2026-11-18T10:00:00.000+00:00", **fields}
    return Observation(
        f"{next(NUMBER):032x}", stages="fast", slow_usd=0.01, cascade_usd=0.004, spent_usd=0.001,
        same=same, slow_same=slow_same, **fields,
    )  # fmt: skip


def test_figures(database: Database) -> None:
    kept = Observations(database, "one")
    for each in (row(), row(False, True, key_id="a"), row(None, kind="open-ended"), row(True, False)):
        kept.add(each)
    Observations(database, "other").add(row(False))
    report = kept.report(step="hour")
    total = report["total"]
    assert (total["questions"], total["compared"], total["agreed"]) == (4, 3, 2)
    assert total["saved"] == pytest.approx(0.6)
    assert total["agreement"]["mean"] == pytest.approx(2 / 3)
    assert total["agreement"]["low"] < 2 / 3 < total["agreement"]["high"]
    assert [each["name"] for each in report["keys"]] == ["", "a"]
    assert {each["name"]: each["questions"] for each in report["kinds"]} == {"number": 3, "open-ended": 1}
    assert [each["name"] for each in report["series"]] == ["2026-11-18T10"]
    assert (report["excess"]["mean"], report["excess_questions"]) == (0, 2)
    assert kept.report(since="2026-11-19T00:00:00.000+00:00")["total"]["questions"] == 0
    assert kept.report(key_id="a")["total"]["agreement"]["mean"] == 0


def test_an_observation_counts_once(database: Database) -> None:
    kept = Observations(database, "one")
    same = row(False, True)
    kept.add(same)
    kept.add(same)
    assert kept.comparison() == (1, 0, 0)


def test_processes_count_together_and_exactly_one_notices(url: str, settings_of: Callable[..., Any]) -> None:
    databases = [Database(settings_of(url).store) for _ in range(4)]
    processes = [Observations(each, "one") for each in databases]
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda i: processes[i % 4].add(row(i % 2 == 0, True), 0.05), range(80)))
    assert processes[0].comparison().questions == 80
    assert sum(each is not None for each in told) == 1
    for each in processes:
        each.refresh()
        assert each.fallback_at is not None
    assert processes[1].resume() and not processes[1].resume()
    processes[0].refresh()
    assert processes[0].fallback_at is None and processes[0].comparison().questions == 0
    for database in databases:
        database.close()


def test_one_key_cannot_make_the_others_fall_back(database: Database) -> None:
    kept = Observations(database, "one")
    told = [kept.add(row(False, True, key_id="evil"), at_most_differ=0.05) for _ in range(100)]
    for _ in range(20):
        told.append(kept.add(row(key_id="good", same=True, slow_same=True), at_most_differ=0.05))
    told += [kept.add(row(False, True, key_id="evil"), at_most_differ=0.05) for _ in range(100)]
    assert sum(each is not None for each in told) == 1
    assert [kept.fell_back(key) for key in ("evil", "good", "new", "")] == [True, False, False, False]


def test_keys_together_make_all_fall_back(database: Database) -> None:
    kept = Observations(database, "one")
    told = [kept.add(row(number % 3 > 0, True, key_id=f"key {number % 12}"), 0.05) for number in range(240)]
    assert sum(each is not None for each in told) == 1
    assert kept.fell_back("key 1") and kept.fell_back("new") and kept.fell_back("")
    assert kept.resume() and not kept.fell_back("new")


def test_the_cascade_is_identified_by_its_agents_and_its_dial() -> None:
    ids = {
        cascade_id(load_settings("tiny", config="/dev/null", environ={}, **changed))
        for changed in ({}, {"routing__dial": "economy"}, {"slow__temperature": 0.9}, {"gateway__port": 1})
    }
    assert len(ids) == 3, "the port plays no part"


def test_old_observations_are_deleted(database: Database) -> None:
    kept = Observations(database, "one")
    kept.add(row(False, True, question="why?"))
    kept.add(row(at="2026-11-30T10:00:00.000+00:00"))
    assert not delete_old_traces(database, 7, datetime(2026, 12, 1, tzinfo=UTC))
    with database.read() as connection:
        assert len(connection.execute(observations.select()).all()) == 1
    assert kept.comparison().questions == 1, "the confidence sequence goes on"


def test_the_budget_of_a_day_holds_across_processes(url: str, settings_of: Callable[..., Any]) -> None:
    databases = [Database(settings_of(url).store) for _ in range(3)]
    accounts = [Budgets(each, lambda: 1.8e9, observe_usd_day=1.0) for each in databases]
    futures = [accounts[i % 3].reserve(OBSERVATION, f"r{i}", [Need(0.09)], 60) for i in range(60)]
    granted = [future.result() for future in futures if future.exception(30) is None]
    assert len(granted) == 11, "0.99 of 1 dollar"
    accounts[0].charge(granted[0], 0.01, None)
    again = [accounts[0].reserve(OBSERVATION, f"s{i}", [Need(0.08)], 60) for i in range(5)]
    kinds = [type(future.exception(30)) for future in again]
    assert kinds.count(type(None)) == 1 and kinds.count(KeyRefused) == 4
    for account in accounts:
        account.close(5)
    for database in databases:
        database.close()


def test_a_key_leaves_as_much_of_the_budget_as_it_spends(database: Database) -> None:
    budgets = Budgets(database, lambda: 1.8e9, observe_usd_day=1.0)

    def granted(key: str, times: int, usd: float = 0.1) -> int:
        futures = [
            budgets.reserve(f"{OBSERVATION}:{key}", f"{key}{next(NUMBER)}", [Need(usd)], 60) for _ in range(times)
        ]
        found = [future.result() for future in futures if future.exception(30) is None]
        for reservation in found:
            budgets.charge(reservation, reservation.need.usd, None).result(30)
        return len(found)

    assert granted("only", 3) == 3, "without other keys all of it is for one"
    for name in ("greedy", "modest"):
        create_key(database, name)
    assert granted("greedy", 10) == 3, "0.3 of the 0.7 that were left, 0.1 more would leave 0.3"
    assert granted("modest", 10) == 2
    assert granted("greedy", 10) == 0
    budgets.close(5)
