from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.fusion_rules import RULES, Ballot, free_energy_rule, majority


def ballot(free_energy, groups, beta=np.inf):
    size = len(free_energy)
    steady = np.linspace(-1, -0.5, size)
    confidence = {"mean_logprob": steady, "mean_probability": np.exp(steady), "lowest_window": steady}
    return Ballot(np.array(free_energy, dtype=float), np.array(groups), np.ones(size), beta, **confidence)


def winner(keys) -> int:
    return max(range(len(keys[0])), key=lambda i: tuple(key[i] for key in keys))


energies = st.lists(st.floats(-4, 4, allow_nan=False).map(lambda x: round(x, 3)), min_size=1, max_size=7)


@st.composite
def ballots(draw, beta=np.inf):
    values = draw(energies)
    groups = draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    return ballot(values, groups, beta)


@given(ballots())
def test_infinite_beta_is_the_papers_argmin(b):
    assert b.free_energy[winner(free_energy_rule(b))] == b.free_energy.min()


@given(ballots(beta=0.0))
def test_beta_zero_is_majority_voting(b):
    assert winner(free_energy_rule(b)) == winner(majority(b))
    assert free_energy_rule(b)[0] == pytest.approx(majority(b)[0])


@given(ballots(beta=0.25))
def test_the_lowest_energy_member_represents_the_winning_answer(b):
    chosen = winner(free_energy_rule(b))
    members = b.groups == b.groups[chosen]
    assert b.free_energy[chosen] == b.free_energy[members].min()


def test_many_good_answers_beat_one_excellent_one_at_small_beta():
    mixed = ballot([-1.2, -0.8, -0.7, -0.9], [0, 1, 1, 1], beta=0.25)
    assert winner(free_energy_rule(mixed)) == 3
    assert winner(free_energy_rule(ballot([-1.2, -0.8, -0.7, -0.9], [0, 1, 1, 1]))) == 0


@pytest.mark.parametrize("name", sorted(RULES.names()))
@given(data=st.data())
def test_every_rule_gives_shares_and_ignores_the_order(name, data):
    b = data.draw(ballots(beta=0.25))
    keys = RULES[name](b)
    assert all(len(key) == len(b.groups) and np.isfinite(key).all() for key in keys)
    assert (keys[0] >= 0).all()
    assert (keys[0] <= 1 + 1e-12).all()
    order = np.array(data.draw(st.permutations(range(len(b.groups)))))
    names = ("free_energy", "groups", "skills", "mean_logprob", "mean_probability", "lowest_window")
    shuffled = replace(b, **{name: getattr(b, name)[order] for name in names})
    for key, moved in zip(keys, RULES[name](shuffled), strict=True):
        assert moved == pytest.approx(key[order], abs=1e-15)


def test_majority_breaks_ties_by_free_energy():
    assert winner(majority(ballot([0.3, 0.1, 0.2, 0.4], [0, 1, 0, 1]))) == 1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(-4, 4), st.floats(0.1, 5)), min_size=2, max_size=6),
    st.floats(0.05, 4),
)
def test_an_answers_weight_is_that_of_its_macrostate(rows, beta):
    """exp(−β·F(a)) = Σ w_m·exp(−β·F̃(y)), written out (SPEC 5.10): a lower F̃ weighs more."""
    groups, energies, skills = (np.array(column) for column in zip(*rows, strict=True))
    ballot = Ballot(energies, groups, skills, beta)
    sums = {a: sum(w * math.exp(-beta * f) for g, f, w in rows if g == a) for a in set(groups.tolist())}
    expected = [sums[g] / sum(sums.values()) for g in groups.tolist()]
    assert free_energy_rule(ballot)[0] == pytest.approx(expected)
