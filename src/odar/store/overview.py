"""The traces in a few numbers, added up by the database in SQL that SQLite and PostgreSQL both take."""

from __future__ import annotations

from collections.abc import Sequence
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
    latencies = _latencies(connection, conditions)
    names = sorted({cell["path"] for cell in cells})
    paths = {}
    histogram: dict[str, list[int]] = {}
    for name in names:
        mine = [cell for cell in cells if cell["path"] == name]
        paths[name] = _sums(mine) | {"latency_s": latencies[name]}
        histogram[name] = [0] * BINS
        for cell in mine:
            if cell["bin"] is not None:
                histogram[name][cell["bin"]] += cell["queries"]
    return _sums(cells) | {
        "feedback": _feedback(connection, conditions),
        "paths": paths,
        "difficulty": {"bins": BINS, "counts": histogram},
        "days": _days(connection, conditions),
    }


_COUNT = func.count().label("queries")
_COST = func.coalesce(func.sum(traces.c.cost_usd), 0.0).label("cost_usd")
_UNKNOWN = (func.count() - func.count(traces.c.cost_usd)).label("cost_unknown")
_PATH = func.coalesce(traces.c.path, "none")
"""Queries that failed before a path was chosen have none."""


def _cells(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[dict[str, Any]]:
    """Sums by path and hundredth of difficulty: one pass, from which the rest is added up."""
    query = select(
        _PATH.label("path"),
        traces.c.bin,
        _COUNT,
        func.sum(traces.c.calls).label("calls"),
        _COST,
        _UNKNOWN,
        func.sum(case((traces.c.degraded, 1), else_=0)).label("degraded"),
        func.sum(case((traces.c.status == "error", 1), else_=0)).label("errors"),
    )
    grouped = query.where(*conditions).group_by(_PATH, traces.c.bin)
    return [dict(row) for row in connection.execute(grouped).mappings()]


def _sums(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = ("queries", "errors", "degraded", "calls", "cost_unknown")
    sums: dict[str, Any] = {name: sum(int(cell[name]) for cell in cells) for name in whole}
    sums["cost_usd"] = sum(float(cell["cost_usd"]) for cell in cells)
    sums["calls_per_query"] = sums["calls"] / sums["queries"] if sums["queries"] else None
    return sums


def _latencies(
    connection: Connection, conditions: Sequence[ColumnElement[bool]]
) -> dict[str, dict[str, float | None]]:
    """Percentiles by nearest rank: the least value that so many in a hundred do not exceed."""
    ranked = (
        select(
            _PATH.label("path"),
            traces.c.seconds,
            func.row_number().over(partition_by=_PATH, order_by=traces.c.seconds).label("rank"),
            func.count().over(partition_by=_PATH).label("n"),
        )
        .where(*conditions)
        .subquery()
    )
    at = [
        func.min(case((ranked.c.rank * 100 >= ranked.c.n * p, ranked.c.seconds))).label(f"p{p}")
        for p in _PERCENTILES
    ]
    rows = connection.execute(select(ranked.c.path, *at).group_by(ranked.c.path)).mappings()
    return {row["path"]: {f"p{p}": row[f"p{p}"] for p in _PERCENTILES} for row in rows}


def _feedback(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> dict[str, int]:
    joined = traces.join(feedback, feedback.c.trace_id == traces.c.id)
    query = select(feedback.c.correct, func.count()).select_from(joined).where(*conditions)
    counts = {bool(correct): int(n) for correct, n in connection.execute(query.group_by(feedback.c.correct))}
    return {"right": counts.get(True, 0), "wrong": counts.get(False, 0)}


def _days(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[dict[str, Any]]:
    query = select(traces.c.day, _COUNT, func.sum(traces.c.calls).label("calls"), _COST, _UNKNOWN)
    rows = connection.execute(query.where(*conditions).group_by(traces.c.day).order_by(traces.c.day)).mappings()
    return [{**row, "calls": int(row["calls"]), "cost_usd": float(row["cost_usd"])} for row in rows]
