from __future__ import annotations

import numpy as np
import pytest

from odar.lab.fusion_study import (
    apply_rules,
    belief_right,
    cross_validated_belief_right,
    fitted_skills,
    oracle_accuracy,
)
from odar.lab.replay.table import load_table
from support.panels import collect_panel, samples_recording


def candidate(answer, logprob=-0.5, agent="slow"):
    return {"answer": str(answer), "agent": agent, "tokens": [["So", logprob], [f" {answer}", logprob]]}


def row(gold, *answers, lps=None):
    return {"gold": gold, "candidates": list(map(candidate, answers, lps or [-0.5] * len(answers)))}


def table_of(folder, rows):
    return load_table(samples_recording(folder, rows))


def test_accuracy_of_each_rule_on_hand_made_items(tmp_path):
    rows = [
        row("1", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the vote is right, the surest is wrong
        row("2", "1", "1", "2", lps=[-0.5, -0.5, -0.1]),  # the other way round
        row("1", "1", "1", "1"),
        row(["3", "three"], "three", "4", "5", lps=[-0.1, -0.9, -0.9]),
    ]
    table = table_of(tmp_path, rows)
    results = {result.rule: result for result in apply_rules(table, 0.0)}
    assert results["fep β=0"].accuracy == results["majority"].accuracy
    assert results["fep β=0"].against_majority.value == 0.0
    assert results["fep β=inf (argmin)"].accuracy.value == 0.75
    assert results["majority"].accuracy.value == 0.75
    assert results["mean candidate"].accuracy.value == pytest.approx((2 / 3 + 1 / 3 + 1 + 1 / 3) / 4)
    assert oracle_accuracy(table) == 1.0
    assert "belief, skills fitted" not in results  # too few questions


async def test_verifications_are_not_candidates(tmp_path):
    table = load_table(await collect_panel(tmp_path, items=12, samples=5))
    assert str(table.all_answers) == "fast+slow*5"


def test_skills_of_the_other_folds_decide_between_two_agents(tmp_path):
    """The fast agent is nearly always right, and the belief assumes the opposite without labels."""
    rows = [
        {"gold": "1", "candidates": [candidate(1 if i % 10 else 3, agent="fast"), candidate(2 + i % 7)]}
        for i in range(60)
    ]
    table = table_of(tmp_path, rows)
    assert belief_right(table).mean() < 0.2
    assert cross_validated_belief_right(table).mean() > 0.8
    assert fitted_skills(table) == {"fast": 0.9, "slow": 0.0}


def test_no_question_is_judged_with_skills_measured_on_it(tmp_path):
    """The right agent is random for each question, so skills without leakage give an accuracy of one half."""
    rng = np.random.default_rng(1)
    rows = []
    for first in rng.random(200) < 0.5:
        answers = [candidate(1 if first else 2, agent="fast"), candidate(2 if first else 1)]
        rows.append({"gold": "1", "candidates": answers})
    assert cross_validated_belief_right(table_of(tmp_path, rows)).mean() < 0.58


def test_without_log_probabilities_agreement_decides(tmp_path):
    rows = [{"gold": "1", "candidates": [{"answer": answer} for answer in "112"]}] * 40
    results = {result.rule: result.accuracy.value for result in apply_rules(table_of(tmp_path, rows), 0.25)}
    assert (results["majority"], results["belief"], results["belief, skills fitted"]) == (1.0, 1.0, 1.0)
