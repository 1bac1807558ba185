from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.calibration.fusion_fit import cross_fit, fit_fusion, skill_weights, standardize
from odar.calibration.votes import Votes, accuracy, fuse, majority, oracle
from odar.fusion.rules import Ballot, free_energy_rule
from support.votes import voters, votes


@given(votes(), st.sampled_from([0.0, 0.25, 1.0, np.inf]), st.data())
def test_many_at_once_is_one_at_a_time(v, beta, data):
    columns = v.groups.shape[1]
    skills = np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=columns, max_size=columns)))
    winners = fuse(v, beta, skills)
    for i, winner in enumerate(winners):
        ballot = Ballot(v.energy[i], *[np.zeros(columns)] * 3, groups=v.groups[i], skills=skills, beta=beta)
        keys = free_energy_rule(ballot)
        best = max(tuple(np.round(key[j], 9) for key in keys) for j in range(columns))
        assert tuple(np.round(key[winner], 9) for key in keys) == pytest.approx(best)


def test_absent_candidates_never_win():
    v = Votes(
        np.array([[np.nan, -1.0], [np.nan, 5.0]]), np.array([[-1, 0], [-1, 0]]), np.array([[False, True]] * 2)
    )
    for beta in (0.0, 0.25, np.inf):
        assert fuse(v, beta, np.ones(2)).tolist() == [1, 1]


def test_the_fit_follows_the_better_model_where_voting_would_not():
    v = voters(1)
    result = accuracy(v, cross_fit(v, seed=0).winners)
    assert result >= accuracy(v, majority(v)) - 0.005
    assert result >= v.correct.mean(axis=0).max() - 0.005
    assert result <= oracle(v)


def test_equal_models_get_equal_weights_and_beat_a_single_one():
    v = voters(2, skills=(0.6,) * 5)
    fit = fit_fusion(v)
    assert fit.skills.min() > 0.5 or fit.gamma > 1
    assert accuracy(v, cross_fit(v, seed=0).winners) > v.correct.mean(axis=0).max() + 0.05


def test_skill_weights_order_as_accuracy_does():
    weights = skill_weights(voters(3), gamma=1.0)
    assert weights[0] == 1.0
    assert weights[0] > weights[1]
    assert skill_weights(voters(3), gamma=0.0).tolist() == [1.0, 1.0, 1.0]


def test_energies_are_standardized_by_the_questions_given():
    energy = np.array([[1.0], [3.0], [100.0]])
    assert standardize(energy, np.array([True, True, False])).ravel().tolist() == [-1.0, 1.0, 98.0]
    silent = standardize(np.full((3, 1), np.nan), slice(None))
    assert np.isnan(silent).all()


def test_a_skill_may_be_that_of_each_candidate():
    v = Votes(np.zeros((2, 2)), np.array([[0, 1], [0, 1]]), np.array([[True, False]] * 2))
    assert fuse(v, 0.25, np.array([[1.0, 2.0], [2.0, 1.0]])).tolist() == [1, 0]
    assert fuse(v, 0.25, np.array([1.0, 2.0])).tolist() == [1, 1]
