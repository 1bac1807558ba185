"""Votes for tests of fusion: arbitrary ones, and some from a known distribution."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from odar.policy.rules import Votes


@st.composite
def votes(draw):
    """A few questions with a few candidates each; group 0 is right."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    energy = draw(st.lists(st.integers(-30, 30), min_size=rows * columns, max_size=rows * columns))
    groups = draw(st.lists(st.integers(0, 3), min_size=rows * columns, max_size=rows * columns))
    shape = (rows, columns)
    groups = np.array(groups).reshape(shape)
    return Votes(np.array(energy).reshape(shape) / 10, groups, groups == 0)


def voters(seed, n=2000, skills=(0.85, 0.6, 0.6), options=5):
    """Return votes of sources with known accuracy and slightly informative energies."""
    rng = np.random.default_rng(seed)
    correct = rng.random((n, len(skills))) < np.array(skills)
    wrong = rng.integers(1, options, (n, len(skills)))
    energy = rng.normal(np.where(correct, -0.3, 0.3), 1.0)
    return Votes(energy, np.where(correct, 0, wrong), correct)


def accuracy(votes, winners):
    """Return the share of questions whose winner is right."""
    return votes.correct[np.arange(len(votes)), winners].mean()
