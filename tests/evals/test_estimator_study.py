"""Estimators trained again on a recording: without groups of features, and on one domain for another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError
from odar.evals.estimator_study import feature_rows, transfer_rows
from odar.evals.replay.arrays import load_arrays
from odar.policy.fusion import FAST
from support.panels import synthetic_panel

BENCHMARKS = (("alpha", "Mathematics"), ("beta", "Coding"))


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    """240 items whose fast answer fails if the first semantic feature is high, in both domains."""
    arrays = load_arrays(synthetic_panel(tmp_path_factory.mktemp("study"), 240, benchmarks=BENCHMARKS))
    rng, features = np.random.default_rng(0), arrays.items.features.copy()
    features[:, 14] = 8 * rng.random(240)  # tf-idf of mathematics
    score = arrays.answers.score.copy()
    score[:, FAST] = features[:, 14] < 4
    return replace(
        arrays, items=replace(arrays.items, features=features), answers=replace(arrays.answers, score=score)
    )


def test_the_group_that_tells_is_missed(arrays):
    rows = {row.name: row for row in feature_rows(arrays)}
    assert next(iter(rows)) == "as shipped"
    full = rows["all 24, trained again"]
    assert full.pearson > 0.5 > rows["without semantic"].pearson + 0.2
    assert full.pearson == pytest.approx(rows["without structural"].pearson, abs=0.15)
    assert all(0 <= row.routing_accuracy <= 1 <= row.calls for row in rows.values())


def test_what_is_learned_on_one_domain_serves_another(arrays):
    (row,) = transfer_rows(arrays)
    assert (row.trained_on, row.applied_to, row.items) == ("Mathematics", "Coding", 120)
    assert row.transferred_auroc > 0.9 and row.own_auroc > 0.8
    assert row.retained == pytest.approx(row.transferred / row.own)
    (by_set,) = transfer_rows(arrays, train="beta")
    assert by_set.applied_to == "Mathematics"


def test_too_few_items_are_said(arrays):
    small = arrays.rows(np.arange(240) < 30)
    with pytest.raises(InputError, match="30 rows cannot teach an estimator"):
        feature_rows(small)
    with pytest.raises(InputError, match="15 items of Mathematics cannot teach"):
        transfer_rows(small)
    with pytest.raises(InputError, match="no other domain than Mathematics has 50 items"):
        transfer_rows(arrays.rows(arrays.of_set("alpha")))
