"""Old traces go, a few at a time, so that nobody waits for it."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, select

from odar.store.database import Database
from odar.store.schema import documents, feedback, traces

BATCH = 500


def first_day_kept(days: int, now: datetime) -> str:
    """The oldest UTC day whose traces stay.

    >>> from datetime import UTC
    >>> first_day_kept(30, datetime(2026, 11, 30, tzinfo=UTC))
    '2026-10-31'
    """
    try:
        return (now - timedelta(days=days)).date().isoformat()
    except OverflowError:  # longer than there are dates
        return ""


def newest_trace(connection: Connection) -> float | None:
    """When the newest trace began, seconds since 1970; None where there is no trace."""
    newest = connection.scalar(select(func.max(traces.c.started_at)))
    return None if newest is None else datetime.fromisoformat(newest).timestamp()


def sweep(database: Database, days: int, now: datetime) -> bool:
    """Delete one batch of what is too old, feedback included; True if there is more. The keys' bills stay."""
    if days == 0:
        return False
    with database.read() as connection:  # usually there is nothing, and then nobody's lock is taken
        old = select(traces.c.id).where(traces.c.day < first_day_kept(days, now)).limit(BATCH)
        ids = list(connection.scalars(old))
    if ids:
        with database.write() as connection:
            connection.execute(delete(documents).where(documents.c.trace_id.in_(ids)))
            connection.execute(delete(feedback).where(feedback.c.trace_id.in_(ids)))
            connection.execute(delete(traces).where(traces.c.id.in_(ids)))
    return len(ids) == BATCH
