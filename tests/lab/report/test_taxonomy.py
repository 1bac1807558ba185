from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import ReplayTable, load_table
from odar.lab.report.findings import ERROR_KINDS, error_kinds, fields_of
from support.panels import synthetic_panel

PAPER = "odar:policy=paper"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return load_table(synthetic_panel(tmp_path_factory.mktemp("panel"), 400))


def sorted_errors(table):
    return error_kinds(table, run_policy(table, PAPER))


def test_exactly_the_errors_have_a_kind(table):
    found, outcome = sorted_errors(table), run_policy(table, PAPER)
    assert [kind in ERROR_KINDS for kind in found] == (outcome.score < 0.5).tolist()
    assert {"E1", "E3", "E4", "E5", "E6"} <= set(found)


def test_each_kind_has_its_defining_properties(table):
    found, outcome = np.array(sorted_errors(table)), run_policy(table, PAPER)
    assert (outcome.best[found == "E4"] == 1).all()
    assert (outcome.best[np.isin(found, ["E1", "E3", "E5", "E6"])] == 0).all()
    assert all(table.items[row].attempts[1].judgment for row in np.flatnonzero(found == "E3"))
    assert (outcome.path[found == "E3"] == 1).all()
    anywhere = np.array([max(each.score for each in item.attempts) for item in table.items])
    assert (anywhere[found == "E1"] == 1).all()
    assert (anywhere[np.isin(found, ["E5", "E6"])] == 0).all()  # nobody means nobody
    category = np.array(table.column("category"))
    assert set(category[found == "E5"]) == {"Knowledge"}
    assert "Knowledge" not in set(category[found == "E6"])


def test_two_agents_with_the_same_wrong_answer_are_an_acceptance(table):
    outcome = run_policy(table, "fast,slow")
    found = np.array(error_kinds(table, outcome))
    assert "E3" in found
    for row in np.flatnonzero(found == "E3"):
        fast, slow = table.items[row].attempts[0], table.items[row].attempts[2]
        assert fast.answer == slow.answer and fast.score == 0
    alone = error_kinds(table, run_policy(table, "slow,slow"))
    assert "E3" not in alone  # samples of one agent do not confirm each other


def test_wrong_experts_count_if_they_have_thresholds(table):
    routing = replace(table.settings.routing, tau1_by_expert={"math": 0.2})
    assert "E2" in sorted_errors(table.replaced(settings=replace(table.settings, routing=routing)))


def test_wrong_experts_count_only_if_they_choose_a_model(table):
    assert "E2" not in sorted_errors(table)
    slow = replace(table.settings.slow, alternatives=("quick",))
    found = np.array(sorted_errors(table.replaced(settings=replace(table.settings, slow=slow))))
    assert set(np.array(table.column("category"))[found == "E2"]) == {"Knowledge", "Coding"}  # all went to math


def test_the_stratum_overrides_the_category(tmp_path):
    table = load_table(synthetic_panel(tmp_path, 12, benchmarks=[("one", "Coding")]))
    assert set(fields_of(table)) == {"coding"}
    items = [replace(item, stratum="Logic") for item in table.items]
    assert set(fields_of(ReplayTable.from_items(items, table.header))) == {"logic"}
