from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.evals.replay.policies import run
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import load_tape
from odar.evals.taxonomy import KINDS, groups_of, taxonomy
from odar.policy.fusion import VERIFY
from support.panels import synthetic_panel


@pytest.fixture(scope="module")
def tape(tmp_path_factory):
    return load_tape(synthetic_panel(tmp_path_factory.mktemp("panel"), 400))


def sorted_errors(tape):
    return taxonomy(tape, Setting.of(tape.header), run(tape, "odar"))


def test_every_error_has_one_kind_and_nothing_else_has(tape):
    found, outcome = sorted_errors(tape), run(tape, "odar")
    assert [kind in KINDS for kind in found.kinds] == (outcome.score < 0.5).tolist()
    assert sum(found.counts.values()) == (outcome.score < 0.5).sum()
    assert {"E1", "E3", "E4", "E5", "E6"} <= {kind for kind, count in found.counts.items() if count}


def test_each_kind_means_what_it_says(tape):
    found, outcome = np.array(sorted_errors(tape).kinds), run(tape, "odar")
    assert (outcome.best[found == "E4"] == 1).all()
    assert (outcome.best[np.isin(found, ["E1", "E3", "E5", "E6"])] == 0).all()
    assert (tape.answers.judgment[found == "E3", VERIFY] == 1).all()
    assert (outcome.path[found == "E3"] == 1).all()
    anywhere = tape.answers.score.max(axis=1)
    assert (anywhere[found == "E1"] == 1).all()
    assert (anywhere[np.isin(found, ["E5", "E6"])] == 0).all()  # nobody means nobody
    category = np.array(tape.items.category)
    assert set(category[found == "E5"]) == {"Knowledge"}
    assert "Knowledge" not in set(category[found == "E6"])


def test_experts_count_only_where_they_choose_a_model(tape):
    assert sorted_errors(tape).counts["E2"] == 0
    models = {**tape.header.models, "slow": ["deep", "deeper"]}
    with_choice = replace(tape, header=replace(tape.header, models=models))
    found = np.array(sorted_errors(with_choice).kinds)
    assert set(np.array(tape.items.category)[found == "E2"]) == {"Knowledge", "Coding"}  # all were sent to math


def test_one_category_is_grouped_by_subject(tmp_path):
    tape = load_tape(synthetic_panel(tmp_path, 12, benchmarks=[("one", "Coding")]))
    assert set(groups_of(tape)) == {"s0", "s1", "s2", "s3"}
