"""Thresholds that learn from feedback (`routing.learn`): every change is a row, and can be undone.

A single client has little influence: a mark counts once per trace, only from the key that asked, and at most 20
marks per key and day. With a step of 0.01 that moves t by at most 0.2 of its range a day.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from odar.errors import InputError
from odar.policy.certificate import HOLDS, InstalledCertificate
from odar.settings import Settings
from odar.store.database import Database, documents, meta, threshold_changes, traces
from odar.store.record import OK
from odar.types import Path

MARKS_PER_DAY = 20
"""Maximum number of marks of one key that count in 24 hours."""
_MOVABLE = (Path.SIMPLE.value, Path.MEDIUM.value)
_FEEDBACK, _UNDO = "feedback", "undo"
_c = threshold_changes.c


def current_t(connection: Connection, certificate: InstalledCertificate) -> float:
    """Return t after all feedback under this certificate; t* before any feedback."""
    last = select(_c.t_after).where(_c.certificate == certificate.digest).order_by(_c.number.desc()).limit(1)
    t = connection.scalar(last)
    return certificate.t if t is None else float(t)


def learn(
    connection: Connection, certificate: InstalledCertificate, trace_id: str, by: str | None, correct: bool
) -> None:
    """Move the thresholds by one mark, if it counts, inside the transaction that writes it.

    It counts if the key asked the question itself, the certificate held for the question, ODAR chose its path as
    Simple or Medium, and the key has marks left today.
    """
    query = select(traces, documents.c.body).join(documents, documents.c.trace_id == traces.c.id)
    trace = connection.execute(query.where(traces.c.id == trace_id)).mappings().one()
    routed = trace["status"] == OK and trace["path"] in _MOVABLE and not trace["forced"]
    if not routed or trace["key_id"] != by:
        return
    decision = json.loads(trace["body"])["decision"] or {}
    if not str(decision.get("certificate", "")).startswith(HOLDS):
        return
    _lock(connection)
    counted = _c.kind == _FEEDBACK
    if connection.scalar(select(func.count()).where(counted, _c.trace_id == trace_id)):
        return
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="milliseconds")
    mine = _c.key_id.is_(None) if by is None else _c.key_id == by
    if int(connection.scalar(select(func.count()).where(counted, mine, _c.at >= since)) or 0) >= MARKS_PER_DAY:
        return
    before = current_t(connection, certificate)
    after = certificate.after_feedback(before, correct)
    _add_change(connection, certificate, _FEEDBACK, before, after, key_id=by, trace_id=trace_id, correct=correct)


def undo(database: Database, certificate: InstalledCertificate, number: int) -> None:
    """Return to the thresholds before a change, which adds a row; raise InputError if there is no such change."""
    with database.write() as connection:
        _lock(connection)
        wanted = select(threshold_changes).where(_c.number == number, _c.certificate == certificate.digest)
        change = connection.execute(wanted).mappings().one_or_none()
        if change is None:
            raise InputError(f"there is no change {number} under this certificate; see odar calibrate --history")
        before = current_t(connection, certificate)
        _add_change(connection, certificate, _UNDO, before, float(change["t_before"]))


def history(database: Database) -> list[dict[str, Any]]:
    """Return every change, oldest first."""
    with database.read() as connection:
        rows = connection.execute(select(threshold_changes).order_by(_c.number)).mappings()
        return [dict(row) for row in rows]


def read_t(settings: Settings, certificate: InstalledCertificate) -> float:
    """Return `current_t` of the store in the settings."""
    with Database(settings.store) as database, database.read() as connection:
        return current_t(connection, certificate)


def _lock(connection: Connection) -> None:
    """Let one writer at a time read the last row and add the next, on PostgreSQL too."""
    connection.execute(update(meta).where(meta.c.name == "schema").values(value=meta.c.value))


def _add_change(
    connection: Connection, certificate: InstalledCertificate, kind: str, before: float, after: float, **more: Any
) -> None:
    thresholds = certificate.thresholds(after)
    row = {
        "number": int(connection.scalar(select(func.max(_c.number))) or 0) + 1,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "certificate": certificate.digest,
        "kind": kind,
        "t_before": before,
        "t_after": after,
        "tau1": thresholds.tau1,
        "tau2": thresholds.tau2,
        **more,
    }
    connection.execute(insert(threshold_changes), row)
