"""Records as rows, and a batch of rows into the database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from odar.store.budgets import add_spending
from odar.store.document import dumps, to_document
from odar.store.record import Charge, Record, known, utc
from odar.store.schema import documents, traces
from odar.types import Answer, Role

BINS = 100
"""Resolution of the difficulty histogram."""
_EDGES = [i / BINS for i in range(1, BINS)]
"""Where each bin after the first begins, compared as thresholds are; 0.29·100 would fall short of 29."""
_INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """A record made ready for the database."""

    figures: dict[str, Any]
    document: dict[str, Any]
    settled: bool = False


def make_row(record: Record, *, content: bool) -> Row:
    """Everything that needs the record itself; what is left is plain data."""
    document = to_document(record, content=content)
    whole, spend, decision = record.outcome, record.spend, document["decision"]
    started_at = utc(record.started_at)
    answered = isinstance(whole, Answer)
    answer = (
        whole.answer if isinstance(whole, Answer) else (record.candidates[0].text if record.candidates else None)
    )
    counted = decision and (
        decision["estimate"]["difficulty"] if decision["posterior"] is None else decision["posterior"]
    )
    difficulty = decision and known(counted)
    figures = {
        "id": clean(record.id),
        "started_at": started_at,
        "day": started_at[:10],
        "profile": clean(document["profile"]),
        "status": document["status"],
        "error": clean(document["error"]),
        "path": document["path"],
        "difficulty": difficulty,
        "bin": None if difficulty is None else bisect_right(_EDGES, difficulty),
        "expert": decision and decision["assignment"]["expert"],
        "scorer": document["verdict"]["scorer"] if answered else None,
        "degraded": bool(document["degradations"]),
        "models": clean("," + ",".join(dict.fromkeys(_models(record))) + ","),
        "calls": spend.calls,
        "cost_usd": known(spend.cost_usd),
        "seconds": known(spend.seconds) or 0.0,
        "tokens_in": _integer(spend.usage.input),
        "tokens_out": _integer(spend.usage.output),
        "query_characters": len(record.query.text),
        "answer_characters": None if answer is None else len(answer),
        "key_id": record.key_id,
        "forced": decision and decision["forced"],
        **_slow(record),
    }
    texts = {"question": clean(record.query.text), "answer": clean(answer)}
    empty = dict.fromkeys(texts)
    return Row(
        figures,
        {"trace_id": figures["id"], "body": dumps(document)} | (texts if content else empty),
        record.settled,
    )


def write_rows(connection: Connection, rows: Sequence[Row]) -> list[Row]:
    """Insert what is not there yet, and put it on the keys' bills; returns what was new.

    A batch whose commit was lost on the way back is written again: what did arrive must not be counted twice.
    """
    ids = [row.figures["id"] for row in rows]
    there = set(connection.scalars(select(traces.c.id).where(traces.c.id.in_(ids))))
    new = list({row.figures["id"]: row for row in rows if row.figures["id"] not in there}.values())
    if new:
        _insert(connection, traces, [row.figures for row in new])
        _insert(connection, documents, [row.document for row in new])
        _bill(connection, charges(new))
    return new


def _insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """As the driver takes them: SQLAlchemy would look at each value once more, which takes as long as the rest."""
    known = (table.name, connection.dialect.name)
    if known not in _STATEMENTS:
        compiled = insert(table).compile(dialect=connection.dialect)
        order = getattr(compiled, "positiontup", None)  # None where the driver wants its values by name
        _STATEMENTS[known] = str(compiled), itemgetter(*order) if order else dict
    statement, values = _STATEMENTS[known]
    connection.exec_driver_sql(statement, list(map(values, rows)))


_STATEMENTS: dict[tuple[str, str], tuple[str, Callable[[dict[str, Any]], Any]]] = {}
"""For a table and a dialect: the insert of a whole row, and how the driver wants the row."""


def charges(rows: Iterable[Row]) -> list[Charge]:
    """What these rows cost their keys."""
    figures = (row.figures for row in rows if not row.settled)
    return [Charge(each["key_id"], each["day"], each["cost_usd"]) for each in figures if each["key_id"] is not None]


def _bill(connection: Connection, items: Iterable[Charge]) -> None:
    totals: dict[tuple[str, str], list[float]] = {}
    for item in items:
        total = totals.setdefault((item.key_id, item.day), [0, 0.0, 0])
        total[0] += 1
        total[1] += item.cost_usd or 0.0
        total[2] += item.cost_usd is None
    # Sorted: two processes that lock the same rows in different orders would wait for each other.
    for (key, day), (requests, cost, unknown) in sorted(totals.items()):
        add_spending(connection, key, day, int(requests), cost, int(unknown))


def _models(record: Record) -> Iterable[str]:
    yield from (call.model for call in record.calls)
    yield from (candidate.model for candidate in record.candidates)


def _slow(record: Record) -> dict[str, Any]:
    """How many answers the slow agent gave, and what they cost: the measure of "always slow"."""
    answered = [call for call in record.calls if call.step.role is Role.SLOW and call.error is None]
    costs = [known(call.cost_usd) for call in answered]
    cost = sum(each for each in costs if each is not None)
    return {
        "slow_calls": sum(call.samples for call in answered),
        "slow_cost_usd": None if None in costs else float(cost),
    }


def clean(text: str | None) -> str | None:
    """Text that both databases take: no NUL, no unpaired surrogate. The document keeps them, as escapes."""
    return None if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _integer(value: int | None) -> int | None:
    return value if value is not None and abs(value) <= _INT_MAX else None
