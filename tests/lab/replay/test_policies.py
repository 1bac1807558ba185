from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError, OdarError, SettingsError, UnknownName
from odar.lab.replay.outcomes import Outcomes, best_mixture, cost_at_accuracy, upper_hull
from odar.lab.replay.policies import run_policies, run_policy, suites
from odar.lab.replay.table import ReplayTable, load_table
from odar.policy.fusion_rules import RULES, free_energy_rule
from support.panels import handmade_panel, synthetic_panel

FLAT = [0.2] * 7


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return load_table(synthetic_panel(tmp_path_factory.mktemp("panel"), 300, samples=9))


@pytest.fixture(scope="module")
def outcomes(table):
    return run_policies(table, ["all"])[0]


def outcome(cost, accuracy, items=100):
    """An outcome of this cost and accuracy."""
    zeros = np.zeros(items)
    score = (np.arange(items) < accuracy * items).astype(float)
    whole = np.zeros(items, dtype=np.int64)
    return Outcomes(score, np.full(items, cost), zeros, zeros, zeros, whole, whole, score, name=f"{cost}")


def test_no_policy_is_better_than_the_oracle(table, outcomes):
    assert len(outcomes) > 40
    oracle = outcomes["oracle"]
    for name, each in outcomes.items():
        assert (oracle.score >= each.best - 1e-9).all(), name
        assert (each.best >= each.score - 1e-9).all(), name
        assert len(each) == len(table), name


def test_no_fixed_choice_is_better_than_the_oracle_router(table, outcomes):
    best = outcomes["oracle-router"].score
    for name in suites(table)["fixed"]:
        assert (best >= outcomes[name].score - 1e-9).all(), name
    assert outcomes["oracle-router"].calls.mean() < outcomes["always-hard"].calls.mean()


@pytest.mark.parametrize("policy", ["random-matched", "length-adaptive"])
def test_matched_policies_have_the_paper_s_mix_of_paths(outcomes, policy):
    assert outcomes[policy].mix == pytest.approx(outcomes["paper"].mix, abs=0.01)
    assert len(set(outcomes["paper"].path)) == 3


def test_the_calls_of_each_baseline(outcomes):
    calls = {name: each.calls.mean() for name, each in outcomes.items()}
    assert (calls["single-fast"], calls["single-slow"]) == (1, 1)
    assert (calls["self-consistency:k=5"], calls["best-of-n:n=9"], calls["ensemble"]) == (5, 9, 3)
    assert (calls["always-medium"], calls["always-hard"]) == (2, 6)
    assert (outcomes["single-fast"].winner == 0).all()
    assert outcomes["single-slow"].note == "mean over 9 samples"


def test_prices_add_up_by_hand(table):
    samples = [[each for each in item.attempts if each.step == "solve"][:3] for item in table.items]
    many = run_policy(table, "self-consistency:k=3")
    costs = [own[0].prompt_usd + sum(each.output_usd for each in own) for own in samples]
    assert many.cost_usd == pytest.approx(np.array(costs))
    assert many.tokens.tolist() == [sum(each.usage.output for each in own) for own in samples]
    assert many.seconds.tolist() == [max(each.seconds for each in own) for own in samples]
    medium = run_policy(table, "always-medium")
    assert medium.seconds == pytest.approx(
        np.array([item.attempts[0].seconds + item.attempts[1].seconds for item in table.items])
    )


def test_the_paper_is_its_own_policy_whatever_the_settings(table):
    paper = run_policy(table, "paper")
    explicit = run_policy(table, "odar:policy=paper,tau1=0.3,tau2=0.7,n=5,rule=fep,beta=inf")
    assert (paper.winner == explicit.winner).all() and (paper.path == explicit.path).all()
    assert set(paper.calls) == {1, 2, 6}


def test_beta_zero_without_skills_is_majority_and_beta_inf_is_argmin(table):
    hard = "paper:tau1=0,tau2=0"
    assert (run_policy(table, f"{hard},beta=0").winner == run_policy(table, f"{hard},rule=majority").winner).all()
    free = [
        [each.figures.energy + 0.1 * each.figures.varentropy for each in item.attempts[:1] + item.attempts[2:7]]
        for item in table.items
    ]
    numbers = np.array([0, 2, 3, 4, 5, 6])
    raw = run_policy(table, f"{hard},statistics=none")
    assert (raw.winner == numbers[np.argmin(free, axis=1)]).all()


def test_a_registered_rule_is_used(table):
    RULES.add("theirs", free_energy_rule)
    assert (run_policy(table, "paper:rule=theirs").winner == run_policy(table, "paper").winner).all()


def test_another_estimator_changes_the_paths(table):
    assert (run_policy(table, "paper:estimator=length").path != run_policy(table, "paper").path).any()


def test_dispatch_off_drops_the_thresholds_of_experts(table):
    experts = dict.fromkeys(set(table.column("expert")), 0.0)
    routing = replace(table.settings.routing, tau1_by_expert=experts, tau2_by_expert=experts)
    tuned = table.replaced(settings=replace(table.settings, policy="paper", routing=routing))
    assert set(run_policy(tuned, "odar").calls) == {6}
    off = run_policy(tuned, "odar:dispatch=off")
    assert (off.path == run_policy(table, "odar:policy=paper").path).all()
    assert set(off.calls) == {1, 2, 6}
    assert "thresholds of single experts" in off.note


def test_dispatch_off_is_no_ablation_where_it_would_change_nothing(table):
    with pytest.raises(InputError, match="would change nothing"):
        run_policy(table, "odar:dispatch=off")


def test_stages_can_be_written_as_a_policy(table):
    written = run_policy(table, "fast,slow*2")
    assert set(written.calls) == {3}
    assert (run_policy(table, "fast+slow*5").winner == run_policy(table, "always-hard").winner).all()


def test_suites_contain_only_policies_that_the_recording_supports(tmp_path):
    small = load_table(synthetic_panel(tmp_path, 30, samples=1))
    assert "best-of-n:n=9" not in suites(small)["all"]
    assert "ensemble" not in suites(small)["baselines"]
    assert suites(small)["fixed"] == ["single-fast", "single-slow", "always-medium", "always-hard"]
    with pytest.raises(InputError, match="2 answers by slow are needed, and the recording holds 1"):
        run_policy(small, "ensemble")
    assert run_policy(small, "cascade:dial=0.1").calls.max() == 2  # stages without answers are left out


def test_a_recording_of_one_agent_can_be_replayed(table):
    items = [replace(item, attempts=item.attempts[:1]) for item in table.items]
    alone = ReplayTable(items, table.settings, table.prompts)
    assert run_policy(alone, "single-fast").score.tolist() == run_policy(table, "single-fast").score.tolist()
    with pytest.raises(InputError, match="'0' is not a number of samples"):
        run_policy(alone, "always-hard")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("odra", UnknownName, "unknown policy 'odra'; did you mean 'odar'"),
        ("odar:tau3=1", UnknownName, "unknown option of odar 'tau3'"),
        ("odar:tau1", InputError, "'tau1' is not option=value"),
        ("odar:tau1=x", SettingsError, 'routing.tau1 = "x" in odar must be a number'),
        ("odar:tau1=0.9,tau2=0.1", SettingsError, "routing.tau1 = 0.9 is above routing.tau2 = 0.1"),
        ("odar:dial=cheap", SettingsError, "dial 'cheap' is neither"),
        ("odar:statistics=some", UnknownName, "unknown source of statistics"),
        ("odar:rule=nonsense", UnknownName, "unknown fusion rule"),
        ("odar:n=-1", SettingsError, "must be at least 1"),
        ("odar:lambda=-0.5", SettingsError, "must be at least 0"),
        ("best-of-n:n=99", InputError, "the recording holds 9"),
        ("best-of-n:n=0", InputError, "not a number of samples, at least 1"),
        ("best-of-n:n=x", InputError, "n = 'x' is not a number of samples"),
        ("single-fast:n=2", UnknownName, "unknown policy 'single-fast"),
        ("best-of-n:k=3", UnknownName, "unknown option of best-of-n 'k'"),
        ("fast,third", UnknownName, "unknown agent 'third'"),
    ],
)
def test_an_invalid_policy_is_named(table, spec, error, message):
    with pytest.raises(OdarError, match=message) as caught:
        run_policy(table, spec)
    assert isinstance(caught.value, error)


def test_baselines_by_hand(tmp_path):
    answers = [["4", "4", "5", "5", "4", "4", "4"], ["5", "5", "4", "4", "5", "5", "5"]]
    energies = [[0.1, 0.1, 0.9, 0.8, 0.3, 0.4, 0.5], [0.9, 0.9, 0.2, 0.3, 0.5, 0.5, 0.5]]
    table = load_table(handmade_panel(tmp_path, answers, energies))
    expected = {
        "single-fast": [1, 0],
        "single-slow": [0.6, 0.4],
        "self-consistency:k=3": [0, 1],  # 5 5 4, and 4 4 5
        "self-consistency:k=5": [1, 0],  # 5 5 4 4 4, and 4 4 5 5 5
        "best-of-n:n=2": [0, 1],
        "best-of-n:n=5": [1, 1],
        "ensemble": [0, 1],  # the fast answer is outvoted by two samples
        "oracle": [1, 1],
        "odar:policy=paper,tau1=0,tau2=0,rule=none": [0, 1],  # the first slow answer
    }
    assert {name: run_policy(table, name).score.tolist() for name in expected} == {
        name: pytest.approx(scores) for name, scores in expected.items()
    }
    assert run_policy(table, "oracle").calls.tolist() == [1, 1]


def test_the_oracle_router_takes_the_cheapest_choice_that_is_right(tmp_path):
    answers = [
        ["4", "4", *["4"] * 5],  # all are right
        ["5", "4", *["5"] * 5],  # only the verifier is
        ["5", "5", *["4"] * 5],  # only the samples are
        ["5", "5", *["5"] * 5],  # nobody is: nothing is worth paying for
    ]
    energies = [FLAT, [0.9, 0.1, *[0.5] * 5], [0.9, 0.1, *[0.2] * 5], FLAT]
    found = run_policy(load_table(handmade_panel(tmp_path, answers, energies)), "oracle-router")
    assert found.score.tolist() == [1, 1, 1, 0]
    assert found.calls.tolist() == [1, 2, 1, 1]


def test_the_best_mixture_is_on_the_upper_hull_of_the_fixed_choices():
    fixed = [outcome(1.0, 0.5), outcome(2.0, 0.55), outcome(3.0, 0.7), outcome(5.0, 0.65)]
    assert upper_hull([(1, 0.5), (2, 0.55), (3, 0.7), (5, 0.65)]) == [(1, 0.5), (3, 0.7)]
    half = best_mixture(fixed, 2.0)
    assert (half.score.mean(), half.cost_usd.mean()) == (pytest.approx(0.6), pytest.approx(2.0))
    assert half.note == "50% 1.0, 50% 3.0"
    assert best_mixture(fixed, 0.5).score.mean() == 0.5
    assert best_mixture(fixed, 9.0).score.mean() == 0.7


def test_the_cost_at_equal_accuracy_is_on_the_curve():
    curve = [outcome(1.0, 0.5), outcome(3.0, 0.7), outcome(4.0, 0.6)]
    assert cost_at_accuracy(curve, 0.6) == pytest.approx(2.0)
    assert cost_at_accuracy(curve, 0.71) is None
    assert cost_at_accuracy(curve, 0.4) == 1.0
