"""The promises that must hold during every fault. Each compares clients, upstream and store, and returns violations.

1. Every question is answered, or refused clearly, inside its deadline.
2. No task, socket or file is left behind.
3. The ledger equals the upstream's own count, or says that it does not know.
4. Every trace that a client was told of is in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.gateway import Footprint
from chaos.load import BROKEN, ERROR, LEFT, SILENT, SLACK_S, Asked
from chaos.upstream import Tally

_SHOWN = 3
ATTEMPTS = 3
"""How often the gateway tries a call (`odar.providers.http.ATTEMPTS`)."""
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a question according to its trace."""

    attempts: int
    """Requests of completed calls."""
    cancelled: int
    """Cancelled calls, which may have been sent never, once or several times."""
    unknown: int
    """Calls with unknown tokens."""
    choices: int
    tokens: int
    """Sum of the known tokens."""


def bill_of(document: Mapping[str, Any]) -> Bill:
    """Return the bill of a trace."""
    calls = document["calls"]
    whole = [call for call in calls if call["error"] != CANCELLED and call["samples"]]
    known = [call for call in calls if call["usage"]["input"] is not None and call["usage"]["output"] is not None]
    return Bill(
        attempts=sum(1 + call["retries"] for call in whole),
        cancelled=sum(call["error"] == CANCELLED for call in calls),
        unknown=len(calls) - len(known),
        choices=sum(call["samples"] for call in calls if call["error"] is None),
        tokens=sum(call["usage"]["input"] + call["usage"]["output"] for call in known),
    )


def answered(asked: Sequence[Asked], deadline_s: float, *, may_break: bool = False) -> list[str]:
    """Promise 1. If the gateway is killed, a connection that closes at once is accepted."""
    bad = [f"question {each.number}: no answer in {each.seconds:.1f} s" for each in asked if each.outcome == SILENT]
    bad += [f"question {each.number}: {each.unclear}" for each in asked if each.unclear]
    late = (each for each in asked if each.outcome != SILENT and each.seconds > deadline_s + SLACK_S)
    bad += [f"question {each.number}: {each.outcome} after {each.seconds:.1f} s" for each in late]
    if not may_break:
        bad += [f"question {each.number}: {each.code}" for each in asked if each.outcome == BROKEN]
    if not asked:
        bad.append("nothing was asked")
    return short(bad)


def nothing_left(before: Footprint, after: Footprint) -> list[str]:
    """Promise 2."""
    return [f"left behind: {more}" for more in after.more_than(before)]


def ledger_agrees(
    bills: Mapping[int, Bill], books: Mapping[int, Tally], excused: Iterable[int] = (), *, may_refuse: bool = False
) -> list[str]:
    """Promise 3, question by question.

    Args:
        bills: by question, from the store.
        books: by question, from the upstreams.
        excused: questions whose trace went down with the process.
        may_refuse: whether the upstream refused connections, which it then knows nothing of.
    """
    bad: list[str] = []
    lost = set(excused)
    for number in sorted((bills.keys() | books.keys()) - lost):
        tally = books.get(number, Tally())
        if number not in bills:
            bad.append(f"question {number}: {tally.requests} requests upstream, and no trace of it")
            continue
        if why := _difference(bills[number], tally, may_refuse):
            bad.append(f"question {number}: {why}")
    return short(bad)


def _difference(bill: Bill, tally: Tally, may_refuse: bool) -> str:
    fewest = 0 if may_refuse else bill.attempts
    most = bill.attempts + ATTEMPTS * bill.cancelled
    if not fewest <= tally.requests <= most:
        return f"{bill.attempts} requests on the bill (and {bill.cancelled} cancelled), {tally.requests} upstream"
    if bill.tokens > tally.tokens or (bill.tokens < tally.tokens and not bill.unknown):
        return f"{bill.tokens} tokens on the bill, {tally.tokens} upstream, {bill.unknown} calls marked unknown"
    if bill.choices > tally.choices or (bill.choices < tally.choices and not bill.unknown):
        return f"{bill.choices} answers on the bill, {tally.choices} upstream"
    return ""


def traces_present(asked: Iterable[Asked], stored: set[str], lost_after: float | None = None) -> list[str]:
    """Promise 4. Traces acknowledged after `lost_after` may be lost with the process."""
    told = (each for each in asked if each.trace is not None and each.outcome not in (BROKEN, SILENT, LEFT))
    due = (each for each in told if lost_after is None or each.finished_at < lost_after)
    return short(
        [f"question {each.number}: trace {each.trace} is gone" for each in due if each.trace not in stored]
    )


def errors_by_code(asked: Iterable[Asked]) -> dict[str, int]:
    """Return the number of errors by code."""
    counts: dict[str, int] = {}
    for each in asked:
        if each.outcome == ERROR:
            counts[each.code] = counts.get(each.code, 0) + 1
    return dict(sorted(counts.items()))


def short(found: list[str]) -> list[str]:
    """Return the first few entries and the number of the others."""
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], f"… and {more} more"] if more > 0 else found
