from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.stopping import Stopping, probability_of_lead

votes = st.lists(st.integers(0, 3), max_size=9)


def settled(confidence: float, groups: list[int], remaining: int) -> bool:
    return Stopping(confidence).is_settled(np.equal.outer(groups, groups).astype(float), remaining)


@pytest.mark.parametrize(
    ("groups", "remaining", "confidence", "expected"),
    [
        ([], 5, 0.8, False),
        ([0], 4, 0.8, False),  # one vote: 0.75
        ([0, 0], 3, 0.8, True),  # two of two: 0.875
        ([0, 0], 3, 0.9, False),
        ([0, 1], 3, 0.8, False),
        ([0, 0, 0, 1], 2, 0.8, True),
        ([0, 0, 0], 2, 1.0, True),  # two more cannot overtake three
        ([0, 0], 2, 1.0, False),  # but they can tie two
        ([0, 0, 1], 0, 1.0, True),
    ],
)
def test_hand_checked_cases(groups, remaining, confidence, expected):
    assert settled(confidence, groups, remaining) is expected


@given(st.integers(0, 12), st.integers(0, 12))
def test_the_bound_is_the_beta_tail(leader, runner_up):
    """Compare with numerical integration of the Beta density over (1/2, 1)."""
    x = np.linspace(0, 1, 200_001)[1:-1]
    density = x**leader * (1 - x) ** runner_up
    assert probability_of_lead(leader, runner_up) == pytest.approx(density[x > 0.5].sum() / density.sum(), abs=1e-4)


@given(votes, st.integers(0, 5), st.permutations(range(4)))
def test_names_and_order_of_answers_do_not_matter(groups, remaining, names):
    renamed = [names[g] for g in reversed(groups)]
    assert settled(0.8, groups, remaining) == settled(0.8, renamed, remaining)


@given(votes, st.integers(0, 4), st.data())
def test_with_full_confidence_nothing_can_change_a_decided_vote(groups, remaining, data):
    if groups and settled(1.0, groups, remaining):
        rest = data.draw(st.lists(st.integers(0, 3), min_size=remaining, max_size=remaining))
        leader = max(set(groups), key=groups.count)
        final = groups + rest
        assert all(final.count(leader) > final.count(other) for other in set(final) - {leader})


@given(votes, st.integers(0, 5), st.floats(0.5, 1), st.floats(0.5, 1))
def test_more_confidence_never_stops_earlier(groups, remaining, a, b):
    low, high = sorted((a, b))
    if settled(high, groups, remaining):
        assert settled(low, groups, remaining)


def alike(degree: float, count: int = 3) -> np.ndarray:
    return np.full((count, count), degree) + (1 - degree) * np.eye(count)


def test_agreeing_free_text_settles_and_differing_free_text_does_not():
    assert Stopping(0.8).is_settled(alike(0.8), remaining=2)
    assert not Stopping(0.8).is_settled(alike(0.3), remaining=2)
    assert not Stopping(0.8).is_settled(alike(0.0), remaining=2)


def test_two_opposing_groups_of_free_text_do_not_settle():
    camps = np.array([[1, 0.9, 0, 0], [0.9, 1, 0, 0], [0, 0, 1, 0.9], [0, 0, 0.9, 1]])
    assert not Stopping(0.8).is_settled(camps, remaining=1)
    assert Stopping(0.8).is_settled(np.pad(alike(0.9, 4), (0, 1)) + np.diag([0, 0, 0, 0, 1]), remaining=1)


similarities = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.floats(0, 1), min_size=n * n, max_size=n * n).map(
        lambda values: (
            np.maximum(np.triu(each := np.array(values).reshape(n, n), 1), 0) + np.triu(each, 1).T + np.eye(n)
        )
    )
)


@given(similarities, st.integers(0, 5), st.data())
def test_the_order_of_free_text_does_not_matter(s, remaining, data):
    order = data.draw(st.permutations(range(len(s))))
    assert Stopping(0.8).is_settled(s, remaining) == Stopping(0.8).is_settled(s[np.ix_(order, order)], remaining)


@given(similarities, st.integers(0, 4), st.data())
def test_with_full_confidence_no_other_free_text_overtakes_the_leader(s, remaining, data):
    """No remaining samples can move an existing answer that differs from the leader ahead of it."""
    if Stopping(1.0).is_settled(s, remaining):
        added = data.draw(
            st.lists(
                st.lists(st.floats(0, 1), min_size=len(s), max_size=len(s)), min_size=remaining, max_size=remaining
            )
        )
        support = s.sum(axis=1)
        final = support + np.array(added).reshape(remaining, len(s)).sum(axis=0)
        leader = int((support - ((1 - s) * support[None, :]).max(axis=1)).argmax())
        unlike = s[leader] == 0
        assert (final[unlike] < final[leader]).all()
