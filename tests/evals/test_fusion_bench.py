from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from odar.cli.bench_quality import fusion
from odar.errors import InputError
from odar.evals.fusion_bench import Panel, load_panel, luck, measure_group, pairs, random_groups
from odar.policy.rules import Votes

pyarrow = pytest.importorskip("pyarrow", reason="the evals extra is not installed: pip install 'odar[evals]'")


@pytest.fixture
def folder(tmp_path):
    """Four models on 400 questions, written as the public data is."""
    from pyarrow import parquet, table

    rng = np.random.default_rng(0)
    rows: dict[str, list] = {k: [] for k in ("model", "row", "correct", "mean_token_probability", "answer")}
    for model, skill in (("weak", 0.5), ("fair", 0.6), ("good", 0.8), ("silent", 0.3), ("deepseek-chat", 0.9)):
        for row in range(400):
            right = bool(rng.random() < skill)
            rows["model"].append(model)
            rows["row"].append(row)
            rows["correct"].append(right)
            rows["mean_token_probability"].append(
                None if model == "silent" else float(rng.uniform(0.5, 0.9 + right / 10))
            )
            rows["answer"].append("A" if right else "" if model == "silent" else str(rng.choice(list("BCD"))))
    (tmp_path / "mmlu_pro_outcomes").mkdir()
    parquet.write_table(table(rows), tmp_path / "mmlu_pro_outcomes" / "outcomes.parquet")
    return tmp_path


def test_the_panel_is_read_as_it_is(folder):
    panel = load_panel(folder)
    assert panel.models == ("fair", "good", "silent", "weak")
    assert len(panel.votes) == 400
    assert np.isnan(panel.votes.energy[:, 2]).all()
    assert panel.votes.correct[:, 1].mean() == pytest.approx(0.8, abs=0.06)


def test_the_fitted_rule_holds_its_own(folder):
    panel = load_panel(folder)
    result = measure_group(panel, [0, 1, 2, 3], seed=0)
    assert result.margin > -0.005
    assert result.plain == pytest.approx(max(result.best_single, result.majority))  # no fold chooses another
    assert result.hindsight_margin == pytest.approx(result.margin)
    assert result.fitted <= result.oracle
    assert result.models == panel.models


def test_groups_and_pairs_are_reproducible(folder):
    panel = load_panel(folder)
    assert list(random_groups(panel, 3, 1)) == list(random_groups(panel, 3, 1))
    assert len(pairs(panel, None, 0)) == 6
    assert len(set(pairs(panel, 3, 0))) == 3


def test_missing_data_is_named(tmp_path):
    with pytest.raises(InputError, match=r"outcomes\.parquet cannot be read"):
        load_panel(tmp_path)


def test_equals_cost_whoever_must_choose_between_them_on_other_folds(folder):
    """Two models that are right equally often, on different questions: the plain rule pays for the choice as well."""
    votes = load_panel(folder).votes
    right = np.arange(len(votes)) % 2 == 0
    correct = np.stack([right, ~right], axis=1)
    energy = np.full(correct.shape, np.nan)  # nothing tells who is right
    equals = Panel(("a", "b"), Votes(energy, np.tile([0, 1], (len(votes), 1)), correct))
    result = measure_group(equals, [0, 1], seed=0)
    assert result.best_single == 0.5
    assert result.hindsight_margin <= 0
    assert result.margin == 0


def equals(seed, n=2000, lead=0.0):
    """Two models that are right equally often, or one by a lead, whose energies say nothing."""
    rng = np.random.default_rng(seed)
    correct = rng.random((n, 2)) < np.array([0.5, 0.5 + lead])
    groups = np.where(correct, 0, [1, 2])
    return Votes(rng.normal(size=(n, 2)), groups, correct)


def test_of_equal_models_nobody_knows_which_will_lead():
    margins = luck(equals(0), seed=1, draws=200)
    assert margins.max() <= 0.02
    assert -0.02 < margins.mean() < -0.002
    assert (margins < -0.005).mean() > 0.2


def test_of_unequal_models_everybody_does():
    margins = luck(equals(0, lead=0.3), seed=1, draws=50)
    assert margins.mean() == pytest.approx(0, abs=0.002)


def test_luck_is_as_large_as_the_law_of_equal_models_says():
    """Two equal models, m questions on which one of them is right: E|D|/2 of the lead D with variance m."""
    correct = np.repeat([[True, False], [False, True], [True, True]], 500, axis=0)
    votes = Votes(
        np.tile([[0.0, 1.0]], (1500, 1)), np.where(correct, 0, [1, 2]), correct
    )  # a vote is the first model
    expected = -np.sqrt(2 * 1000 / np.pi) / 2 / 1500
    assert luck(votes, seed=0, draws=1000).mean() == pytest.approx(expected, rel=0.1)


def test_the_bench_says_what_luck_costs(folder):
    result = CliRunner().invoke(fusion, ["--data", str(folder), "--groups", "2", "--pairs", "3"])
    assert result.exit_code == 0, result.output
    assert "3 pairs, by luck: worst" in result.output
    assert "in hindsight, of a rule that knows the best setting" in result.output
