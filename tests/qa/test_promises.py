"""Each promise is reported if it is broken, and only then."""

from __future__ import annotations

import pytest
from chaos.gateway import Footprint, Gateway
from chaos.load import ANSWER, BROKEN, DEGRADED, ERROR, LEFT, SILENT, Asked
from chaos.promises import Bill, answered, bill_of, errors_by_code, ledger_agrees, nothing_left, traces_present
from chaos.upstream import Tally

DEADLINE_S = 3.0


def asked(outcome: str = ANSWER, number: int = 1, seconds: float = 0.1, at: float = 10.0, **more) -> Asked:
    return Asked(number, outcome, seconds, at, **more)


def call(tokens: int | None = 6, *, samples: int = 1, retries: int = 0, error: str | None = None) -> dict:
    usage = {"input": tokens, "output": None if tokens is None else 0}
    return {"usage": usage, "samples": samples, "retries": retries, "error": error}


# ── 1: answered ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", [ANSWER, DEGRADED, ERROR, LEFT])
def test_an_answer_or_error_in_time_is_accepted(outcome):
    assert answered([asked(outcome)], DEADLINE_S) == []


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (asked(SILENT, seconds=4.5), "no answer in 4.5 s"),
        (asked(ERROR, unclear="an error without words"), "without words"),
        (asked(ANSWER, seconds=4.6), "answer after 4.6 s"),
        (asked(BROKEN, code="ServerDisconnectedError"), "ServerDisconnectedError"),
    ],
)
def test_silent_late_or_unclear_ends_are_reported(seen, why):
    (found,) = answered([asked(), seen], DEADLINE_S)
    assert why in found


def test_a_killed_gateway_may_break_connections_but_not_hang():
    assert answered([asked(BROKEN)], DEADLINE_S, may_break=True) == []
    assert answered([asked(SILENT)], DEADLINE_S, may_break=True)


def test_an_empty_load_is_reported():
    assert answered([], DEADLINE_S) == ["nothing was asked"]


def test_many_problems_are_summarised():
    found = answered([asked(SILENT, number=n) for n in range(10)], DEADLINE_S)
    assert (len(found), found[-1]) == (4, "… and 7 more")


# ── 2: nothing left ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["tasks", "sockets", "files"])
def test_one_more_task_socket_or_file_is_a_leak(name):
    before = {"tasks": 3, "sockets": 3, "files": 14}
    (found,) = nothing_left(Footprint(**before), Footprint(**before | {name: before[name] + 1}))
    assert found.startswith(f"left behind: {name} ")


def test_fewer_resources_are_not_a_leak():
    assert nothing_left(Footprint(3, 5, 14), Footprint(3, 3, 12)) == []


def test_only_unexpected_log_lines_are_reported_once(tmp_path):
    log = tmp_path / "log"
    log.write_text("INFO request status=502\nERROR odar.serving unforeseen error in messages\n")
    gateway = Gateway(None, "", log)
    assert gateway.complaints() == ["ERROR odar.serving unforeseen error in messages"]
    with log.open("a") as file:
        file.write("ERROR asyncio Task exception was never retrieved\n")
    assert gateway.complaints() == ["ERROR asyncio Task exception was never retrieved"]
    assert gateway.complaints() == []


# ── 3: ledger ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bill_sums_its_calls():
    calls = [call(6, retries=1), call(5, samples=5), call(None, error="no answer within 1 s", retries=2)]
    calls += [call(None, error="cancelled"), call(0, samples=0, error="circuit open")]
    assert bill_of({"calls": calls}) == Bill(attempts=6, cancelled=1, unknown=2, choices=6, tokens=11)


def agree(bill: Bill, tally: Tally, **options) -> list[str]:
    return ledger_agrees({1: bill}, {1: tally}, **options)


def test_equal_sums_agree():
    assert agree(Bill(2, 0, 0, 2, 30), Tally(2, 2, 30)) == []


@pytest.mark.parametrize(
    ("bill", "tally"),
    [
        (Bill(1, 0, 0, 1, 30), Tally(2, 1, 30)),  # a request that nobody wrote down
        (Bill(2, 0, 0, 1, 30), Tally(1, 1, 30)),  # one that never was
        (Bill(1, 0, 0, 1, 30), Tally(1, 1, 31)),  # a token too few
        (Bill(1, 0, 0, 1, 31), Tally(1, 1, 30)),  # a token too many
        (Bill(1, 0, 1, 1, 31), Tally(1, 1, 30)),  # too many is wrong even where something is unknown
        (Bill(1, 0, 0, 2, 30), Tally(1, 1, 30)),  # an answer that was not given
        (Bill(0, 1, 1, 0, 0), Tally(4, 0, 0)),  # more tries than there are
    ],
)
def test_unequal_sums_are_reported(bill, tally):
    assert agree(bill, tally)


def test_unknown_usage_may_be_missing():
    assert agree(Bill(2, 0, 1, 1, 15), Tally(2, 2, 30)) == []
    assert agree(Bill(1, 1, 1, 1, 15), Tally(3, 2, 30)) == []


def test_refused_connections_may_be_missing_upstream():
    assert agree(Bill(3, 0, 0, 1, 15), Tally(1, 1, 15), may_refuse=True) == []
    assert agree(Bill(3, 0, 0, 1, 15), Tally(1, 1, 15))


def test_paid_requests_need_a_trace_unless_the_process_died():
    books = {7: Tally(1, 1, 15)}
    assert ledger_agrees({}, books) == ["question 7: 1 requests upstream, and no trace of it"]
    assert ledger_agrees({}, books, {7}) == []


# ── 4: traces ───────────────────────────────────────────────────────────────────────────────────────────────


def test_acknowledged_traces_must_exist():
    seen = [asked(trace="a"), asked(ERROR, number=2, trace="b"), asked(number=3)]
    assert traces_present(seen, {"a", "b"}) == []
    assert traces_present(seen, {"a"}) == ["question 2: trace b is gone"]


def test_a_kill_excuses_only_the_newest_traces():
    seen = [asked(trace="early", at=5.0), asked(number=2, trace="late", at=9.0)]
    assert traces_present(seen, {"early"}, lost_after=8.0) == []
    assert traces_present(seen, {"late"}, lost_after=8.0) == ["question 1: trace early is gone"]


def test_errors_are_counted_by_code():
    seen = [asked(ERROR, code="timeout"), asked(ERROR, code="deadline"), asked(ERROR, code="timeout"), asked()]
    assert errors_by_code(seen) == {"deadline": 1, "timeout": 2}
