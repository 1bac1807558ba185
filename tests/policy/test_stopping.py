from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.stopping import Stopping, lead_is_real

votes = st.lists(st.integers(0, 3), max_size=9)


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
    assert Stopping(confidence).settled(groups, remaining) is expected


@given(st.integers(0, 12), st.integers(0, 12))
def test_the_bound_is_the_beta_tail(leader, runner_up):
    """Against numerical integration of the Beta density over (1/2, 1)."""
    x = np.linspace(0, 1, 200_001)[1:-1]
    density = x**leader * (1 - x) ** runner_up
    assert lead_is_real(leader, runner_up) == pytest.approx(density[x > 0.5].sum() / density.sum(), abs=1e-4)


@given(votes, st.integers(0, 5), st.permutations(range(4)))
def test_names_and_order_of_answers_do_not_matter(groups, remaining, names):
    renamed = [names[g] for g in reversed(groups)]
    assert Stopping(0.8).settled(groups, remaining) == Stopping(0.8).settled(renamed, remaining)


@given(votes, st.integers(0, 4), st.data())
def test_with_full_confidence_nothing_can_change_a_decided_vote(groups, remaining, data):
    if groups and Stopping(1.0).settled(groups, remaining):
        rest = data.draw(st.lists(st.integers(0, 3), min_size=remaining, max_size=remaining))
        leader = max(set(groups), key=groups.count)
        final = groups + rest
        assert all(final.count(leader) > final.count(other) for other in set(final) - {leader})


@given(votes, st.integers(0, 5), st.floats(0.5, 1), st.floats(0.5, 1))
def test_more_confidence_never_stops_earlier(groups, remaining, a, b):
    low, high = sorted((a, b))
    if Stopping(high).settled(groups, remaining):
        assert Stopping(low).settled(groups, remaining)
