"""The best choice on held-out items is installed, and it is never worse than the best fixed one."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from odar.errors import InputError
from odar.lab.calibration.compare import (
    Goal,
    all_settings,
    best_choice,
    choice_name,
    chosen_calibration,
    compare,
    walk_all,
)
from odar.lab.calibration.fit import without_prompts
from odar.lab.calibration.guarantee import fit_and_certify
from odar.lab.replay.outcomes import Outcomes
from odar.lab.replay.policies import run_policy
from odar.types import SLOW
from support.population import population, settings, table


@pytest.fixture(autouse=True)
def few_dials(monkeypatch):
    """Compare few dials: the tables of values take most of the time."""
    for name in ("compare", "guarantee"):
        monkeypatch.setattr(f"odar.lab.calibration.{name}.DIALS", ("quality", "balanced", "economy"))


def goal(items, dial="balanced", **limits):
    return Goal(dial, items.reference_usd, **limits)


def choice(policy, score, cost, dial=""):
    """A choice of 400 items: its score is an array, or the share of right answers."""
    settings = {"policy": policy, "routing.dial": dial} if dial else {"policy": policy}
    right = (np.random.default_rng(0).random(400) < score).astype(float) if np.isscalar(score) else score
    costs, ones, path = np.full(400, cost), np.ones(400), np.zeros(400, dtype=int)
    name = choice_name(settings)
    return Outcomes(right, costs, ones, ones, ones, path, path, right, settings=settings, name=name)


@functools.cache
def three_agents():
    return table(population(200, samples=3))


@functools.cache
def comparison():
    return compare(three_agents(), goal(three_agents()))


def test_a_cascade_of_two_cheap_families_and_slow_beats_every_fixed_choice():
    items = three_agents()
    found = comparison()
    names = {each.name for each in found.choices}
    assert {"fast", "second", "slow", "slow*3", "cascade balanced", "cascade*3 economy"} <= names
    assert found.best.is_cascade
    worth = goal(items).worth
    assert worth(found.best).mean() > max(worth(each).mean() for each in found.choices if not each.is_cascade)
    enough = [each for each in found.choices if each.is_cascade and each.score.mean() > found.slow.score.mean()]
    assert min(map(found.cost, enough)) < 0.75
    assert found.cost(found.slow) == 1.0 and found.gain(found.slow).value == 0.0
    text = found.recommendation("right")
    assert text.startswith("Use the cascade at dial ") and "of its cost" in text


def test_the_baseline_is_the_mean_over_the_slow_samples():
    assert np.allclose(comparison().slow.score, three_agents().scores(SLOW))


def test_dials_are_compared_also_if_the_settings_have_a_target():
    items = three_agents()
    tried = [{"policy": "cascade", "routing.dial": dial} for dial in ("1", "50")]
    meeting = items.replaced(settings=settings(routing__target_calls=2.0))
    before, after = ([each.calls.mean() for each in walk_all(told, tried)] for told in (items, meeting))
    assert before == after and before[0] > before[1] + 0.1
    assert run_policy(meeting, "cascade:dial=1").calls.mean() > 2.2  # the target is for `odar` alone
    assert run_policy(meeting, "odar").calls.mean() == pytest.approx(2.0, abs=0.1)


def test_the_fixed_choice_is_installed_where_no_cascade_beats_it():
    """Fast is as good as slow and cheaper: asking anyone else is a waste."""
    items = table(population(60, fast=0.8, slow=0.8, samples=1))
    found = compare(items, goal(items))
    worth = {each.name: float(goal(items).worth(each).mean()) for each in found.choices}
    assert worth[found.best.name] >= max(worth["fast"], worth["second"], worth["slow"])
    if not found.best.is_cascade:
        assert found.recommendation("right").startswith(f"No cascade pays here, use {found.best.name}")


def test_a_cascade_that_does_not_beat_the_best_fixed_choice_is_not_chosen():
    slow = choice("slow", 0.8, 1.0)
    same = choice("cascade", slow.score, 1.0, "balanced")
    worse = choice("cascade", 0.6, 1.0, "economy")
    wanted = Goal("balanced", reference_usd=1.0)
    assert best_choice([slow, same, worse], wanted) is slow
    better = choice("cascade", np.maximum(slow.score, np.arange(400) % 10 == 0), 1.0, "balanced")
    assert best_choice([slow, better, worse], wanted) is better


def test_the_users_dial_is_kept_unless_another_is_clearly_better():
    rng = np.random.default_rng(1)
    own = choice("cascade", 0.8, 1.0, "balanced")
    noisy = np.where(rng.random(400) < 0.02, 1 - own.score, own.score)
    noisy[:2] = 1.0
    close = choice("cascade", noisy, 1.0, "quality")
    wanted = Goal("balanced", reference_usd=1.0)
    assert best_choice([own, close], wanted) is own
    assert best_choice([own, choice("cascade", 0.95, 1.0, "quality")], wanted).name == "cascade quality"


def test_limits_are_kept():
    items = three_agents()
    choices = comparison().choices
    limit = 0.95 * float(comparison().slow.cost_usd.mean())
    found = best_choice(choices, goal(items, max_cost_usd=limit))
    assert found.cost_usd.mean() <= limit
    assert found.score.mean() > 0.75
    assert best_choice(choices, goal(items, max_calls=1.0)).calls.mean() == 1.0
    with pytest.raises(InputError, match=r"no choice keeps to the limits; the cheapest is .* with 1\.\d\d calls"):
        best_choice(choices, goal(items, max_cost_usd=1e-9))


def test_thresholds_are_chosen_only_for_the_papers_policy():
    items = table(population(40), policy="paper", prompts="paper")
    tried = all_settings(items, "balanced")
    assert sum(each["policy"] == "paper" for each in tried) == 9
    found = compare(items, goal(items))
    assert found.best.settings["policy"] == "paper" and {"routing.tau1", "routing.tau2"} <= {*found.best.settings}
    assert not any("routing.tau1" in each for each in all_settings(three_agents(), "balanced"))


def test_a_recording_without_enough_samples_has_fewer_choices():
    tried = all_settings(table(population(40, samples=2)), "7")
    assert [each["policy"] for each in tried if each["policy"] != "cascade"] == ["fast", "second", "slow"]
    assert {"routing.dial": "7", "policy": "cascade"} in tried


def test_the_best_choice_is_written_with_what_was_fitted():
    items = three_agents()
    found = comparison()
    calibration = chosen_calibration(items, found)
    assert calibration.settings == found.best.settings
    assert (calibration.belief is not None) == found.fits_belief
    kept = without_prompts(calibration)
    assert all(each.count == 0 and each.quantiles is None and each.accuracy for each in kept.statistics.values())


def test_a_guarantee_is_tested_on_the_other_half():
    items = table(population(300, samples=2))
    calibration, certificate, best, reference = fit_and_certify(items, goal(items), at_most_worse=0.1)
    assert certificate.test_items == 150 == len(best.score)
    assert best.cost_usd.mean() < reference.cost_usd.mean()
    assert certificate.points == best.points and certificate.loss <= 0.1
    assert max(each.count for each in calibration.statistics.values()) == 2 * 150
    assert best.settings["routing.stages"] == ["fast", "second", "slow"]
    with pytest.raises(InputError, match="too few answers"):
        fit_and_certify(items, goal(items), at_most_worse=0.1, against="slow*9")


def test_settings_of_stages_are_kept():
    items = table(population(40), routing__stages=["fast+second", "slow"])
    tried = [each for each in all_settings(items, "balanced") if each["policy"] == "cascade"]
    assert len(tried) == 3 and not any("routing.stages" in each for each in tried)
    assert settings().routing.stages == ()
