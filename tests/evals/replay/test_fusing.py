"""Who wins, on ballots small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import load_tape
from odar.evals.replay.walk import choose
from odar.policy.fusion import SOLVE
from support.panels import handmade_panel

ANSWERS = ["9", "9", "4", "4", "5", "6", "7"]
"""A pair of fours, then singles; column 4 is the surest."""
ENERGIES = [0.9, 0.9, 0.5, 0.6, 0.1, 0.7, 0.8]


def tape_of(folder, answers=ANSWERS, energies=ENERGIES):
    return load_tape(handmade_panel(folder, [answers], [energies]))


def winner(tape, present=None, **options):
    setting = Setting.of(tape.header).changed({name: str(value) for name, value in options.items()})
    return int(choose(tape, setting, tape.columns(*(present or range(SOLVE, SOLVE + 5))))[0])


@pytest.mark.parametrize(
    ("options", "column"),
    [
        ({"rule": "fep", "beta": "inf"}, 4),
        ({"rule": "fep", "beta": 0}, 2),  # the larger group, and of it the surer answer
        ({"rule": "majority"}, 2),
        ({"rule": "max_confidence"}, 4),
        ({"rule": "mean_logprob"}, 4),
        ({"rule": "none"}, 2),
    ],
)
def test_every_rule_on_one_ballot(tmp_path, options, column):
    assert winner(tape_of(tmp_path), **options) == column


def test_between_the_extremes_a_pair_beats_a_surer_single_up_to_a_point(tmp_path):
    tape = tape_of(tmp_path)
    # exp(−β·0.5) + exp(−β·0.6) against exp(−β·0.1): equal near β = 1.55
    assert winner(tape, rule="fep", beta=1.4) == 2
    assert winner(tape, rule="fep", beta=1.7) == 4


def test_the_fast_answer_wins_without_fusion_only_where_it_is_alone(tmp_path):
    tape = tape_of(tmp_path)
    assert winner(tape, [0], rule="none") == 0
    assert winner(tape, [0, 1], rule="none") == 1
    assert winner(tape, [0, *range(SOLVE, SOLVE + 5)], rule="none") == 2


def test_with_too_few_logprobs_the_slow_answer_most_agree_on_wins(tmp_path):
    """SPEC 5.6: more than a fifth of the tokens are silent."""
    tape = tape_of(tmp_path, ["5", "9", "4", "4", "5", "6", "7"])
    present = [0, *range(SOLVE, SOLVE + 5)]
    assert winner(tape, present, rule="fep", beta="inf") == 4
    tape.answers.missing[:, SOLVE : SOLVE + 2] = tape.answers.total[:, SOLVE : SOLVE + 2]
    tape.answers.energy[:, SOLVE : SOLVE + 2] = np.nan
    found = winner(tape, present, rule="fep", beta="inf")
    assert tape.answers.score[0, found] == 1  # the fours; the fast five has no vote
    tape.answers.missing[:, SOLVE + 1] = 0
    tape.answers.energy[:, SOLVE + 1] = 0.6
    assert winner(tape, present, rule="fep", beta="inf") == 4  # one silent answer in six is still little


def test_exact_ties_are_broken_alike_whatever_the_order(tmp_path):
    one = tape_of(tmp_path, ["9", "9", "5", "4", "6", "7", "8"], [0.5] * 7)
    texts = one.answers.order[0].tolist()
    assert sorted(texts) == list(range(7))
    first = winner(one, rule="fep", beta="inf")
    assert first == next(column for column in texts if column >= SOLVE)
