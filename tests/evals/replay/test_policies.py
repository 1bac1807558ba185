from __future__ import annotations

import numpy as np
import pytest

from odar.errors import InputError, UnknownName
from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import expand_suites, run_policies, run_policy, suites
from odar.evals.replay.simulate import NO_PATH, Setting
from odar.policy.fusion import FAST, SOLVE
from odar.policy.rules import RULES, free_energy_rule
from support.panels import synthetic_panel


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return load_arrays(synthetic_panel(tmp_path_factory.mktemp("panel"), 600, samples=9))


@pytest.fixture(scope="module")
def outcomes(arrays):
    return {spec: found for spec, found in run_policies(arrays, ["all"]) if not isinstance(found, InputError)}


def test_no_policy_is_better_than_the_oracle(arrays, outcomes):
    assert len(outcomes) > 50
    oracle = outcomes["oracle"]
    for name, each in outcomes.items():
        assert (oracle.score >= each.best).all(), name
        assert (each.best >= each.score).all(), name
        assert len(each.score) == len(arrays), name


def test_no_routing_is_better_than_the_oracle_router(outcomes):
    best = outcomes["oracle-router"].score
    for name in ("odar", "random-matched", "length-adaptive", "always-medium", "always-hard", "single-fast"):
        assert (best >= outcomes[name].score).all(), name
    assert outcomes["oracle-router"].calls.mean() < outcomes["always-hard"].calls.mean()


@pytest.mark.parametrize("policy", ["random-matched", "length-adaptive"])
def test_matched_policies_have_the_same_mix_of_paths(outcomes, arrays, policy):
    assert run_policy(arrays, policy).mix == pytest.approx(outcomes["odar"].mix, abs=0.01)
    assert len(set(outcomes["odar"].path)) == 3


def test_the_calls_of_each_baseline(outcomes):
    calls = {name: each.calls.mean() for name, each in outcomes.items()}
    assert (calls["single-fast"], calls["single-slow"], calls["cot"]) == (1, 1, 1)
    assert (calls["self-consistency:k=5"], calls["best-of-n:n=9"], calls["ensemble"]) == (5, 9, 3)
    assert calls["always-medium"] == 2
    assert 4 <= calls["always-hard"] <= 6
    assert (outcomes["single-fast"].winner == FAST).all()
    assert (outcomes["cot"].winner == SOLVE).all()
    assert "chain-of-thought" in outcomes["cot"].note
    assert (outcomes["ensemble"].path == NO_PATH).all()
    assert np.isnan(outcomes["ensemble"].mix).all()


def test_prices_add_up_by_hand(arrays):
    one = run_policy(arrays, "single-fast")
    answers = arrays.answers
    assert one.cost == pytest.approx(answers.prompt_usd[:, FAST] + answers.output_usd[:, FAST])
    many = run_policy(arrays, "self-consistency:k=3")
    samples = slice(SOLVE, SOLVE + 3)
    assert many.cost == pytest.approx(answers.prompt_usd[:, SOLVE] + answers.output_usd[:, samples].sum(axis=1))
    assert many.tokens == pytest.approx(answers.output[:, samples].sum(axis=1))
    assert many.seconds == pytest.approx(answers.seconds[:, samples].max(axis=1))
    medium = run_policy(arrays, "always-medium")
    assert medium.seconds == pytest.approx(answers.seconds[:, 0] + answers.seconds[:, 1])


def test_stopping_early_saves_whole_waves(arrays):
    setting = "odar:tau1=0,tau2=0,mode=prior"
    full, early = run_policy(arrays, f"{setting},stop=none"), run_policy(arrays, f"{setting},stop=0.8")
    assert set(full.calls) == {6}
    assert set(early.calls) == {4, 6}
    once = early.calls == 4
    assert (early.cost[once] < full.cost[once]).all()
    assert abs(early.score.mean() - full.score.mean()) < 0.03
    twice = early.calls == 6
    assert (early.cost[twice] > full.cost[twice]).all()  # the prompt is read again for the second wave


def test_a_policy_is_reproducible(arrays):
    for spec in ("odar", "random-matched", "odar:rule=deepconf"):
        assert (run_policy(arrays, spec).score == run_policy(arrays, spec).score).all()


def test_beta_zero_without_skills_is_majority_and_beta_inf_is_argmin(arrays):
    hard = "odar:tau1=0,tau2=0,mode=prior,stop=none"
    assert (run_policy(arrays, f"{hard},beta=0").winner == run_policy(arrays, f"{hard},rule=majority").winner).all()
    free = arrays.answers.energy + 0.1 * arrays.answers.varentropy
    free[:, 1], free[:, SOLVE + 5 :] = np.inf, np.inf
    assert (run_policy(arrays, f"{hard},beta=inf").winner == free.argmin(axis=1)).all()


def test_a_registered_rule_is_used(arrays):
    RULES.add("theirs", free_energy_rule)
    assert (run_policy(arrays, "odar:rule=theirs").winner == run_policy(arrays, "odar").winner).all()


def test_another_estimator_changes_the_paths(arrays):
    usual = run_policy(arrays, "odar").path
    for spec in ("odar:estimator=length", "odar:estimator=constant"):
        assert (run_policy(arrays, spec).path != usual).any(), spec


def test_dispatch_off_changes_nothing_with_one_model_per_role(arrays):
    off = run_policy(arrays, "odar:dispatch=off")
    assert (off.score == run_policy(arrays, "odar").score).all()
    assert "changes nothing" in off.note


def test_suites_contain_only_policies_that_the_panel_supports(tmp_path):
    small = load_arrays(synthetic_panel(tmp_path, 30, samples=1))
    assert "best-of-n:n=9" not in expand_suites(small, ["all"])
    assert "ensemble" not in suites(small)["baselines"]
    with pytest.raises(InputError, match="2 slow samples per item are needed"):
        run_policy(small, "ensemble")
    with pytest.raises(
        InputError, match="n = 5, but the recording holds 1 slow samples per item; odar eval collect … --samples 5"
    ):
        run_policy(small, "odar:n=5")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("odra", UnknownName, "unknown policy 'odra'; did you mean 'odar'"),
        ("odar:tau3=1", UnknownName, "unknown option of odar 'tau3'"),
        ("odar:tau1", InputError, "'tau1' is not option=value"),
        ("odar:tau1=x", InputError, "tau1 = 'x' is not a number"),
        ("odar:tau1=0.9,tau2=0.1", InputError, "tau1 = 0.9 is above tau2 = 0.1"),
        ("odar:dispatch=maybe", InputError, "is not on or off"),
        ("odar:mode=hindsight", UnknownName, "unknown mode"),
        ("odar:rule=nonsense", UnknownName, "unknown fusion rule"),
        ("odar:n=-1", InputError, "n = -1 must be at least 1"),
        ("odar:first_wave=0", InputError, "first_wave = 0 must be at least 1"),
        ("odar:tau1=nan", InputError, "tau1 = nan must be at least 0"),
        ("odar:lambda=-0.5", InputError, "lambda = -0.5 must be at least 0"),
        ("odar:stop=nan", InputError, "stop = nan must be at least 0"),
        ("best-of-n:n=99", InputError, "holds 9 slow samples"),
        ("best-of-n:n=0", InputError, "at least 1 is needed"),
        ("best-of-n:n=x", InputError, "n = 'x' is not a number"),
        ("best-of-n:k=3", UnknownName, "unknown option of best-of-n 'k'"),
    ],
)
def test_an_invalid_policy_is_named(arrays, spec, error, message):
    with pytest.raises(error, match=message):
        run_policy(arrays, spec)


def test_a_setting_comes_from_the_panel_and_can_be_changed(arrays):
    setting = Setting.from_header(arrays.header)
    assert (setting.n, setting.beta, setting.mode) == (5, 0.25, "posterior")
    changed = setting.with_options({"lambda": "0.5", "stop": "none", "beta": "inf"})
    assert (changed.lam, changed.stop, changed.beta) == (0.5, None, np.inf)
