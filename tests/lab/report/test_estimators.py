"""Estimators trained again on a recording: without groups of features, and on one domain for another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError
from odar.lab.replay.table import ReplayTable, load_table
from odar.lab.report.estimators import features, transfer
from odar.lab.report.findings import replay_recordings
from support.panels import synthetic_panel

BENCHMARKS = (("alpha", "Mathematics"), ("beta", "Coding"))


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """240 items whose fast answer fails if the first semantic feature is high, in both domains."""
    table = load_table(synthetic_panel(tmp_path_factory.mktemp("study"), 240, benchmarks=BENCHMARKS))
    rng = np.random.default_rng(0)
    items = []
    for item in table.items:
        phi = [*item.features]
        phi[14] = 8 * rng.random()  # tf-idf of mathematics
        fast = replace(item.attempts[0], score=float(phi[14] < 4))
        items.append(replace(item, features=tuple(phi), attempts=(fast, *item.attempts[1:])))
    changed = ReplayTable.from_items(items, table.header)
    (found,) = replay_recordings({"study": changed})
    return found


def test_removing_the_informative_group_lowers_the_correlation(findings):
    (exhibit,) = features(findings)
    rows = {row["estimator"]: row for row in exhibit.records()}
    assert next(iter(rows)) == "as shipped"
    full = rows["all 24, trained again"]["r with d*"]
    assert full > 0.5 > rows["without semantic"]["r with d*"] + 0.2
    assert full == pytest.approx(rows["without structural"]["r with d*"], abs=0.15)
    assert all(0 <= row["routing accuracy"] <= 1 <= row["calls"] for row in rows.values())


def test_an_estimator_transfers_to_another_domain(findings):
    (exhibit,) = transfer(findings)
    (row,) = exhibit.records()
    assert (row["trained → applied"], row["items"]) == ("Mathematics → Coding", 120)
    assert row["transferred AUROC"] > 0.9 and row["own AUROC"] > 0.8
    (by_set,) = transfer(replace(findings, train="beta"))[0].records()
    assert by_set["trained → applied"] == "beta → Mathematics"
    assert row["retained"] == pytest.approx(row["transferred"] / row["own routing acc."])


def test_too_few_items_are_an_error(findings):
    table = findings.table
    small = replace(findings, table=table.replaced(rows=np.arange(240) < 30))
    with pytest.raises(InputError, match="30 rows cannot teach an estimator"):
        features(small)
    with pytest.raises(InputError, match="15 items of Mathematics are too few"):
        transfer(small)
    with pytest.raises(InputError, match="no other domain than Mathematics has 50 items"):
        transfer(replace(findings, table=table.replaced(rows=table.of_set("alpha"))))
