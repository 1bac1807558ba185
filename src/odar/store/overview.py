"""Figures over many traces, computed by the database in SQL that SQLite and PostgreSQL share.

The savings of routing are relative to always asking the slow model and to always Hard (SPEC 7.9), and include all
that ODAR itself spent. The costs of these alternatives are estimated from the same traffic, see ASSUMPTION: the
questions behind the estimate looked difficult, so it is probably too high for easy ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, literal_column, select

from odar.policy.cut_off import cut_off_warnings
from odar.policy.fusion import Fusion
from odar.settings import Settings
from odar.store.database import feedback, traces
from odar.store.record import ERROR, OK, finite_or_none, path_of
from odar.types import Call, Candidate, Path, Role, Trace

BINS = 100
"""Resolution of the difficulty histogram."""
ASSUMPTION = (
    "always slow: one slow answer per question at the mean cost of the recorded slow answers; always Hard: the "
    "mean of the recorded Hard questions. Questions whose path or model the caller chose are left out."
)
MIN_QUESTIONS = 20
"""Minimum number of questions of known cost for a warning."""
STEPS = {"day": 10, "hour": 13, "minute": 16}
"""Number of characters of an ISO 8601 time that name the day, the hour, the minute."""
_PERCENTILES = (50, 90, 95, 99)
_ROUTED = tuple(path.value for path in Path)
Conditions = Sequence[ColumnElement[bool]]


@dataclass(slots=True)
class RoutedTotals:
    """Sums over questions. The first block counts those that ODAR routed itself, the second all of them."""

    questions: int = 0
    """Answered questions."""
    calls: int = 0
    """Calls, including those of failed questions."""
    slow_calls: int = 0
    priced: int = 0
    """Answered questions with a known cost."""
    cost_usd: float = 0.0
    """Cost of the questions with a known cost, including failed ones."""
    unpriced: int = 0
    compared: int = 0
    """Questions that both agents answered."""
    changed: int = 0
    """Compared questions whose returned answer is not the fast agent's."""

    slow_answers: int = 0
    """Slow answers with a known cost."""
    slow_cost_usd: float = 0.0
    hard: int = 0
    hard_calls: int = 0
    hard_priced: int = 0
    hard_cost_usd: float = 0.0

    def add_trace(self, trace: Trace) -> None:
        """Add an answered question."""
        decision, cost = trace.decision, finite_or_none(trace.spend.cost_usd)
        slow_calls, slow_cost = slow_calls_and_cost(trace.calls)
        changed = None if decision.forced else changed_by_slow(trace.candidates, trace.verdict.winner)
        self.add_cell(
            {
                "path": path_of(decision),
                "status": OK,
                "forced": decision.forced,
                "queries": 1,
                "calls": trace.spend.calls,
                "priced": int(cost is not None),
                "cost_usd": cost or 0.0,
                "slow_calls": slow_calls,
                "slow_priced": 0 if slow_cost is None else slow_calls,
                "slow_cost_usd": slow_cost or 0.0,
                "compared": int(changed is not None),
                "changed": int(bool(changed)),
            }
        )

    def add_cell(self, cell: Mapping[str, Any]) -> None:
        """Add a cell of `_cells`, the sums over questions of one path and status, forced or not."""
        path, answered = cell["path"], cell["status"] == OK
        if path not in _ROUTED:
            return
        self.slow_answers += cell["slow_priced"]
        self.slow_cost_usd += cell["slow_cost_usd"]
        if path == Path.HARD.value and answered:
            self.hard += cell["queries"]
            self.hard_calls += cell["calls"]
            self.hard_priced += cell["priced"]
            self.hard_cost_usd += cell["cost_usd"]
        if cell["forced"]:
            return
        if answered:
            self.questions += cell["queries"]
            self.priced += cell["priced"]
        self.calls += cell["calls"]
        self.slow_calls += cell["slow_calls"]
        self.cost_usd += cell["cost_usd"]
        self.unpriced += cell["queries"] - cell["priced"]
        self.compared += cell["compared"]
        self.changed += cell["changed"]


def savings(totals: RoutedTotals) -> dict[str, Any]:
    """Return the savings against both alternatives, and a warning if always asking the slow model costs less.

    >>> found = savings(RoutedTotals(questions=40, calls=70, slow_calls=20, priced=40, cost_usd=0.30,
    ...                              slow_answers=20, slow_cost_usd=0.20, compared=20, changed=5))
    >>> found["always_slow"]["calls_saved"], round(found["always_slow"]["usd_saved"], 2), found["changed"]
    (-30, 0.1, 0.25)
    >>> found["always_hard"]["cost_usd"] is None, found["warning"] is None
    (True, True)
    """
    t = totals
    slow = _alternative(t, t.questions, _mean(t.slow_cost_usd, t.slow_answers))
    calls_per_hard = _mean(t.hard_calls, t.hard)
    hard_calls = None if calls_per_hard is None else calls_per_hard * t.questions
    return {
        "questions": t.questions,
        "calls": t.calls,
        "slow_calls": t.slow_calls,
        "cost_usd": t.cost_usd if t.priced else None,
        "cost_unknown": t.unpriced,
        "always_slow": slow | {"slow_calls_saved": t.questions - t.slow_calls},
        "always_hard": _alternative(t, hard_calls, _mean(t.hard_cost_usd, t.hard_priced)),
        "compared": t.compared,
        "changed": _mean(t.changed, t.compared),
        "assumption": ASSUMPTION,
        "warning": _warning(t, slow["cost_usd"]),
    }


def slow_calls_and_cost(calls: Iterable[Call]) -> tuple[int, float | None]:
    """Return the number of answers by the slow agent, and their cost; None if the cost of one is unknown."""
    count, total = 0, 0.0
    cost_known = True
    for call in calls:
        if call.step.role is Role.SLOW and call.error is None:
            cost = finite_or_none(call.cost_usd)
            count += call.samples
            total += cost or 0.0
            cost_known = cost_known and cost is not None
    return count, total if cost_known else None


def changed_by_slow(candidates: Sequence[Candidate], winner: int) -> bool | None:
    """Return whether the answer given differs from the fast agent's; None unless both agents answered."""
    if len({candidate.role for candidate in candidates}) < len(Role):
        return None
    groups = Fusion().groups(candidates)
    fast = next(i for i, candidate in enumerate(candidates) if candidate.role is Role.FAST)
    return groups[winner] != groups[fast]


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _alternative(totals: RoutedTotals, calls: float | None, mean_cost: float | None) -> dict[str, float | None]:
    cost = None if mean_cost is None or not totals.priced else mean_cost * totals.priced
    return {
        "calls": calls,
        "cost_usd": cost,
        "calls_saved": None if calls is None else calls - totals.calls,
        "usd_saved": None if cost is None else cost - totals.cost_usd,
    }


def _warning(totals: RoutedTotals, slow_usd: float | None) -> str | None:
    if slow_usd is None or totals.priced < MIN_QUESTIONS or totals.cost_usd <= slow_usd:
        return None
    more = f"{totals.cost_usd / slow_usd - 1:.0%} more than" if slow_usd > 0 else "more than"
    return (
        f"ODAR cost ${totals.cost_usd:.4g}, {more} the ${slow_usd:.4g} of always asking the slow model; "
        f"set routing.target_cost_usd below {slow_usd / totals.priced:.3g}, or run odar calibrate --goal cost"
    )


def overview(connection: Connection, conditions: Conditions, step: str = "day") -> dict[str, Any]:
    """Return figures over the traces that meet the conditions.

    Returns:
        `queries`, `errors`, `degraded`, `calls`, `calls_per_query`, `cost_usd` of the queries with a known cost,
        `cost_unknown` (the number of the others), `feedback` (right, wrong); `paths`: the same for each path, and
        `latency_s` with p50, p90, p95, p99; `savings`, see `savings()`; `cut_off`: for each agent its answers and
        the number of those cut off; `difficulty`: for each path a histogram of the queries that ODAR routed;
        `timeline`: sums by `step` and path, oldest first.
    """
    cells = _cells(connection, conditions)
    marks = _feedback(connection, conditions)
    paths = {
        name: _sums([cell for cell in cells if cell["path"] == name])
        for name in sorted({cell["path"] for cell in cells})
    }
    latencies = _latencies(connection, conditions, {name: path["queries"] for name, path in paths.items()})
    for name, path in paths.items():
        path |= {"latency_s": latencies[name], "feedback": marks.get(name, {"right": 0, "wrong": 0})}
    totals = RoutedTotals()
    for cell in cells:
        totals.add_cell(cell)
    return _sums(cells) | {
        "feedback": {mark: sum(each[mark] for each in marks.values()) for mark in ("right", "wrong")},
        "paths": paths,
        "savings": savings(totals),
        "cut_off": {
            role.value: {what: sum(cell[f"{role}_{what}"] for cell in cells) for what in ("answers", "cut_off")}
            for role in Role
        },
        "difficulty": _histogram(cells),
        "timeline": _timeline(connection, conditions, step),
    }


def warnings_of(figures: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return warnings for the operator: ODAR costs more than it saves, or answers are cut off."""
    counts = {Role(role): (each["answers"], each["cut_off"]) for role, each in figures["cut_off"].items()}
    limits = {role: settings.agent(role).max_tokens for role in Role}
    warnings = cut_off_warnings(counts, limits)
    if warning := figures["savings"]["warning"]:
        return [warning, *warnings]
    return warnings


_NO_PATH = "none"
"""Path of questions that failed before one was chosen."""
_SUMS: dict[str, ColumnElement[Any]] = {
    "queries": func.count(),
    "calls": func.sum(traces.c.calls),
    "cost_usd": func.coalesce(func.sum(traces.c.cost_usd), 0.0),
    "cost_unknown": func.count() - func.count(traces.c.cost_usd),
}
_ANSWERS = [f"{role}_{what}" for role in Role for what in ("answers", "cut_off")]


def _cells(connection: Connection, conditions: Conditions) -> list[dict[str, Any]]:
    """Return sums by path, status, forced or not, and hundredth of difficulty: one query for most figures."""
    c = traces.c
    sums = _SUMS | {
        "priced": func.count(c.cost_usd),
        "degraded": func.count(case((c.degraded, 1))),
        "slow_calls": _total(c.slow_calls),
        "slow_priced": _total(case((c.slow_cost_usd.is_not(None), c.slow_calls))),
        "slow_cost_usd": _total(c.slow_cost_usd),
        "compared": func.count(c.changed),
        "changed": func.count(case((c.changed, 1))),
        **{name: _total(c[name]) for name in _ANSWERS},
    }
    groups = (c.path, c.status, c.forced, c.bin)
    labelled = (value.label(f"sum_{name}") for name, value in sums.items())
    rows = connection.execute(select(*groups, *labelled).where(*conditions).group_by(*groups))
    return [
        {"path": path or _NO_PATH, "status": status, "forced": forced, "bin": bin_}
        | {name: float(v) if name.endswith("usd") else int(v) for name, v in zip(sums, values, strict=True)}
        for path, status, forced, bin_, *values in rows
    ]


def _total(value: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.coalesce(func.sum(value), 0)


def _sums(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    sums = {
        name: sum(cell[name] for cell in cells)
        for name in ("queries", "degraded", "calls", "cost_unknown", "cost_usd")
    }
    return sums | {
        "errors": sum(cell["queries"] for cell in cells if cell["status"] == ERROR),
        "calls_per_query": _mean(sums["calls"], sums["queries"]),
    }


def _histogram(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a histogram of difficulty for each path, without queries whose path the caller chose."""
    routed = {cell["path"]: [0] * BINS for cell in cells if cell["path"] in _ROUTED}
    for cell in cells:
        if cell["bin"] is not None and cell["path"] in routed and not cell["forced"]:
            routed[cell["path"]][cell["bin"]] += cell["queries"]
    return {"bins": BINS, "routed": routed}


def _latencies(
    connection: Connection, conditions: Conditions, counts: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """Return percentiles of the latency by nearest rank, for each path."""
    rank = func.row_number().over(partition_by=traces.c.path, order_by=traces.c.seconds).label("rank")
    ranked = select(traces.c.path, traces.c.seconds, rank).where(*conditions).subquery()
    # Fetch only these ranks; a rank that only another path needs is fetched too, and ignored.
    ranks = {(name, p): -(-n * p // 100) for name, n in counts.items() for p in _PERCENTILES}
    rows = connection.execute(select(ranked).where(ranked.c.rank.in_(set(ranks.values()))))
    at = {(path or _NO_PATH, rank): seconds for path, seconds, rank in rows}
    return {name: {f"p{p}": at.get((name, ranks[name, p])) for p in _PERCENTILES} for name in counts}


def _feedback(connection: Connection, conditions: Conditions) -> dict[str, dict[str, int]]:
    """Return the number of right and wrong marks for each path."""
    joined = traces.join(feedback, feedback.c.trace_id == traces.c.id)
    query = select(traces.c.path, feedback.c.correct, func.count()).select_from(joined).where(*conditions)
    found: dict[str, dict[str, int]] = {}
    for path, correct, count in connection.execute(query.group_by(traces.c.path, feedback.c.correct)):
        found.setdefault(path or _NO_PATH, {"right": 0, "wrong": 0})["right" if correct else "wrong"] = int(count)
    return found


def _timeline(connection: Connection, conditions: Conditions, step: str) -> list[dict[str, Any]]:
    # Literals: with parameters, PostgreSQL would not see that the expressions in SELECT and GROUP BY are equal.
    length: ColumnElement[int] = literal_column(str(STEPS[step]))
    moment = func.substr(traces.c.started_at, literal_column("1"), length)
    query = select(moment.label("at"), traces.c.path, *(value.label(name) for name, value in _SUMS.items()))
    grouped = query.where(*conditions).group_by(moment, traces.c.path)
    points = [
        {**row, "path": row["path"] or _NO_PATH, "calls": int(row["calls"]), "cost_usd": float(row["cost_usd"])}
        for row in connection.execute(grouped).mappings()
    ]
    return sorted(
        points, key=lambda point: (point["at"], point["path"])
    )  # not in SQL: databases sort NULL differently
