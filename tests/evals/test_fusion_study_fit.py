from __future__ import annotations

import numpy as np
import pytest

from odar.evals.fusion_study import apply_rules, cross_validate, load_fusion_items, score_rule
from odar.policy.fusion import Fusion
from support.panels import samples_recording


def samples(tmp_path, rows):
    return load_fusion_items(samples_recording(tmp_path, rows), 0.1)


def candidate(answer, logprob, model="m", agent="slow"):
    return {"model": model, "answer": str(answer), "agent": agent, "tokens": [["abc", logprob], ["def", logprob]]}


def confident_is_right(seed, count):
    """Return questions where two samples agree on a wrong answer and the third is right with a low energy."""
    rng = np.random.default_rng(seed)
    return [
        {
            "gold": "1",
            "candidates": [
                candidate(2, -1.0 - 0.1 * rng.random()),
                candidate(2, -1.0 - 0.1 * rng.random()),
                candidate(1, -0.1 * rng.random()),
            ],
        }
        for _ in range(count)
    ]


def test_a_rule_fitted_to_other_questions_uses_the_energy(tmp_path):
    questions = samples(tmp_path, confident_is_right(0, 40))
    fitted = cross_validate(questions, seed=0)
    assert fitted.right.tolist() == [1.0] * 40
    assert fitted.beta > 0.5
    assert score_rule(questions, Fusion("majority")).sum() == 0


def test_no_question_is_judged_by_a_rule_fitted_to_it(tmp_path):
    """The right model is random for each question, so a rule without leakage has an accuracy of one half."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(200):
        first = rng.random() < 0.5
        rows.append(
            {
                "gold": "1",
                "candidates": [candidate(1 if first else 2, -0.5, "a"), candidate(2 if first else 1, -0.5, "b")],
            }
        )
    fitted = cross_validate(samples(tmp_path, rows), seed=0)
    assert fitted.right.mean() < 0.56


def test_a_model_in_both_roles_has_a_skill_per_agent(tmp_path):
    rows = [
        {
            "gold": "1",
            "candidates": [candidate(1 if i % 10 else 3, -0.5 - 0.01 * i, agent="fast"), *[candidate(2, -0.5)] * 2],
        }
        for i in range(60)
    ]
    fitted = cross_validate(samples(tmp_path, rows), seed=0)
    assert set(fitted.skills) == {"m (fast)", "m (slow)"}
    assert fitted.skills["m (fast)"] > fitted.skills["m (slow)"]
    assert fitted.right.mean() > 0.8


def test_models_are_identified_by_name(tmp_path):
    rng = np.random.default_rng(2)
    rows = []
    for i in range(60):
        found = [candidate(1, -0.5, "good"), candidate(2, -0.5, "bad"), candidate(2, -0.5, "bad")][: 2 + i % 2]
        rows.append({"gold": "1", "candidates": [found[j] for j in rng.permutation(len(found))]})
    fitted = cross_validate(samples(tmp_path, rows), seed=0)
    assert fitted.skills["good"] == 1.0
    assert fitted.skills["bad"] < 0.5
    assert fitted.right.mean() == 1.0


def test_without_log_probabilities_the_fallback_rules_decide(tmp_path):
    rows = [
        {
            "gold": "1",
            "candidates": [
                {"model": "m", "answer": "1"},
                {"model": "m", "answer": "1"},
                {"model": "m", "answer": "2"},
            ],
        }
    ] * 40
    assert cross_validate(samples(tmp_path, rows), seed=0).right.mean() == 1.0


def test_too_few_questions_are_not_fitted(tmp_path):
    assert cross_validate(samples(tmp_path, confident_is_right(0, 29)), seed=0) is None


def test_the_same_seed_gives_the_same_result(tmp_path):
    questions = samples(tmp_path, confident_is_right(3, 40))
    a, b = (cross_validate(questions, seed=5) for _ in range(2))
    assert (a.right.tolist(), a.beta, a.skills) == (b.right.tolist(), b.beta, b.skills)


def test_the_fitted_rule_is_listed_with_the_others(tmp_path):
    questions = samples(tmp_path, confident_is_right(0, 40))
    results = {r.rule: r for r in apply_rules(questions, 0.0, 0, cross_validate(questions, 0).right)}
    assert results["fep fitted"].against_majority.value == 1.0
    assert results["fep fitted"].against_argmin.value == 0.0
    assert "fep fitted" not in {r.rule for r in apply_rules(questions, 0.0, 0)}
    assert results["fep β=0"].accuracy.value == pytest.approx(0.0)
