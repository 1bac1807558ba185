"""Savings of routing, computed by the store and by the metrics."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest

from odar.config import load_settings
from odar.traces.overview import MIN_QUESTIONS, changed_by_others, routed_sums, savings, warnings_of
from support.traces import make_answer
from support.traffic import traffic


def total(traces):
    sums = defaultdict(float)
    for trace in traces:
        for name, value in routed_sums(trace).items():
            sums[name] += value
    return sums


def test_the_metrics_and_the_store_agree(tmp_path):
    from odar.traces.archive import Archive
    from odar.traces.database import Database
    from odar.traces.writer import make_row, write_rows
    from odar.types import Trace

    records = list(traffic(300))
    totals = total(record.trace for record in records if isinstance(record.trace, Trace))
    settings = load_settings("tiny", environ={}, store__url=str(tmp_path / "odar.db"))
    with Database(settings.store) as database:
        with database.write() as connection:
            write_rows(connection, [make_row(record, content=False) for record in records])
        stored = Archive(database).overview()["savings"]
    ours = savings(totals)
    assert stored.keys() == ours.keys()
    for name in ("cost_usd", "always_slow_usd", "usd_saved"):
        assert stored.pop(name) == pytest.approx(ours.pop(name))
    assert stored == ours
    assert ours["compared"] > 50
    assert 0 < ours["changed"] < 1


def test_questions_with_a_chosen_path_or_model_do_not_count():
    assert total([make_answer(forced=True).trace, make_answer("direct").trace]) == {}


def test_the_baseline_is_that_of_the_same_questions():
    known = {"cost": 0.5, "baseline": 2.0}
    changes = ({}, {"baseline": None}, {"cost": None})  # None: a price is unknown
    found = savings(total(make_answer(**known | each).trace for each in changes))
    assert (found["questions"], found["unpriced"]) == (3, 2)
    assert (found["cost_usd"], found["always_slow_usd"], found["usd_saved"]) == (0.5, 2.0, 1.5)


def test_the_warning_names_the_loss_and_the_remedy():
    n = MIN_QUESTIONS
    dear = {"questions": n, "priced": n, "routed_usd": 3.0, "baseline_usd": 2.0}
    said = savings(dear)["warning"]
    assert said.startswith("ODAR cost $3, 50% more than the $2 of always asking the slow model")
    assert 'routing.dial = "economy"' in said
    assert savings(dear | {"routed_usd": 1.9})["warning"] is None
    assert savings(dear | {"priced": n - 1})["warning"] is None


def test_savings_with_unknown_costs_are_unknown():
    found = savings({"questions": 5, "calls": 9})
    assert (found["cost_usd"], found["always_slow_usd"], found["usd_saved"]) == (None, None, None)
    assert found["unpriced"] == 5
    assert found["calls_saved"] == -4
    assert found["changed"] is None


def test_a_warning_names_the_model_without_a_price():
    models = {"a": {"provider": "p", "price": {"input": 1, "output": 2}}, "b": {"provider": "p"}}
    settings = load_settings(
        "tiny",
        environ={},
        providers={"p": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
        models=models,
        fast__model="a",
        slow__model="b",
    )
    figures = {"savings": savings({"questions": 5}), "cut_off": {}}
    (warning,) = warnings_of(figures, settings)
    assert warning == 'the price of b is unknown: add price = { input = …, output = … } to [models."b"]'


def test_a_different_winning_slow_answer_counts_as_changed():
    fast, slow = make_answer().trace.candidates
    other = dataclasses.replace(slow, answer="5")
    assert changed_by_others((fast, slow), 1) is False
    assert changed_by_others((fast, other), 1) is True
    assert changed_by_others((fast, other), 0) is False
    assert changed_by_others((fast,), 0) is None
