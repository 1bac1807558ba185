"""One trace from a process that does nothing else: what `odar ask` does at its end."""

from __future__ import annotations

import importlib
import threading

from odar.errors import OdarError, one_line
from odar.settings import Settings
from odar.store.record import Record
from odar.types import Answer, Query

_PATIENCE_S = 1.0
"""Nobody waits longer for a prompt to come back because another process holds the database."""


def warm_up(settings: Settings) -> None:
    """Load the database library (0.3 s) in the background, while the models are thinking."""
    if settings.store.enabled:
        threading.Thread(target=importlib.import_module, args=("odar.store.archive",), daemon=True).start()


def record(answer: Answer, query: Query, settings: Settings) -> str | None:
    """Store the trace of an answer; returns why it could not be, in one line. Never raises."""
    if not settings.store.enabled:
        return None
    try:
        from odar.store.database import Database
        from odar.store.rows import make_row, write_rows

        with Database(settings.store, _PATIENCE_S) as database, database.write() as connection:
            write_rows(connection, [make_row(Record(query, answer), content=settings.store.content)])
    except OdarError as error:
        return one_line(error)
    except Exception as error:  # the answer stands, whatever becomes of its trace
        return f"{type(error).__name__}: {one_line(error)}"
    return None
