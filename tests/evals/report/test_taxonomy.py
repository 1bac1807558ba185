from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policy
from odar.evals.replay.simulate import Setting
from odar.evals.report.findings import KINDS, error_kinds, fields_of
from odar.policy.fusion import VERIFY
from support.panels import synthetic_panel


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return load_arrays(synthetic_panel(tmp_path_factory.mktemp("panel"), 400))


def sorted_errors(arrays):
    return error_kinds(arrays, Setting.from_header(arrays.header), run_policy(arrays, "odar"))


def test_exactly_the_errors_have_a_kind(arrays):
    found, outcome = sorted_errors(arrays), run_policy(arrays, "odar")
    assert [kind in KINDS for kind in found] == (outcome.score < 0.5).tolist()
    assert {"E1", "E3", "E4", "E5", "E6"} <= set(found)


def test_each_kind_has_its_defining_properties(arrays):
    found, outcome = np.array(sorted_errors(arrays)), run_policy(arrays, "odar")
    assert (outcome.best[found == "E4"] == 1).all()
    assert (outcome.best[np.isin(found, ["E1", "E3", "E5", "E6"])] == 0).all()
    assert (arrays.answers.judgment[found == "E3", VERIFY] == 1).all()
    assert (outcome.path[found == "E3"] == 1).all()
    anywhere = arrays.answers.score.max(axis=1)
    assert (anywhere[found == "E1"] == 1).all()
    assert (anywhere[np.isin(found, ["E5", "E6"])] == 0).all()  # nobody means nobody
    category = np.array(arrays.items.category)
    assert set(category[found == "E5"]) == {"Knowledge"}
    assert "Knowledge" not in set(category[found == "E6"])


def test_wrong_experts_count_only_if_they_choose_a_model(arrays):
    assert "E2" not in sorted_errors(arrays)
    models = {**arrays.header.models, "slow": ["deep", "deeper"]}
    with_choice = replace(arrays, header=replace(arrays.header, models=models))
    found = np.array(sorted_errors(with_choice))
    assert set(np.array(arrays.items.category)[found == "E2"]) == {"Knowledge", "Coding"}  # all were sent to math


def test_the_stratum_overrides_the_category(tmp_path):
    arrays = load_arrays(synthetic_panel(tmp_path, 12, benchmarks=[("one", "Coding")]))
    assert set(fields_of(arrays)) == {"coding"}
    logic = replace(arrays, items=replace(arrays.items, stratum=["Logic"] * 12))
    assert set(fields_of(logic)) == {"logic"}
