"""Stored traces: list, get, export, and mark with feedback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select, tuple_, update

from odar.errors import InputError, UnknownName
from odar.formats import load_json
from odar.settings import Settings
from odar.traces.database import Database, documents, traces
from odar.traces.filter import Filter, conditions, has_prefix
from odar.traces.observations import Observations, cascade_id
from odar.traces.overview import overview
from odar.traces.writer import replace_invalid_chars

_EXPORT_PAGE = 200
_CANDIDATES_SHOWN = 5
_PREVIEW = 160
_position = tuple_(traces.c.started_at, traces.c.id)


class Archive:
    """Reads and marks stored traces, in short transactions. Call it outside the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, wanted: Filter | None = None, after: str | None = None, limit: int = 50) -> dict[str, Any]:
        """`traces` without documents, newest first, with the beginning of the question if it was stored.

        `next` of a page is `after` of the following one; None on the last page.
        """
        query = _select_traces(func.substr(documents.c.question, 1, _PREVIEW).label("question"))
        query = query.where(*conditions(wanted))
        if after is not None:
            started_at, _, trace_id = after.partition("_")
            if not trace_id:
                raise InputError(f"cursor {after!r} is not valid; copy it from a list of traces")
            query = query.where(_position < tuple_(started_at, trace_id))
        query = query.order_by(traces.c.started_at.desc(), traces.c.id.desc()).limit(limit + 1)
        with self._database.read() as connection:
            rows = [_row(row) for row in connection.execute(query).mappings()]
        last = rows[limit - 1] if len(rows) > limit else None
        return {"traces": rows[:limit], "next": last and f"{last['started_at']}_{last['id']}"}

    def full_id(self, prefix: str) -> str:
        """The id of the trace whose id begins with this prefix; raises UnknownName for none or several."""
        query = select(traces.c.id).where(has_prefix(prefix)).order_by(traces.c.id).limit(_CANDIDATES_SHOWN)
        with self._database.read() as connection:
            ids = list(connection.scalars(query)) if prefix else []
        if len(ids) != 1 and prefix not in ids:
            raise UnknownName("trace", prefix, ids, "" if ids else "`odar traces` lists them")
        return str(ids[0])

    def get(self, trace_id: str, read: Callable[[str], Any] = load_json) -> dict[str, Any]:
        """One trace with its `document`, as `read` returns it, and `feedback`.

        Raises:
            UnknownName: there is none.
        """
        query = _select_traces(documents.c.body).where(traces.c.id == trace_id)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise UnknownName("trace", trace_id, [], "its full id is needed")
        return _row(row, read)

    def export(
        self, wanted: Filter | None = None, read: Callable[[str], Any] = load_json
    ) -> Iterator[dict[str, Any]]:
        """Yield every trace with its document, oldest first, one document at a time: they can be large."""
        query = select(traces.c.started_at, traces.c.id).where(*conditions(wanted))
        page = query.order_by(traces.c.started_at, traces.c.id).limit(_EXPORT_PAGE)
        while True:
            with self._database.read() as connection:  # not held open while the reader is slow
                rows = connection.execute(page).all()
            for _, trace_id in rows:
                with suppress(UnknownName):  # deleted meanwhile
                    yield self.get(trace_id, read)
            if len(rows) < _EXPORT_PAGE:
                return
            next_page = _position > tuple_(*rows[-1])
            page = query.where(next_page).order_by(traces.c.started_at, traces.c.id).limit(_EXPORT_PAGE)

    def mark(self, trace_id: str, correct: bool, note: str | None = None, by: str | None = None) -> None:
        """Mark an answer right or wrong; the last mark counts.

        Raises:
            UnknownName: there is no such trace, or it is not of the key `by`.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        note = replace_invalid_chars(note)
        own = traces.c.id == trace_id if by is None else and_(traces.c.id == trace_id, traces.c.key_id == by)
        with self._database.write() as connection:
            marked = update(traces).where(own).values(correct=correct, note=note, marked_at=now)
            if connection.execute(marked).rowcount == 0:
                raise UnknownName("trace", trace_id, [], "its full id is needed")

    def observations(self, settings: Settings) -> Observations:
        found = Observations(self._database, cascade_id(settings))
        found.refresh()
        return found

    def overview(self, wanted: Filter | None = None, step: str = "day") -> dict[str, Any]:
        with self._database.read() as connection:
            return overview(connection, conditions(wanted), step)


def _select_traces(*more: ColumnElement[Any]) -> Select[Any]:
    return select(traces, *more).join(documents, documents.c.trace_id == traces.c.id)


def _row(mapping: Any, read: Callable[[str], Any] = load_json) -> dict[str, Any]:
    row = dict(mapping)
    row.pop("bin")
    row["models"] = [name for name in row["models"].split(",") if name]
    mark = {"correct": row.pop("correct"), "note": row.pop("note"), "at": row.pop("marked_at")}
    row["feedback"] = None if mark["correct"] is None else mark
    if "body" in row:
        row["document"] = read(row.pop("body"))
    return row
