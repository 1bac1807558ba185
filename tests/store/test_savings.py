"""Savings of routing, computed by the store and by the metrics."""

from __future__ import annotations

import dataclasses

import pytest

from odar.store.overview import MIN_QUESTIONS, RoutedTotals, changed_by_slow, savings
from odar.types import Assignment
from support.traces import make_answer
from support.traffic import traffic


def test_the_metrics_and_the_store_agree(tmp_path):
    from odar.config import load_settings
    from odar.store.archive import Archive
    from odar.store.database import Database
    from odar.store.writer import make_row, write_rows
    from odar.types import Answer

    records = list(traffic(300))
    totals = RoutedTotals()
    for record in records:
        if isinstance(record.outcome, Answer):
            totals.add_trace(record.outcome.trace)
    settings = load_settings("tiny", environ={}, store__url=str(tmp_path / "odar.db"))
    with Database(settings.store) as database:
        with database.write() as connection:
            write_rows(connection, [make_row(record, content=False) for record in records])
        stored = Archive(database).overview()["savings"]
    ours = savings(totals)
    assert stored.keys() == ours.keys()
    for name in ("always_slow", "always_hard"):
        assert stored.pop(name) == pytest.approx(ours.pop(name))
    assert stored.pop("cost_usd") == pytest.approx(ours.pop("cost_usd"))
    assert stored == ours
    assert ours["compared"] > 50
    assert 0 < ours["changed"] < 1


def test_questions_with_a_chosen_path_or_model_do_not_count():
    answer = make_answer()
    totals = RoutedTotals()
    totals.add_trace(
        dataclasses.replace(answer.trace, decision=dataclasses.replace(answer.trace.decision, forced=True))
    )
    plain = dataclasses.replace(answer.trace.decision, assignment=Assignment(fast="m"))
    totals.add_trace(dataclasses.replace(answer.trace, decision=plain))
    assert (totals.questions, totals.calls, totals.cost_usd) == (0, 0, 0.0)
    assert totals.slow_answers == 1  # the cost of a slow answer is still counted


def test_the_warning_names_the_loss_and_the_remedy():
    n = MIN_QUESTIONS
    dear = RoutedTotals(questions=n, priced=n, cost_usd=3.0, slow_answers=10, slow_cost_usd=1.0)
    said = savings(dear)["warning"]
    assert said.startswith("ODAR cost $3, 50% more than the $2 of always asking the slow model")
    assert "routing.target_cost_usd below 0.1" in said
    assert savings(dataclasses.replace(dear, cost_usd=1.9))["warning"] is None
    assert savings(dataclasses.replace(dear, priced=n - 1))["warning"] is None
    assert savings(dataclasses.replace(dear, slow_answers=0))["warning"] is None


def test_savings_with_unknown_costs_are_unknown():
    found = savings(RoutedTotals(questions=5, calls=9, unpriced=5))
    assert found["cost_usd"] is None
    assert (found["always_slow"]["usd_saved"], found["always_hard"]["calls_saved"]) == (None, None)
    assert found["always_slow"]["calls_saved"] == -4
    assert found["changed"] is None


def test_a_different_winning_slow_answer_counts_as_changed():
    fast, slow = make_answer().trace.candidates
    other = dataclasses.replace(slow, answer="5")
    assert changed_by_slow((fast, slow), 1) is False
    assert changed_by_slow((fast, other), 1) is True
    assert changed_by_slow((fast, other), 0) is False
    assert changed_by_slow((fast,), 0) is None
