"""Targets shared by processes and kept over a restart."""

from __future__ import annotations

import json

import pytest

from odar.policy.dial import Dial
from odar.served.targets import MAX_TARGETS_PER_SCOPE, ServedTargets, Target
from odar.types import NO_USAGE, Spend

DIAL = Dial.from_options(target_calls=1.8)


def spend(calls: int, cost_usd: float | None = 0.001) -> Spend:
    return Spend(calls, NO_USAGE, cost_usd, 1.0)


def ask(targets: ServedTargets, calls: int, times: int = 1, scope: str = "settings", dial: Dial = DIAL) -> None:
    for _ in range(times):
        targets.factor(scope, dial)
        targets.count(scope, dial, spend(calls))


def test_without_a_target_nothing_is_counted():
    targets = ServedTargets()
    ask(targets, 6, dial=Dial())
    assert targets.factor("settings", Dial()) == 1.0
    assert targets.report() == []


def test_spending_above_the_target_lowers_the_value():
    targets = ServedTargets()
    ask(targets, 6, 3)
    assert targets.factor("settings", DIAL) < 0.5
    row = targets.report()[0]
    assert (row.scope, row.kind, row.target, row.actual, row.questions) == ("settings", "calls", 1.8, 6.0, 3)
    assert targets.factor("key a", DIAL) == 1.0, "another scope has its own"


def test_a_question_of_unknown_cost_or_without_a_call_is_not_counted():
    targets = ServedTargets()
    dollars = Dial.from_options(target_cost_usd=0.001)
    targets.count("settings", dollars, spend(1, None))
    targets.count("settings", DIAL, spend(0))
    assert all(row.questions == 0 for row in targets.report())


def test_the_surplus_survives_a_restart(tmp_path):
    file = tmp_path / "odar.targets.json"
    first = ServedTargets(file)
    ask(first, 3, 5)
    before = first.factor("settings", DIAL)
    first.close()
    second = ServedTargets(file)
    assert second.factor("settings", DIAL) == pytest.approx(before)
    assert second.report()[0].questions == 5


def test_two_processes_do_not_correct_the_same_surplus(tmp_path):
    file = tmp_path / "odar.targets.json"
    ended = ServedTargets(file)
    ask(ended, 6, 2)
    ended.close()
    one = ServedTargets(file)
    assert one.factor("settings", DIAL) < 1
    one.sync()
    other = ServedTargets(file)
    assert other.factor("settings", DIAL) == 1.0
    ask(one, 1)
    one.sync()
    other.sync()
    assert other.report()[0].questions == 3


@pytest.mark.parametrize(
    "text",
    ["{", '{"format": "odar-targets-3", "counts": [[["settings", "calls", 1.8], {"total": 1.0, "debt": -1e999}]]}'],
)
def test_a_damaged_file_is_reported_and_counts_go_on(tmp_path, text):
    file = tmp_path / "odar.targets.json"
    file.write_text(text)
    targets = ServedTargets(file)
    ask(targets, 6)
    assert targets.factor("settings", DIAL) < 1
    assert "damaged" in targets.last_error


def test_targets_of_one_scope_never_evict_those_of_another():
    targets = ServedTargets()
    ask(targets, 6, 2, scope="request of key a")
    for i in range(MAX_TARGETS_PER_SCOPE + 50):
        ask(targets, 1, scope="request of key b", dial=Dial.from_options(target_calls=1 + i / 1000))
    assert targets.factor("request of key a", DIAL) < 1
    assert len(targets.report()) <= MAX_TARGETS_PER_SCOPE + 1


def test_thousands_of_targets_take_no_memory_and_leave_room_in_the_file(tmp_path):
    for targets in (ServedTargets(), ServedTargets(tmp_path / "odar.targets.json")):
        ask(targets, 6, scope="request of key a")
        for i in range(11 * MAX_TARGETS_PER_SCOPE):
            ask(targets, 1, 2, scope="request of key b", dial=Dial.from_options(target_calls=1 + i / 1000))
        targets.sync()
        assert Target("request of key a", "calls", 1.8) in targets.total
        assert len(targets.total) <= MAX_TARGETS_PER_SCOPE + 1


def test_the_file_holds_numbers_only(tmp_path):
    file = tmp_path / "odar.targets.json"
    targets = ServedTargets(file)
    ask(targets, 2)
    targets.close()
    body = json.loads(file.read_text())
    ((target, state),) = body["counts"]
    assert target == ["settings", "calls", 1.8]
    assert set(state) == {"questions", "total", "debt"}
