"""Thresholds learned from feedback: certified region, one mark per trace, limits per client, undo."""

from __future__ import annotations

import dataclasses
import json

import pytest

from odar.config import load_settings
from odar.errors import InputError
from odar.policy.certificate import InstalledCertificate
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.learning import MARKS_PER_DAY, current_t, history, undo
from odar.store.record import Record
from odar.store.writer import make_row, write_rows
from odar.types import Query
from support.traces import make_answer

DOCUMENT = {
    "at_most_worse": 0.1,
    "confidence": 0.95,
    "against": "always-hard",
    "t": 0.4,
    "path": [[1, 1], [0.3, 0.7], [0, 0]],
    "reference_accuracy": 0.9,
    "sources": [],
}
CERTIFICATE = InstalledCertificate.from_dict(DOCUMENT)


@pytest.fixture
def database(tmp_path):
    with Database(load_settings("tiny", environ={}, store__url=str(tmp_path / "odar.db")).store) as database:
        yield database


def put(database, id, key=None, path="medium", certificate="holds: yes", **changes):
    answer = make_answer(path, id=id)
    decision = dataclasses.replace(answer.trace.decision, certificate=certificate, **changes)
    answer = dataclasses.replace(answer, trace=dataclasses.replace(answer.trace, decision=decision))
    with database.write() as connection:
        write_rows(connection, [make_row(Record(Query("?"), answer, key), content=False)])


def mark(database, id, correct, by=None):
    Archive(database).mark(id, correct, by=by, certificate=CERTIFICATE)
    with database.read() as connection:
        return current_t(connection, CERTIFICATE)


def test_wrong_answers_raise_t_and_right_ones_lower_it_to_the_certified_value(database):
    for i in range(4):
        put(database, f"a{i}")
    assert mark(database, "a0", True) == 0.4  # already at the end
    assert mark(database, "a1", False) == pytest.approx(0.408)
    assert mark(database, "a2", True) == pytest.approx(0.406)
    rows = history(database)
    assert [(row["number"], row["kind"], row["correct"], row["trace_id"]) for row in rows] == [
        (1, "feedback", True, "a0"),
        (2, "feedback", False, "a1"),
        (3, "feedback", True, "a2"),
    ]
    assert rows[1]["tau1"] == CERTIFICATE.thresholds(0.42).tau1  # the next certified setting


@pytest.mark.parametrize(
    ("how", "by"),
    [
        ({"key": "key_a"}, "key_b"),  # an admin's mark on another key's trace
        ({"key": "key_a"}, None),
        ({"path": "hard"}, None),
        ({"forced": True}, None),
        ({"certificate": "removed: a target chose the thresholds"}, None),
        ({"certificate": ""}, None),
    ],
)
def test_marks_outside_the_certificate_do_not_count(database, how, by):
    put(database, "a", **how)
    assert mark(database, "a", False, by) == 0.4
    assert history(database) == []
    assert Archive(database).get("a")["feedback"]["correct"] is False  # still stored


def test_marks_count_once_per_trace_and_are_limited_per_key_and_day(database):
    put(database, "same", "key_a")
    once = mark(database, "same", False, "key_a")
    assert mark(database, "same", False, "key_a") == once
    for i in range(MARKS_PER_DAY + 5):
        put(database, f"a{i}", "key_a")
        last = mark(database, f"a{i}", False, "key_a")
    assert len(history(database)) == MARKS_PER_DAY
    assert last == pytest.approx(0.4 + MARKS_PER_DAY * 0.008)
    put(database, "b", "key_b")
    assert mark(database, "b", False, "key_b") > last  # another key has its own limit


def test_undo_adds_a_row_that_restores_t(database):
    for i in range(3):
        put(database, f"a{i}")
        mark(database, f"a{i}", False)
    undo(database, CERTIFICATE, 2)
    row = history(database)[-1]
    assert (row["number"], row["kind"], row["t_after"]) == (4, "undo", pytest.approx(0.408))
    with database.read() as connection:
        assert current_t(connection, CERTIFICATE) == pytest.approx(0.408)
    with pytest.raises(InputError, match="no change 9"):
        undo(database, CERTIFICATE, 9)
    other = InstalledCertificate.from_dict({**DOCUMENT, "t": 0.6})
    with database.read() as connection:
        assert current_t(connection, other) == 0.6  # another certificate starts at its own t


def test_t_stays_in_the_certified_region(database):
    t = 0.99
    for _ in range(50):
        t = CERTIFICATE.after_feedback(t, False)
    assert t == 1.0
    assert CERTIFICATE.thresholds(t).tau2 == 0.0
    for _ in range(500):
        t = CERTIFICATE.after_feedback(t, True)
    assert t == 0.4
    assert json.dumps(CERTIFICATE.thresholds(0.1).tau1) == json.dumps(CERTIFICATE.thresholds(0.4).tau1)
