"""Figures over many traces, computed by the database in SQL that SQLite and PostgreSQL share.

Savings are relative to one call to the slow agent for every question (SPEC 7.9), and include all that ODAR itself
spent. The cost of that call is estimated for each question from its own tokens, see ASSUMPTION.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal_column, or_, select

from odar.policy.equivalence import group_candidates
from odar.settings import Settings
from odar.traces.cut_off import cut_off_warnings
from odar.traces.database import traces
from odar.traces.record import ERROR, OK, finite_or_none
from odar.types import CHEAP_AGENTS, FAST, Call, Candidate, Route, Trace, path_name

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


def count_slow_calls(calls: Iterable[Call]) -> int:
    return sum(call.samples for call in calls if call.agent not in CHEAP_AGENTS and call.error is None)


def changed_by_others(candidates: Sequence[Candidate], winner: int) -> bool | None:
    """Whether the final answer differs from the fast agent's; None unless fast and another agent answered."""
    fast = next((i for i, candidate in enumerate(candidates) if candidate.agent == FAST), None)
    if fast is None or len({candidate.agent for candidate in candidates}) < 2:
        return None
    groups = group_candidates(candidates)
    return groups[winner] != groups[fast]


def routed_sums(trace: Trace) -> dict[str, float]:
    """What an answered question adds to the sums of `savings`; empty if the caller chose path or model."""
    if trace.plan.forced or path_name(trace.plan, trace.decisions) not in _ROUTED:
        return {}
    cost = finite_or_none(trace.spend.cost_usd)
    baseline = finite_or_none(trace.baseline_usd)
    changed = changed_by_others(trace.candidates, trace.verdict.winner)
    sums: dict[str, float] = {
        "questions": 1,
        "calls": trace.spend.calls,
        "slow_calls": count_slow_calls(trace.calls),
        "compared": int(changed is not None),
        "changed": int(bool(changed)),
    }
    if cost is None or baseline is None:
        return sums
    return sums | {"priced": 1, "routed_usd": cost, "baseline_usd": baseline}


def savings(sums: Mapping[str, float]) -> dict[str, Any]:
    """The savings against always asking the slow agent, and a warning if that costs less.

    Dollars are None if no question has a known cost and baseline; `unpriced` is the number of questions left out.

    Args:
        sums: over the questions whose path ODAR chose. `calls` and `slow_calls` include those of failed questions.
            `priced` of the answered `questions` have a known cost and baseline (`baseline_usd`); `routed_usd` is
            the cost of these and of failed ones. Of those `compared`, which the fast agent and another one
            answered, some got an answer that is not the fast agent's (`changed`). What is missing is 0.

    >>> found = savings({"questions": 40, "calls": 70, "slow_calls": 20, "priced": 40, "routed_usd": 0.30,
    ...                  "baseline_usd": 0.40, "compared": 20, "changed": 5})
    >>> found["calls_saved"], round(found["usd_saved"], 2), found["changed"], found["warning"]
    (-30, 0.1, 0.25, None)
    """
    total = {name: sums.get(name, 0) for name in ("calls", *_ROUTED_SUMS)}
    questions = total["questions"]
    cost = total["routed_usd"]
    slow = total["baseline_usd"]
    known = total["priced"] > 0
    warning = None
    if total["priced"] >= MIN_QUESTIONS and cost > slow:
        more = f"{cost / slow - 1:.0%} more than" if slow > 0 else "more than"
        warning = (
            f"ODAR cost ${cost:.4g}, {more} the ${slow:.4g} of always asking the slow model; "
            'set policy = "slow", a cheaper dial (routing.dial = "economy"), or run odar calibrate'
        )
    return {
        "questions": questions,
        "calls": total["calls"],
        "slow_calls": total["slow_calls"],
        "unpriced": questions - total["priced"],
        "cost_usd": cost if known else None,
        "always_slow_usd": slow if known else None,
        "usd_saved": slow - cost if known else None,
        "calls_saved": questions - total["calls"],
        "slow_calls_saved": questions - total["slow_calls"],
        "compared": total["compared"],
        "changed": total["changed"] / total["compared"] if total["compared"] else None,
        "assumption": ASSUMPTION,
        "warning": warning,
    }


def overview(connection: Connection, conditions: Conditions, step: str = "day") -> dict[str, Any]:
    """Figures over the traces that meet the conditions.

    Returns:
        `queries`, `errors`, `degraded`, `calls`, `calls_per_query`, `cost_usd` of the queries with a known cost,
        `cost_unknown` (the number of the others), `feedback` (right, wrong); `paths`: the same for each path, and
        `latency_s` with p50, p90, p95, p99; `savings`, see `savings()`; `stages`: the number of routed questions
        for each sequence of stages; `cut_off`: for each agent its answers and the number of those cut off;
        `difficulty`: for each path a histogram of the queries that ODAR routed; `timeline`: sums by `step` and
        path, oldest first.
    """
    c = traces.c
    cells = grouped(connection, conditions, _PATH, c.status, c.forced, c.bin, **_SUMS, **_CELL_SUMS)
    paths = {}
    for name in sorted({cell["path"] for cell in cells}):
        paths[name] = _figures([cell for cell in cells if cell["path"] == name])
    latencies = _latencies(connection, conditions, {name: path["queries"] for name, path in paths.items()})
    for name, path in paths.items():
        path["latency_s"] = latencies[name]
    routed = [cell for cell in cells if cell["path"] in _ROUTED and not cell["forced"]]
    timeline = grouped(connection, conditions, truncate_time(c.started_at, step).label("at"), _PATH, **_SUMS)
    return _figures(cells) | {
        "paths": paths,
        "savings": savings({name: sum(cell[name] for cell in routed) for name in ("calls", *_ROUTED_SUMS)}),
        "stages": _stages(connection, conditions),
        "cut_off": _cut_off(connection, conditions),
        "difficulty": _histogram(cells),
        "timeline": timeline,
    }


def warnings_of(figures: Mapping[str, Any], settings: Settings) -> list[str]:
    """Warnings for the operator: ODAR costs more than it saves, unknown prices, answers cut off."""
    counts = {agent: (row["answers"], row["cut_off"]) for agent, row in figures["cut_off"].items()}
    limits = {agent: settings.agent(agent).max_tokens for agent in settings.agent_names}
    warnings = [figures["savings"]["warning"]] if figures["savings"]["warning"] else []
    if figures["savings"]["unpriced"]:
        models = dict.fromkeys(settings.default_models.values())
        warnings += [
            f'the price of {model} is unknown: add price = {{ input = …, output = … }} to [models."{model}"]'
            for model in models
            if settings.card(model).price is None
        ]
    return warnings + cut_off_warnings(counts, limits)


def truncate_time(time: ColumnElement[str], step: str) -> ColumnElement[str]:
    """The day, hour or minute of a time."""
    # Literals: with parameters, PostgreSQL would not see that the expressions in SELECT and GROUP BY are equal.
    return func.substr(time, literal_column("1"), literal_column(str(STEPS[step])))


def sum_of(value: ColumnElement[Any], zero: float = 0) -> ColumnElement[Any]:
    return func.coalesce(func.sum(value), zero)


def _priced_total(value: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    return sum_of(case((or_(_IS_PRICED, *conditions), value)), 0.0)


_PATH = func.coalesce(traces.c.path, literal_column("'none'")).label("path")
"""The path, or "none" for questions that failed before one was chosen."""
_IS_PRICED = and_(traces.c.cost_usd.is_not(None), traces.c.baseline_usd.is_not(None))
"""Both costs are known; failed questions have no baseline."""
_SUMS: dict[str, ColumnElement[Any]] = {
    "queries": func.count(),
    "calls": func.sum(traces.c.calls),
    "cost_usd": sum_of(traces.c.cost_usd, 0.0),
    "cost_unknown": func.count() - func.count(traces.c.cost_usd),
}
_ROUTED_SUMS: dict[str, ColumnElement[Any]] = {
    "questions": func.count(case((traces.c.status == OK, 1))),
    "slow_calls": sum_of(traces.c.slow_calls),
    "priced": func.count(case((_IS_PRICED, 1))),
    "routed_usd": _priced_total(traces.c.cost_usd, traces.c.status != OK),
    "baseline_usd": _priced_total(traces.c.baseline_usd),
    "compared": func.count(traces.c.changed),
    "changed": func.count(case((traces.c.changed, 1))),
}
"""The sums that `savings` needs, except `calls`."""
_CELL_SUMS = _ROUTED_SUMS | {
    "degraded": func.count(case((traces.c.degraded, 1))),
    "errors": func.count(case((traces.c.status == ERROR, 1))),
    "right": func.count(case((traces.c.correct, 1))),
    "wrong": func.count(case((traces.c.correct.is_(False), 1))),
}


def grouped(
    connection: Connection, conditions: Conditions, *groups: ColumnElement[Any], **sums: ColumnElement[Any]
) -> list[dict[str, Any]]:
    """Sums over the rows that meet the conditions, for each group of rows that have the same values."""
    query = select(*groups, *(value.label(name) for name, value in sums.items())).where(*conditions)
    rows = [dict(row) for row in connection.execute(query.group_by(*groups)).mappings()]
    # not in SQL: databases sort NULL and letters differently
    return sorted(rows, key=lambda row: [(row[g.key] is not None, row[g.key]) for g in groups])


def _figures(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = (*_SUMS, "degraded", "errors", "right", "wrong")
    sums = {name: sum(cell[name] for cell in cells) for name in names}
    feedback = {name: sums.pop(name) for name in ("right", "wrong")}
    mean = sums["calls"] / sums["queries"] if cells else None
    return {**sums, "calls_per_query": mean, "feedback": feedback}


def _histogram(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    paths = {cell["path"]: [0] * BINS for cell in cells if cell["path"] in _ROUTED}
    for cell in cells:
        if cell["path"] in _ROUTED and not cell["forced"] and cell["bin"] is not None:
            paths[cell["path"]][cell["bin"]] += cell["queries"]
    return {"bins": BINS, "routed": paths}


def _stages(connection: Connection, conditions: Conditions) -> dict[str, int]:
    c = traces.c
    wanted = (*conditions, c.path.in_(_ROUTED), c.forced.is_(False), c.stages.is_not(None))
    rows = grouped(connection, wanted, c.stages, number=func.count())
    return {row["stages"]: row["number"] for row in sorted(rows, key=lambda row: (-row["number"], row["stages"]))}


def _cut_off(connection: Connection, conditions: Conditions) -> dict[str, dict[str, int]]:
    sums: dict[str, Counter[str]] = {}
    for row in grouped(connection, conditions, traces.c.answers, number=func.count()):
        for part in filter(None, row["answers"].split(",")):
            agent, answers, cut_off = part.split(" ")
            numbers = {"answers": row["number"] * int(answers), "cut_off": row["number"] * int(cut_off)}
            sums.setdefault(agent, Counter(answers=0, cut_off=0)).update(numbers)
    return {agent: dict(sums[agent]) for agent in sorted(sums)}


def _latencies(
    connection: Connection, conditions: Conditions, counts: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """Percentiles of the latency by nearest rank, for each path."""
    rank = func.row_number().over(partition_by=traces.c.path, order_by=traces.c.seconds).label("rank")
    ranked = select(_PATH, traces.c.seconds, rank).where(*conditions).subquery()
    # Fetch only these ranks; a rank that only another path needs is fetched too, and ignored.
    ranks = {(name, p): -(-n * p // 100) for name, n in counts.items() for p in _PERCENTILES}
    rows = connection.execute(select(ranked).where(ranked.c.rank.in_(set(ranks.values()))))
    at = {(path, rank): seconds for path, seconds, rank in rows}
    return {name: {f"p{p}": at.get((name, ranks[name, p])) for p in _PERCENTILES} for name in counts}
