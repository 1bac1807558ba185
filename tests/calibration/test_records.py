from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from odar.calibration.records import FORMAT, Attempt, Record, Score, record_of
from odar.errors import InputError
from odar.recording.journal import Journal
from odar.types import Step

HEADER = {"format": FORMAT, "made_by": "models"}


def attempt(step=Step.ANSWER, correct=True):
    return Attempt(step, "m", "4", correct, 0.1, 0.01, 12, None, 0.001)


def record(id_="a"):
    return Record(id_, "2 + 2?", 0.2, attempt(), attempt(Step.VERIFY), (attempt(Step.SOLVE),) * 5, 5, 3.0)


def test_a_record_survives_the_journal(tmp_path):
    with Journal(tmp_path / "r.jsonl", HEADER) as journal:
        for name in "ab":
            journal.write({**asdict(record(name)), "cost_usd": 0.1, "error": None, "digest": "d"})
    with Journal(tmp_path / "r.jsonl", HEADER) as journal:
        assert list(map(record_of, journal.rows())) == [record("a"), record("b")]


def test_a_record_of_before_answers_were_marked_counts_as_stated():
    row = json.loads(json.dumps(asdict(record())))
    del row["fast"]["stated"]
    assert record_of(row) == record()


@pytest.mark.parametrize("spoilt", ["fast", "solves", "query"])
def test_what_is_no_record_is_refused_by_name(spoilt):
    row = asdict(record("q7"))
    del row[spoilt]
    with pytest.raises(InputError, match="row 'q7' is not a record"):
        record_of(row)


def test_a_surrogates_score_survives_and_older_rows_have_none():
    scored = replace(record(), fast=replace(attempt(), score=Score(0.2, 0.1, None)))
    row = json.loads(json.dumps(asdict(scored)))
    assert record_of(row) == scored
    del row["verify"]["score"]
    assert record_of(row) == scored
