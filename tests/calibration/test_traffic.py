from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.calibration.setup import Thresholds
from odar.calibration.traffic import _free_energy, fast_is_wrong, same_shares
from support.population import evidence, setup


def document(winner, *answers, content=True, steps=("answer", "solve", "solve")):
    candidates = [
        {"step": step, **({"answer": answer} if content else {})}
        for step, answer in zip(steps, answers, strict=False)
    ]
    return {"candidates": candidates, "verdict": {"winner": winner}, "content": content}


@pytest.mark.parametrize(
    ("trace", "correct", "wrong"),
    [
        (document(0, "4", "5"), True, False),  # it was chosen
        (document(0, "4", "5"), False, True),
        (document(1, "4", "4.0"), True, False),  # it is the same as the chosen one
        (document(1, "4", "4.0"), False, True),
        (document(1, "4", "5"), True, True),  # another one is right
        (document(1, "4", "5"), False, None),  # both may be wrong
        (document(0, "4", "5", content=False), False, True),
        (document(1, "4", "4", content=False), True, None),  # nobody knows what they said
        (document(0, "4", steps=("solve",)), True, None),  # the fast agent was down
    ],
)
def test_what_feedback_on_the_chosen_answer_says_of_the_fast_one(trace, correct, wrong):
    assert fast_is_wrong(trace, correct) is wrong


@given(seed=st.integers(0, 1000), tau1=st.floats(0, 1), tau2=st.floats(0, 1))
def test_as_many_take_each_path_as_before(seed, tau1, tau2):
    fast = evidence(size=30, seed=seed).fast
    before = setup(posterior=None, thresholds=Thresholds(min(tau1, tau2), max(tau1, tau2)))
    moved = replace(fast, prior=np.round(fast.prior[::-1] ** 3, 5))

    class After:
        def difficulty(self, _):
            return moved.prior

    found = same_shares(before, After(), fast)
    counts = [
        np.bincount(t.paths(d), minlength=3) for t, d in ((before.thresholds, fast.prior), (found, moved.prior))
    ]
    ties = 30 - len(np.unique(moved.prior))
    assert abs(counts[0] - counts[1]).max() <= ties
    assert found.tau1 <= found.tau2


def test_where_nothing_moved_thresholds_stay():
    fast = evidence(size=30).fast
    now = setup(posterior=None)
    assert same_shares(now, now, fast) == now.thresholds


def test_a_surrogates_energies_are_not_taken_for_the_models_own():
    own = {"energy": {"energy": 0.2, "varentropy": 0.1, "scorer": ""}}
    assert _free_energy(own, 0.1) == pytest.approx(0.21)
    assert math.isnan(_free_energy({"energy": {**own["energy"], "scorer": "judge"}}, 0.1))
    assert math.isnan(_free_energy({"energy": None}, 0.1))
