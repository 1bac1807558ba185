"""The traces in a few numbers, added up by the database in SQL that SQLite and PostgreSQL both take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from odar.store.rows import BINS
from odar.store.schema import feedback, traces

_PERCENTILES = (50, 90, 99)


def overview(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> dict[str, Any]:
    """Figures over the traces that meet the conditions.

    Returns:
        `queries`, `errors`, `degraded`, `calls`, `calls_per_query`, `cost_usd` of the queries whose cost is known,
        `cost_unknown` (how many it is not of), `feedback` (right, wrong); per path in `paths` the same and
        `latency_s` with p50, p90, p99; `difficulty`, a histogram of `bins` counts for each path; `days`, oldest
        first.
    """
    cells = _cells(connection, conditions)
    paths = {}
    for name in sorted({cell["path"] for cell in cells}):
        paths[name] = _sums([cell for cell in cells if cell["path"] == name])
    latencies = _latencies(connection, conditions, {name: path["queries"] for name, path in paths.items()})
    histogram = {name: [0] * BINS for name in paths}
    for cell in cells:
        if cell["bin"] is not None:
            histogram[cell["path"]][cell["bin"]] += cell["queries"]
    for name, path in paths.items():
        path["latency_s"] = latencies[name]
    return _sums(cells) | {
        "feedback": _feedback(connection, conditions),
        "paths": paths,
        "difficulty": {"bins": BINS, "counts": histogram},
        "days": _days(connection, conditions),
    }


_COUNT = func.count().label("queries")
_COST = func.coalesce(func.sum(traces.c.cost_usd), 0.0).label("cost_usd")
_UNKNOWN = (func.count() - func.count(traces.c.cost_usd)).label("cost_unknown")
_NO_PATH = "none"
"""Where queries are counted that failed before a path was chosen."""


def _cells(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[dict[str, Any]]:
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


def _latencies(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], counts: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """Percentiles by nearest rank: the least value that so many in a hundred do not exceed."""
    rank = func.row_number().over(partition_by=traces.c.path, order_by=traces.c.seconds).label("rank")
    ranked = select(traces.c.path, traces.c.seconds, rank).where(*conditions).subquery()
    # Only these ranks are fetched; that some are of another path's does no harm.
    ranks = {(name, p): -(-n * p // 100) for name, n in counts.items() for p in _PERCENTILES}
    rows = connection.execute(select(ranked).where(ranked.c.rank.in_(set(ranks.values()))))
    at = {(path or _NO_PATH, rank): seconds for path, seconds, rank in rows}
    return {name: {f"p{p}": at.get((name, ranks[name, p])) for p in _PERCENTILES} for name in counts}


def _feedback(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> dict[str, int]:
    joined = traces.join(feedback, feedback.c.trace_id == traces.c.id)
    query = select(feedback.c.correct, func.count()).select_from(joined).where(*conditions)
    counts = {bool(correct): int(n) for correct, n in connection.execute(query.group_by(feedback.c.correct))}
    return {"right": counts.get(True, 0), "wrong": counts.get(False, 0)}


def _days(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[dict[str, Any]]:
    query = select(traces.c.day, _COUNT, func.sum(traces.c.calls).label("calls"), _COST, _UNKNOWN)
    rows = connection.execute(query.where(*conditions).group_by(traces.c.day).order_by(traces.c.day)).mappings()
    return [{**row, "calls": int(row["calls"]), "cost_usd": float(row["cost_usd"])} for row in rows]
