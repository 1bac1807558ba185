"""The traces in a few numbers, added up by the database in SQL that SQLite and PostgreSQL both take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, literal_column, select

from odar.store.rows import BINS
from odar.store.schema import feedback, traces
from odar.types import Path

STEPS = {"day": 10, "hour": 13, "minute": 16}
"""How much of an ISO 8601 time names the day, the hour, the minute."""
_PERCENTILES = (50, 90, 95, 99)
_ROUTED = tuple(path.value for path in Path)

Conditions = Sequence[ColumnElement[bool]]


def overview(connection: Connection, conditions: Conditions, step: str = "day") -> dict[str, Any]:
    """Figures over the traces that meet the conditions.

    Returns:
        `queries`, `errors`, `degraded`, `calls`, `calls_per_query`, `cost_usd` of the queries whose cost is known,
        `cost_unknown` (how many it is not of), `feedback` (right, wrong); per path in `paths` the same and
        `latency_s` with p50, p90, p95, p99; `slow`, what the slow agent's answers cost; `difficulty`, a histogram
        of `bins` counts for each path, and in `routed` of the queries whose difficulty chose it; `timeline`, sums
        by `step` and path, oldest first.
    """
    cells = _cells(connection, conditions)
    opinions = _feedback(connection, conditions)
    paths = {}
    for name in sorted({cell["path"] for cell in cells}):
        paths[name] = _sums([cell for cell in cells if cell["path"] == name])
    latencies = _latencies(connection, conditions, {name: path["queries"] for name, path in paths.items()})
    for name, path in paths.items():
        path["latency_s"] = latencies[name]
        path["feedback"] = opinions.get(name, {"right": 0, "wrong": 0})
    return _sums(cells) | {
        "feedback": {mark: sum(each[mark] for each in opinions.values()) for mark in ("right", "wrong")},
        "paths": paths,
        "slow": _slow(connection, conditions),
        "difficulty": _histogram(cells, paths),
        "timeline": _timeline(connection, conditions, step),
    }


_COUNT = func.count().label("queries")
_COST = func.coalesce(func.sum(traces.c.cost_usd), 0.0).label("cost_usd")
_UNKNOWN = (func.count() - func.count(traces.c.cost_usd)).label("cost_unknown")
_NO_PATH = "none"
"""Where queries are counted that failed before a path was chosen."""


def _cells(connection: Connection, conditions: Conditions) -> list[dict[str, Any]]:
    """Sums by path and hundredth of difficulty: one pass, from which the rest is added up."""
    query = select(
        traces.c.path,
        traces.c.bin,
        _COUNT,
        func.sum(traces.c.calls).label("calls"),
        _COST,
        _UNKNOWN,
        func.count(case((traces.c.degraded, 1))).label("degraded"),
        func.count(case((traces.c.status == "error", 1))).label("errors"),
        func.count(case((traces.c.forced.is_not(True), 1))).label("free"),
    )
    grouped = query.where(*conditions).group_by(traces.c.path, traces.c.bin)
    rows = connection.execute(grouped).mappings()
    return [{**row, "path": row["path"] or _NO_PATH} for row in rows]


def _sums(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = ("queries", "errors", "degraded", "calls", "cost_unknown")
    sums: dict[str, Any] = {name: sum(int(cell[name]) for cell in cells) for name in whole}
    sums["cost_usd"] = sum(float(cell["cost_usd"]) for cell in cells)
    sums["calls_per_query"] = sums["calls"] / sums["queries"] if sums["queries"] else None
    return sums


def _histogram(cells: Sequence[dict[str, Any]], paths: Mapping[str, Any]) -> dict[str, Any]:
    """How hard the queries were. A path that the caller chose says nothing about thresholds: not in `routed`."""
    counts = {name: [0] * BINS for name in paths}
    routed = {name: [0] * BINS for name in paths if name in _ROUTED}
    for cell in cells:
        if cell["bin"] is not None:
            counts[cell["path"]][cell["bin"]] += cell["queries"]
            if cell["path"] in routed:
                routed[cell["path"]][cell["bin"]] += cell["free"]
    return {"bins": BINS, "counts": counts, "routed": routed}


def _slow(connection: Connection, conditions: Conditions) -> dict[str, Any]:
    """The slow agent's answers whose cost is known, and the number of those whose cost is not."""
    priced = traces.c.slow_cost_usd.is_not(None)
    query = select(
        func.coalesce(func.sum(case((priced, traces.c.slow_calls), else_=0)), 0),
        func.coalesce(func.sum(traces.c.slow_cost_usd), 0.0),
        func.coalesce(func.sum(case((priced, 0), else_=traces.c.slow_calls)), 0),
    )
    calls, cost, unknown = connection.execute(query.where(*conditions)).one()
    return {"calls": int(calls), "cost_usd": float(cost), "cost_unknown": int(unknown)}


def _latencies(
    connection: Connection, conditions: Conditions, counts: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """Percentiles by nearest rank: the least value that so many in a hundred do not exceed."""
    rank = func.row_number().over(partition_by=traces.c.path, order_by=traces.c.seconds).label("rank")
    ranked = select(traces.c.path, traces.c.seconds, rank).where(*conditions).subquery()
    # Only these ranks are fetched; that some are of another path's does no harm.
    ranks = {(name, p): -(-n * p // 100) for name, n in counts.items() for p in _PERCENTILES}
    rows = connection.execute(select(ranked).where(ranked.c.rank.in_(set(ranks.values()))))
    at = {(path or _NO_PATH, rank): seconds for path, seconds, rank in rows}
    return {name: {f"p{p}": at.get((name, ranks[name, p])) for p in _PERCENTILES} for name in counts}


def _feedback(connection: Connection, conditions: Conditions) -> dict[str, dict[str, int]]:
    """Marks by path."""
    joined = traces.join(feedback, feedback.c.trace_id == traces.c.id)
    query = select(traces.c.path, feedback.c.correct, func.count()).select_from(joined).where(*conditions)
    found: dict[str, dict[str, int]] = {}
    for path, correct, count in connection.execute(query.group_by(traces.c.path, feedback.c.correct)):
        found.setdefault(path or _NO_PATH, {"right": 0, "wrong": 0})["right" if correct else "wrong"] = int(count)
    return found


def _timeline(connection: Connection, conditions: Conditions, step: str) -> list[dict[str, Any]]:
    # The numbers as literals: with parameters, PostgreSQL would not see that SELECT and GROUP BY are the same.
    length: ColumnElement[int] = literal_column(str(STEPS[step]))
    moment = func.substr(traces.c.started_at, literal_column("1"), length)
    sums = (_COUNT, func.sum(traces.c.calls).label("calls"), _COST, _UNKNOWN)
    query = select(moment.label("at"), traces.c.path, *sums)
    grouped = query.where(*conditions).group_by(moment, traces.c.path)
    points = [
        {**row, "path": row["path"] or _NO_PATH, "calls": int(row["calls"]), "cost_usd": float(row["cost_usd"])}
        for row in connection.execute(grouped).mappings()
    ]
    return sorted(points, key=lambda point: (point["at"], point["path"]))  # here: databases sort NULL as they like
