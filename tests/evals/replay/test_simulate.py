"""Paths and prices of items small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policy
from odar.evals.replay.simulate import NO_PATH, Setting, candidates_of, fusion_of
from odar.policy.fusion import SOLVE
from odar.policy.path import HARD, MEDIUM, SIMPLE
from support.panels import handmade_panel

FLAT = [0.2] * 7
PRIOR = "odar:mode=prior,stop=none"


def arrays_of(folder, *answers, energies=None, **more):
    return load_arrays(handmade_panel(folder, answers, energies or [FLAT] * len(answers), **more))


def test_difficulty_chooses_the_path_and_its_cost(tmp_path):
    row = ["4", "4", "4", "4", "4", "4", "4"]
    arrays = arrays_of(tmp_path, row, row, row, row, difficulty=[0.1, 0.3, 0.69, 0.7])
    found = run_policy(arrays, PRIOR)
    assert found.path.tolist() == [SIMPLE, MEDIUM, MEDIUM, HARD]
    assert found.calls.tolist() == [1, 2, 2, 6]
    # fast 1 + .1; with a verification 10 + 2 more; with five samples of one request 10 + 5 · 2 more
    assert found.cost.tolist() == pytest.approx([1.1, 13.1, 13.1, 21.1])
    assert found.tokens.tolist() == [7, 14, 14, 42]
    # fast 1 s, then the verification 2 s; samples 3 s, beside the fast answer
    assert found.seconds.tolist() == [1, 3, 3, 3]
    assert found.mix == (0.25, 0.5, 0.25)


def test_separate_samples_pay_for_the_prompt_each_time(tmp_path):
    arrays = arrays_of(tmp_path, ["4"] * 7, difficulty=[0.9], n=False)
    assert run_policy(arrays, PRIOR).cost.tolist() == pytest.approx([1.1 + 5 * 12])


def test_medium_uses_the_verification_and_hard_does_not(tmp_path):
    """Only the verifier is right, or everyone but the verifier."""
    arrays = arrays_of(tmp_path, ["5", "4", *["6"] * 5], ["5", "9", *["4"] * 5], difficulty=[0.5, 0.5])
    surest = f"{PRIOR},beta=inf"
    medium = run_policy(arrays, f"{surest},tau1=0,tau2=1")
    assert medium.best.tolist() == [1, 0]
    hard = run_policy(arrays, f"{surest},tau1=0,tau2=0")
    assert hard.best.tolist() == [0, 1]
    assert (hard.winner != 1).all()


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        (["4", "4", "4"], 4),  # three agree: the other two cannot turn it
        (["4", "4", "5"], 6),
        (["4", "5", "6"], 6),
    ],
)
def test_a_settled_vote_skips_the_second_wave(tmp_path, answers, calls):
    arrays = arrays_of(tmp_path, ["4", "4", *answers, "4", "4"])
    found = run_policy(arrays, "odar:mode=prior,tau1=0,tau2=0,stop=0.8,first_wave=3")
    assert found.calls.tolist() == [calls]
    # one prompt a wave, two dollars a sample that was asked for
    waves, samples = (1, 3) if calls == 4 else (2, 5)
    assert found.cost.tolist() == pytest.approx([1.1 + 10 * waves + 2 * samples])
    assert found.seconds.tolist() == [3.0 * waves]


def test_answers_after_the_vote_is_settled_are_not_read(tmp_path):
    """The second wave is paid for completely, but its last answer comes after the vote is settled."""
    arrays = arrays_of(
        tmp_path, ["9", "9", "4", "4", "5", "4", "5"], energies=[[0.9, 0.9, 0.4, 0.4, 0.5, 0.4, 0.01]]
    )
    found = run_policy(arrays, "odar:mode=prior,tau1=0,tau2=0,stop=0.8,first_wave=3,beta=inf")
    assert found.calls.tolist() == [6]
    assert found.score.tolist() == [1]  # the surest of all, the fifth, was never looked at
    assert run_policy(arrays, "odar:mode=prior,tau1=0,tau2=0,stop=none,beta=inf").score.tolist() == [0]


def test_baselines_by_hand(tmp_path):
    arrays = arrays_of(
        tmp_path,
        ["4", "4", "5", "5", "4", "4", "4"],
        ["5", "5", "4", "4", "5", "5", "5"],
        energies=[[0.1, 0.1, 0.9, 0.8, 0.3, 0.4, 0.5], [0.9, 0.9, 0.2, 0.3, 0.5, 0.5, 0.5]],
    )
    scores = {
        name: run_policy(arrays, name).score.tolist()
        for name in (
            "single-fast", "single-slow", "self-consistency:k=3", "self-consistency:k=5", "best-of-n:n=2",
            "best-of-n:n=5", "ensemble", "oracle",
        )
    }  # fmt: skip
    assert scores == {
        "single-fast": [1, 0],
        "single-slow": [0, 1],
        "self-consistency:k=3": [0, 1],  # 5 5 4, and 4 4 5
        "self-consistency:k=5": [1, 0],  # 5 5 4 4 4, and 4 4 5 5 5
        "best-of-n:n=2": [0, 1],
        "best-of-n:n=5": [1, 1],
        "ensemble": [0, 1],  # the fast answer is outvoted by two samples
        "oracle": [1, 1],
    }
    oracle = run_policy(arrays, "oracle")
    assert oracle.calls.tolist() == [1, 1]
    assert (oracle.path == NO_PATH).all()


def test_the_oracle_router_takes_the_cheapest_path_that_is_right(tmp_path):
    arrays = arrays_of(
        tmp_path,
        ["4", "4", *["4"] * 5],  # all paths are right
        ["5", "4", *["5"] * 5],  # only the verifier is
        ["5", "5", *["4"] * 5],  # only the samples are
        ["5", "5", *["5"] * 5],  # nobody is: nothing is worth paying for
        energies=[FLAT, [0.9, 0.1, *[0.5] * 5], [0.9, 0.1, *[0.2] * 5], FLAT],
    )
    found = run_policy(arrays, "oracle-router")
    assert found.path.tolist() == [SIMPLE, MEDIUM, HARD, SIMPLE]
    assert found.score.tolist() == [1, 1, 1, 0]


def test_without_fusion_the_first_slow_answer_wins(tmp_path):
    arrays = arrays_of(tmp_path, ["4", "6", "5", "4", "4", "4", "4"], difficulty=[0.9])
    assert run_policy(arrays, f"{PRIOR},rule=none").score.tolist() == [0]
    assert run_policy(arrays, f"{PRIOR},rule=majority").score.tolist() == [1]
    assert run_policy(arrays, f"{PRIOR},rule=none,tau1=0,tau2=1").winner.tolist() == [1]


def test_unknown_prices_stay_unknown(tmp_path):
    arrays = arrays_of(tmp_path, ["4"] * 7)
    arrays.answers.output_usd[:] = np.nan
    assert np.isnan(run_policy(arrays, "odar").cost).all()
    assert run_policy(arrays, "odar").calls.min() >= 1


ANSWERS = ["9", "9", "4", "4", "5", "6", "7"]
"""Two equal answers, then single ones; column 4 has the lowest energy."""
ENERGIES = [0.9, 0.9, 0.5, 0.6, 0.1, 0.7, 0.8]


def ballot_of(folder, answers=ANSWERS, energies=ENERGIES):
    return load_arrays(handmade_panel(folder, [answers], [energies]))


def winner(arrays, present=None, **options):
    setting = Setting.from_header(arrays.header).with_options({name: str(value) for name, value in options.items()})
    among = arrays.columns(*(present or range(SOLVE, SOLVE + 5)))
    return int(fusion_of(setting).choose_rows(candidates_of(arrays, setting), among)[0])


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
def test_the_winner_of_each_rule(tmp_path, options, column):
    assert winner(ballot_of(tmp_path), **options) == column


def test_beta_decides_between_two_equal_answers_and_one_with_lower_energy(tmp_path):
    arrays = ballot_of(tmp_path)
    # exp(−β·0.5) + exp(−β·0.6) against exp(−β·0.1): equal near β = 1.55
    assert winner(arrays, rule="fep", beta=1.4) == 2
    assert winner(arrays, rule="fep", beta=1.7) == 4


def test_without_fusion_the_fast_answer_wins_only_alone(tmp_path):
    arrays = ballot_of(tmp_path)
    assert winner(arrays, [0], rule="none") == 0
    assert winner(arrays, [0, 1], rule="none") == 1
    assert winner(arrays, [0, *range(SOLVE, SOLVE + 5)], rule="none") == 2


def test_with_too_few_logprobs_the_majority_of_slow_answers_wins(tmp_path):
    """SPEC 5.6: more than a fifth of the tokens have no log-probability."""
    arrays = ballot_of(tmp_path, ["5", "9", "4", "4", "5", "6", "7"])
    present = [0, *range(SOLVE, SOLVE + 5)]
    assert winner(arrays, present, rule="fep", beta="inf") == 4
    arrays.answers.missing[:, SOLVE : SOLVE + 2] = arrays.answers.total[:, SOLVE : SOLVE + 2]
    arrays.answers.energy[:, SOLVE : SOLVE + 2] = np.nan
    found = winner(arrays, present, rule="fep", beta="inf")
    assert arrays.answers.score[0, found] == 1  # the fours; the fast five has no vote
    arrays.answers.missing[:, SOLVE + 1] = 0
    arrays.answers.energy[:, SOLVE + 1] = 0.6
    assert winner(arrays, present, rule="fep", beta="inf") == 4  # one silent answer in six is still little


def test_ties_are_broken_independently_of_order(tmp_path):
    one = ballot_of(tmp_path, ["9", "9", "5", "4", "6", "7", "8"], [0.5] * 7)
    texts = one.answers.order[0].tolist()
    assert sorted(texts) == list(range(7))
    first = winner(one, rule="fep", beta="inf")
    assert first == next(column for column in texts if column >= SOLVE)
