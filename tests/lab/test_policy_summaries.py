from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.lab.recording.files import open_recording, write_recording
from odar.lab.replay.outcomes import best_mixture
from odar.lab.replay.policies import run_policy, suites
from odar.lab.replay.table import load_table
from odar.lab.statistics import length_strata, summarize_policies
from support.panels import header, synthetic_panel


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return load_table(synthetic_panel(tmp_path_factory.mktemp("panel"), 300))


def stand(table, *specs, against="odar"):
    outcomes = {spec: run_policy(table, spec) for spec in specs}
    return {row.name: row for row in summarize_policies(table, list(outcomes.values()), outcomes[against])}


def test_the_reference_has_no_gain_and_no_test(table):
    rows = stand(table, "odar", "single-fast", "odar:similarity=lexical")
    assert (rows["odar"].gain, rows["odar"].adjusted) == (None, None)
    twin = rows["odar:similarity=lexical"]
    assert (twin.gain.interval.value, twin.gain.p, twin.adjusted) == (0.0, 1.0, 1.0)
    assert twin.gain.interval.low < 0 < twin.gain.interval.high


def test_figures_are_means_over_items(table):
    row, outcome = stand(table, "odar", "single-fast")["odar"], run_policy(table, "odar")
    assert row.accuracy.value == pytest.approx(outcome.score.mean())
    assert row.accuracy.low < row.accuracy.value < row.accuracy.high
    assert row.folds.value == pytest.approx(row.accuracy.value)  # folds of equal size
    assert (row.calls, row.cost_usd) == pytest.approx((outcome.calls.mean(), outcome.cost_usd.mean()))
    base = run_policy(table, "single-fast").score.mean()
    assert row.efficiency == pytest.approx(100 * (outcome.score.mean() - base) / outcome.calls.mean())
    assert stand(table, "odar")["odar"].efficiency is None


def test_the_mean_of_tokens_is_unknown_if_one_of_them_is(table):
    outcome = run_policy(table, "odar")
    tokens = np.where(np.arange(len(table)) == 3, np.nan, 7.0)
    (row,) = summarize_policies(table, [replace(outcome, tokens=tokens)], outcome)
    assert row.tokens is None


def test_repeated_seeds_do_not_narrow_the_interval(table, tmp_path, tmp_path_factory):
    path = synthetic_panel(tmp_path, 150)
    entries = list(open_recording(path).items())
    thrice = [replace(e, key=e.key._replace(seed=seed)) for seed in (42, 123, 456) for e in entries]
    thrice_path = tmp_path / "thrice.jsonl.gz"
    write_recording(thrice_path, header(), thrice)
    once, more = (stand(load_table(place), "odar", "single-fast")["single-fast"] for place in (path, thrice_path))
    assert more.gain.interval == once.gain.interval
    assert more.gain.p == once.gain.p
    assert (np.isnan(once.seeds), more.seeds) == (True, 0.0)


def test_label_free_strata_depend_only_on_benchmark_and_length(table):
    strata = length_strata(table)
    assert len(set(strata)) == 3 * 4
    lengths = np.array([len(query) for query in table.column("query")])
    quarters = np.array([quarter for _, quarter in strata])
    assert lengths[quarters == 0].max() <= lengths[quarters == 3].min()


def test_gains_over_the_fixed_choices_are_at_equal_cost(table):
    fixed = [run_policy(table, name) for name in suites(table)["fixed"]]
    outcome = run_policy(table, "paper")
    (row, alone) = summarize_policies(table, [outcome, fixed[0]], fixed[0])
    mixed = best_mixture(fixed, float(outcome.cost_usd.mean()))
    assert mixed.cost_usd.mean() == pytest.approx(outcome.cost_usd.mean())
    assert row.over_fixed.value == pytest.approx(outcome.score.mean() - mixed.score.mean())
    assert alone.over_fixed is None
