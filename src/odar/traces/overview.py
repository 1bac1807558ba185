"""Figures over many traces, computed by the database in SQL that SQLite and PostgreSQL share.

Savings are relative to one call to the slow agent for every question (SPEC 7.9), and include all that ODAR itself
spent. The cost of that call is estimated for each question from its own tokens, see ASSUMPTION.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal_column, select

from odar.policy.equivalence import group_candidates
from odar.settings import Settings
from odar.traces.cut_off import cut_off_warnings
from odar.traces.database import feedback, traces
from odar.traces.record import ERROR, OK, finite_or_none, path_name
from odar.types import CHEAP_AGENTS, FAST, Call, Candidate, Route, Trace

BINS = 100
ASSUMPTION = (
    "always slow: one slow call for each question, with the tokens of its own slow call, or of its fast answer if "
    "slow was not asked. Questions whose path or model the caller chose are left out."
)
MIN_QUESTIONS = 20
"""Minimum number of questions of known cost for a warning."""
STEPS = {"day": 10, "hour": 13, "minute": 16}
"""Number of characters of an ISO 8601 time that name the day, the hour, the minute."""
_PERCENTILES = (50, 90, 95, 99)
_ROUTED = tuple(path.value for path in Route)
Conditions = Sequence[ColumnElement[bool]]


@dataclass(slots=True)
class RoutedTotals:
    """Sums over the questions whose path ODAR chose."""

    questions: int = 0
    calls: int = 0
    """Calls, including those of failed questions."""
    slow_calls: int = 0
    priced: int = 0
    """Answered questions with a known cost and a known baseline."""
    cost_usd: float = 0.0
    """Cost of these questions, and of failed ones."""
    baseline_usd: float = 0.0
    compared: int = 0
    """Questions that the fast agent and another one answered."""
    changed: int = 0
    """Compared questions whose returned answer is not the fast agent's."""

    def add_trace(self, trace: Trace) -> None:
        cost = finite_or_none(trace.spend.cost_usd)
        baseline = finite_or_none(trace.baseline_usd)
        priced = cost is not None and baseline is not None
        changed = changed_by_others(trace.candidates, trace.verdict.winner)
        self.add_cell(
            {
                "path": path_name(trace.plan, trace.decisions),
                "status": OK,
                "forced": trace.plan.forced,
                "queries": 1,
                "calls": trace.spend.calls,
                "slow_calls": count_slow_calls(trace.calls),
                "priced": int(priced),
                "priced_usd": cost if priced else 0.0,
                "baseline_usd": baseline if priced else 0.0,
                "compared": int(changed is not None),
                "changed": int(bool(changed)),
            }
        )

    def add_cell(self, cell: Mapping[str, Any]) -> None:
        """Add a cell of `_cells`, the sums over questions of one path and status, forced or not."""
        if cell["path"] not in _ROUTED or cell["forced"]:
            return
        if cell["status"] == OK:
            self.questions += cell["queries"]
            self.priced += cell["priced"]
            self.cost_usd += cell["priced_usd"]
            self.baseline_usd += cell["baseline_usd"]
        else:
            self.cost_usd += cell["cost_usd"]
        self.calls += cell["calls"]
        self.slow_calls += cell["slow_calls"]
        self.compared += cell["compared"]
        self.changed += cell["changed"]


def savings(totals: RoutedTotals) -> dict[str, Any]:
    """Return the savings against always asking the slow agent, and a warning if that costs less.

    Dollars are None if no question has a known cost and baseline; `unpriced` is the number of questions left out.

    >>> found = savings(RoutedTotals(questions=40, calls=70, slow_calls=20, priced=40, cost_usd=0.30,
    ...                              baseline_usd=0.40, compared=20, changed=5))
    >>> found["calls_saved"], round(found["usd_saved"], 2), found["changed"], found["warning"]
    (-30, 0.1, 0.25, None)
    """
    t = totals
    known = t.priced > 0
    return {
        "questions": t.questions,
        "calls": t.calls,
        "slow_calls": t.slow_calls,
        "unpriced": t.questions - t.priced,
        "cost_usd": t.cost_usd if known else None,
        "always_slow_usd": t.baseline_usd if known else None,
        "usd_saved": t.baseline_usd - t.cost_usd if known else None,
        "calls_saved": t.questions - t.calls,
        "slow_calls_saved": t.questions - t.slow_calls,
        "compared": t.compared,
        "changed": _mean(t.changed, t.compared),
        "assumption": ASSUMPTION,
        "warning": _warning(t),
    }


def count_slow_calls(calls: Iterable[Call]) -> int:
    return sum(call.samples for call in calls if call.agent not in CHEAP_AGENTS and call.error is None)


def changed_by_others(candidates: Sequence[Candidate], winner: int) -> bool | None:
    """Return whether the answer given differs from the fast agent's; None unless it and another agent answered."""
    fast = next((i for i, candidate in enumerate(candidates) if candidate.agent == FAST), None)
    if fast is None or len({candidate.agent for candidate in candidates}) < 2:
        return None
    groups = group_candidates(candidates)
    return groups[winner] != groups[fast]


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _warning(totals: RoutedTotals) -> str | None:
    cost = totals.cost_usd
    slow = totals.baseline_usd
    if totals.priced < MIN_QUESTIONS or cost <= slow:
        return None
    more = f"{cost / slow - 1:.0%} more than" if slow > 0 else "more than"
    return (
        f"ODAR cost ${cost:.4g}, {more} the ${slow:.4g} of always asking the slow model; "
        'set policy = "slow", a cheaper dial (routing.dial = "economy"), or run odar calibrate'
    )


def overview(connection: Connection, conditions: Conditions, step: str = "day") -> dict[str, Any]:
    """Return figures over the traces that meet the conditions.

    Returns:
        `queries`, `errors`, `degraded`, `calls`, `calls_per_query`, `cost_usd` of the queries with a known cost,
        `cost_unknown` (the number of the others), `feedback` (right, wrong); `paths`: the same for each path, and
        `latency_s` with p50, p90, p95, p99; `savings`, see `savings()`; `stages`: the number of routed questions
        for each sequence of stages; `cut_off`: for each agent its answers and the number of those cut off;
        `difficulty`: for each path a histogram of the queries that ODAR routed; `timeline`: sums by `step` and
        path, oldest first.
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
        "stages": _stages(connection, conditions),
        "cut_off": _cut_off(connection, conditions),
        "difficulty": _histogram(cells),
        "timeline": _timeline(connection, conditions, step),
    }


def warnings_of(figures: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return warnings for the operator: ODAR costs more than it saves, unknown prices, answers cut off."""
    counts = {agent: (each["answers"], each["cut_off"]) for agent, each in figures["cut_off"].items()}
    limits = {agent: settings.agent(agent).max_tokens for agent in settings.agent_names}
    warnings = [figures["savings"]["warning"]] if figures["savings"]["warning"] else []
    if figures["savings"]["unpriced"]:
        models = dict.fromkeys(settings.agent(agent).model for agent in settings.agent_names)
        warnings += [
            f'the price of {model} is unknown: add price = {{ input = …, output = … }} to [models."{model}"]'
            for model in models
            if settings.card(model).price is None
        ]
    return warnings + cut_off_warnings(counts, limits)


_NO_PATH = "none"
"""Path of questions that failed before one was chosen."""
_SUMS: dict[str, ColumnElement[Any]] = {
    "queries": func.count(),
    "calls": func.sum(traces.c.calls),
    "cost_usd": func.coalesce(func.sum(traces.c.cost_usd), 0.0),
    "cost_unknown": func.count() - func.count(traces.c.cost_usd),
}


def _cells(connection: Connection, conditions: Conditions) -> list[dict[str, Any]]:
    """Return sums by path, status, forced or not, and hundredth of difficulty: one query for most figures."""
    c = traces.c
    priced = and_(c.cost_usd.is_not(None), c.baseline_usd.is_not(None))
    sums = _SUMS | {
        "priced": func.count(case((priced, 1))),
        "priced_usd": _total(case((priced, c.cost_usd))),
        "baseline_usd": _total(case((priced, c.baseline_usd))),
        "degraded": func.count(case((c.degraded, 1))),
        "slow_calls": _total(c.slow_calls),
        "compared": func.count(c.changed),
        "changed": func.count(case((c.changed, 1))),
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


def _stages(connection: Connection, conditions: Conditions) -> dict[str, int]:
    c = traces.c
    wanted = (*conditions, c.path.in_(_ROUTED), c.forced.is_(False), c.stages.is_not(None))
    rows = connection.execute(select(c.stages, func.count()).where(*wanted).group_by(c.stages))
    counts: dict[str, int] = {stages: count for stages, count in rows}  # noqa: C416 - rows are no tuples for mypy
    return {stages: counts[stages] for stages in sorted(counts, key=lambda each: (-counts[each], each))}


def _cut_off(connection: Connection, conditions: Conditions) -> dict[str, dict[str, int]]:
    c = traces.c
    sums: dict[str, Counter[str]] = {}
    for text, count in connection.execute(select(c.answers, func.count()).where(*conditions).group_by(c.answers)):
        for part in filter(None, text.split(",")):
            agent, answers, cut_off = part.split(" ")
            numbers = {"answers": count * int(answers), "cut_off": count * int(cut_off)}
            sums.setdefault(agent, Counter(answers=0, cut_off=0)).update(numbers)
    return {agent: dict(sums[agent]) for agent in sorted(sums)}


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
    # not in SQL: databases sort NULL differently
    return sorted(points, key=lambda point: (point["at"], point["path"]))
