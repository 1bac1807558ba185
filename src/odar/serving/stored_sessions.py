"""Conversations that gateways on several machines share: written with the traces, read at the next request."""

from __future__ import annotations

import threading
import time

from sqlalchemy import delete, select

from odar.traces.database import Database, sessions, upsert

SESSION_TTL_S = 3600.0
"""Seconds after its last answer that a conversation is kept."""
_MAX_UNSAVED = 10_000


class StoredSessions:
    """Sessions by their digests. Thread-safe; only `put` can be called in an event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._unsaved: dict[str, tuple[bytes, float]] = {}
        self._is_down = False

    def put(self, key: bytes, state: bytes, at: float) -> None:
        """Store the state of a session with the next traces; returns at once. If too many wait, it is dropped."""
        with self._lock:
            if len(self._unsaved) < _MAX_UNSAVED:
                self._unsaved[key.hex()] = state, at

    def get(self, key: bytes) -> bytes | None:
        """Return the last state of a session that a gateway stored; None while the database fails."""
        if self._is_down:
            return None
        with self._database.read() as connection:
            return connection.scalar(select(sessions.c.state).where(sessions.c.id == key.hex()))

    def write(self) -> None:
        """Write what waits; an older state never replaces a newer one."""
        with self._lock:
            batch, self._unsaved = self._unsaved, {}
        if not batch:
            return
        rows = [{"id": key, "state": state, "at": at} for key, (state, at) in sorted(batch.items())]
        try:
            with self._database.write() as connection:
                statement = upsert(connection)(sessions).values(rows)
                new = {name: statement.excluded[name] for name in ("state", "at")}
                newer = sessions.c.at < statement.excluded.at
                connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=new, where=newer))
            self._is_down = False
        except BaseException:
            self._is_down = True
            with self._lock:
                self._unsaved = batch | self._unsaved
            raise

    def delete_old(self) -> None:
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.at < time.time() - SESSION_TTL_S))
