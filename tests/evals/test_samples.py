"""The recorded sets that come with the documentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from odar.evals.fusion_file import apply_rules, load_questions, oracle, stop_early
from odar.policy.fusion import Fusion
from odar.types import Role

DATA = Path(__file__).parents[2] / "docs" / "data"


@pytest.fixture(params=["words", "numbers"], scope="module")
def questions(request):
    return load_questions(DATA / f"embedded-{request.param}.jsonl.gz", 0.1)


def test_each_question_has_one_fast_and_five_slow_answers_that_can_be_scored(questions):
    assert len(questions) >= 140
    for question in questions:
        assert [candidate.role for candidate in question.candidates] == [Role.FAST, *[Role.SLOW] * 5]
        assert all(candidate.energy is not None for candidate in question.candidates)


def test_the_questions_are_neither_too_easy_nor_too_hard(questions):
    alone = np.mean([np.mean(question.correct) for question in questions])
    assert 0.2 < alone < oracle(questions) < 0.8


def test_no_rule_is_clearly_below_voting_and_stopping_after_three_loses_nothing(questions):
    results = {result.rule: result for result in apply_rules(questions, 0.25, 0.2, seed=0)}
    assert results["fep β=0.25"].against_majority.high >= 0
    assert results["fep β=0.25"].against_argmin.high >= 0
    assert results["majority"].accuracy.value > results["mean candidate"].accuracy.value
    early = stop_early(questions, Fusion("fep", 0.25), 0.8, first_look=3)
    assert early.saved > 0.1
    assert early.against_all.value >= -0.005
