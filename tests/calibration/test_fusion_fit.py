from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from odar.calibration.fusion_fit import BETAS, FusionFit, fit_fusion, log_likelihood
from odar.policy.rules import Votes, fuse, log_masses
from support.votes import accuracy, voters, votes

BETA = st.sampled_from([0.0, 0.25, 1.0, 4.0, np.inf])


def skills_of(v, data):
    count = v.groups.shape[1]
    return np.array(data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=count, max_size=count)))


@given(votes(), BETA, st.data())
def test_the_chosen_answer_has_the_largest_mass(v, beta, data):
    skills = skills_of(v, data)
    masses = log_masses(v.ballot(beta, skills))
    rows = np.arange(len(v))
    assert masses[rows, fuse(v, beta, skills)] == pytest.approx(masses.max(axis=1))


@given(votes(), BETA)
def test_equal_answers_have_the_same_mass(v, beta):
    masses = log_masses(v.ballot(beta, np.ones(v.groups.shape[1])))
    for row, groups in zip(masses, v.groups, strict=True):
        for number in set(groups.tolist()):
            assert np.ptp(row[groups == number]) == pytest.approx(0, abs=1e-9)


@given(votes(), st.sampled_from([0.25, 1.0, 4.0]))
def test_the_mass_is_that_of_the_macrostate(v, beta):
    """−β·F(a) with F(a) = −(1/β)·log Σ exp(−β·F̃), written out (SPEC 5.10)."""
    masses = log_masses(v.ballot(beta, np.ones(v.groups.shape[1])))
    for i in range(len(v)):
        for j, number in enumerate(v.groups[i]):
            members = v.energy[i][v.groups[i] == number]
            free_energy = -np.log(np.exp(-beta * members).sum()) / beta
            assert masses[i, j] == pytest.approx(-beta * free_energy)


@given(votes(), BETA, st.data())
def test_log_likelihoods_are_bounded(v, beta, data):
    found = log_likelihood(v, beta, skills_of(v, data))
    assert (found <= 1e-12).all()
    assert (found >= np.log(1e-6) - 1e-9).all()
    assert (found[~v.correct.any(axis=1)] == 0).all()


@given(votes(), BETA, st.permutations(range(5)))
def test_the_order_of_the_candidates_does_not_matter(v, beta, order):
    order = [i for i in order if i < v.groups.shape[1]]
    turned = Votes(v.energy[:, order], v.groups[:, order], v.correct[:, order])
    ones = np.ones(len(order))
    assert log_likelihood(turned, beta, ones) == pytest.approx(log_likelihood(v, beta, ones), abs=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0, np.inf])
def test_the_sharpness_maximises_the_likelihood(beta):
    """Compare with a numerical search over the whole line."""
    v = voters(5, n=400)
    skills = np.array([1.0, 0.6, 0.6])
    masses, total = log_masses(v.ballot(beta, skills)), log_likelihood(v, beta, skills).sum()
    sizes = (v.groups[:, :, None] == v.groups[:, None, :]).sum(axis=2)
    kept = v.correct.any(axis=1)

    def loss(log_kappa):
        weights = np.exp(np.exp(log_kappa) * (masses - masses.max(axis=1, keepdims=True))) / sizes
        share = (weights * v.correct).sum(axis=1)[kept] / weights.sum(axis=1)[kept]
        return -np.log(share).sum()

    best = minimize_scalar(loss, bounds=(-4, 4), method="bounded")
    assert total == pytest.approx(-best.fun, abs=0.01)


def test_informative_energies_raise_the_likelihood():
    v = voters(6, n=600, skills=(0.5,) * 5)
    ones, rng = np.ones(5), np.random.default_rng(0)
    deaf = Votes(rng.permuted(v.energy, axis=1), v.groups, v.correct)
    assert log_likelihood(v, 0.5, ones).sum() > log_likelihood(v, 0.0, ones).sum() + 1
    assert log_likelihood(deaf, 2.0, ones).sum() < log_likelihood(deaf, 0.0, ones).sum()


def test_a_source_without_skill_has_no_mass():
    v = Votes(np.zeros((1, 2)), np.array([[0, 1]]), np.array([[True, False]]))
    assert log_masses(v.ballot(1.0, np.array([0.0, 1.0]))).tolist() == [[-np.inf, 0.0]]
    assert np.isfinite(log_likelihood(v, 1.0, np.array([0.0, 1.0]))).all()


def test_absent_candidates_have_no_mass_and_unknown_energies_are_average():
    v = Votes(np.array([[np.nan, 0.0, np.nan]]), np.array([[0, 1, -1]]), np.array([[True, False, False]]))
    assert log_masses(v.ballot(2.0, np.ones(3))).tolist() == [[0.0, 0.0, -np.inf]]
    assert log_likelihood(v, 2.0, np.ones(3)).tolist() == pytest.approx([np.log(0.5)])


def conditional(seed, n, beta, columns=5):
    """Return questions whose correct answers are drawn from the model that is fitted."""
    rng = np.random.default_rng(seed)
    energy, groups = rng.normal(0, 1, (n, columns)), rng.integers(0, 4, (n, columns))
    mass = np.where(groups[:, :, None] == np.arange(4), np.exp(-beta * energy)[:, :, None], 0).sum(axis=1)
    cumulated = np.cumsum(mass / mass.sum(axis=1, keepdims=True), axis=1)
    right = (rng.random((n, 1)) > cumulated).sum(axis=1)
    return Votes(energy, groups, groups == right[:, None], (0,) * columns)


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
def test_the_fit_recovers_the_generating_beta(beta):
    fitted = fit_fusion(conditional(7, 4000, beta))
    assert abs(BETAS.index(fitted.beta) - BETAS.index(beta)) <= 1
    assert fitted.gamma == 0.0 or np.ptp(fitted.skills) == 0


def test_the_current_rule_is_kept_without_a_significant_gain():
    v = conditional(8, 60, beta=0.25)
    today = FusionFit(0.5, 0.0, np.ones(5))
    assert fit_fusion(v, today) is today


def test_the_current_rule_is_replaced_by_a_better_one():
    v = conditional(9, 800, beta=2.0)
    today = FusionFit(0.0, 0.0, np.ones(5))
    fitted = fit_fusion(v, today)
    assert fitted.beta >= 1.0
    assert accuracy(v, fuse(v, fitted.beta, fitted.skills)) >= accuracy(v, fuse(v, 0.0, np.ones(5)))


def test_uninformative_questions_keep_the_current_rule():
    v = Votes(np.zeros((3, 2)), np.zeros((3, 2), dtype=int), np.ones((3, 2), dtype=bool))
    today = FusionFit(0.25, 0.0, np.ones(2))
    assert fit_fusion(v, today) is today
    assert fit_fusion(v).beta == 0.0


def test_a_more_likely_but_less_accurate_rule_is_rejected():
    """Energies confirm the vote on ninety questions, overturn a right vote on ten and a wrong one on five."""
    groups = np.tile([0, 0, 1], (105, 1))
    energy = np.tile([0.0, 0.0, 20.0], (105, 1))
    energy[90:, 2] = -8.0
    energy[100:, 2] = -6.0
    v = Votes(energy, groups, groups == np.repeat([0, 1], [100, 5])[:, None], (0, 0, 0))
    assert log_likelihood(v, 0.1, np.ones(3)).sum() > log_likelihood(v, 0.0, np.ones(3)).sum() + 1
    assert fit_fusion(v).beta == 0.0
