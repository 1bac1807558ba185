"""Routers on recorded outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench_routing import Outcomes, load_mmlu_pair, load_routellm, measure

from odar.difficulty.base import ConstantEstimator, LengthEstimator
from odar.difficulty.estimator import shipped_estimator
from odar.errors import InputError
from odar.lab.router_quality import apgr, router_row


def outcomes(rows: int = 200) -> Outcomes:
    """Return outcomes where the weak model fails if it is uncertain or states no answer."""
    rng = np.random.default_rng(0)
    confidence, silent = rng.uniform(0.6, 1.0, rows), (rng.uniform(size=rows) < 0.15).astype(float)
    weak = ((rng.uniform(0.6, 1.0, rows) < confidence) & (silent == 0)).astype(float)
    return Outcomes(
        name="made up",
        prompts=[f"What is {n} plus {'one ' * (n % 7)}?" for n in range(rows)],
        weak=weak,
        strong=np.ones(rows),
        confidence=confidence,
        tokens=rng.integers(5, 50, rows).astype(float),
        unanswered=silent,
    )


@pytest.mark.parametrize("estimator", [LengthEstimator(), shipped_estimator()], ids=["length", "learned"])
def test_the_belief_is_better_than_the_prior(estimator) -> None:
    rows = {row.router: row for row in measure(outcomes(), estimator)}
    belief, prior = rows["belief (no labels)"], rows[estimator.name]
    assert belief.apgr.value > prior.apgr.value + 0.05
    assert rows["oracle"].apgr.value >= belief.apgr.value
    assert belief.auroc > 0.7


def test_a_missing_answer_improves_the_belief() -> None:
    told = outcomes()
    untold = Outcomes(told.name, told.prompts, told.weak, told.strong, told.confidence, told.tokens)
    with_it, without = (
        next(row for row in measure(o, LengthEstimator()) if row.router.startswith("belief"))
        for o in (told, untold)
    )
    assert with_it.apgr.value > without.apgr.value


def test_prompts_without_answers_have_no_belief() -> None:
    told = outcomes(60)
    rows = measure(Outcomes("x", told.prompts, told.weak, told.strong), LengthEstimator())
    assert {row.router for row in rows} == {"random", "length", "oracle"}


def test_pairs_are_matched_by_question(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the evals extra is not installed: pip install 'odar[evals]'")
    from pyarrow import parquet

    folder = tmp_path / "mmlu_pro_outcomes"
    folder.mkdir()
    items = [{"row": n, "question": f"q{n}", "options": ["x", "y"]} for n in range(3)]
    (folder / "items.jsonl").write_text("\n".join(map(json.dumps, items)))
    table = pyarrow.table(
        {
            "model": ["fast", "fast", "slow", "slow"], "row": [0, 1, 1, 2], "correct": [True, False, True, True],
            "mean_token_probability": [0.9, 0.5, 0.8, 0.8], "response_tokens": [3.0, 9.0, 4.0, 4.0],
            "answer": ["A", None, "B", "B"],
        }
    )  # fmt: skip
    parquet.write_table(table, folder / "outcomes.parquet")
    pair = load_mmlu_pair(tmp_path, "fast", "slow")
    assert pair.prompts == ["q1\n(A) x\n(B) y"]
    assert pair.unanswered is not None and pair.unanswered.tolist() == [1.0]
    with pytest.raises(InputError, match="both fast and nobody"):
        load_mmlu_pair(tmp_path, "fast", "nobody")


def test_a_missing_table_is_named(tmp_path):
    (tmp_path / "mmlu_pro_outcomes").mkdir()
    (tmp_path / "mmlu_pro_outcomes" / "items.jsonl").write_text('{"row": 0, "question": "x", "options": ["a"]}')
    with pytest.raises(InputError, match=r"outcomes\.parquet cannot be read"):
        load_mmlu_pair(tmp_path)


SIZE = 1_300


def recorded(seed: int, pull: float) -> Outcomes:
    """Return a weak model at 64% and a strong one at 86%; `pull` is how well length predicts failures."""
    rng = np.random.default_rng(seed)
    length = rng.normal(0, 1, SIZE)
    weak = (rng.random(SIZE) < 1 / (1 + np.exp(-(0.6 - pull * length)))).astype(float)
    strong = np.maximum(weak, (rng.random(SIZE) < 0.62).astype(float))
    prompts = ["x" * int(200 + 40 * value) for value in length]
    return Outcomes("synthetic", prompts, weak, strong)


def test_a_random_router_has_the_published_apgr():
    found = [measure(recorded(seed, 0.0), ConstantEstimator(), seed)[0] for seed in range(3)]
    assert {row.router for row in found} == {"random"}
    assert np.mean([row.apgr.value for row in found]) == pytest.approx(0.497, abs=0.03)


def test_the_length_router_gains_only_if_length_is_informative():
    rows = {row.router: row for row in measure(recorded(1, 0.5), ConstantEstimator())}
    assert rows["length"].apgr.low > 0.5
    assert rows["oracle"].apgr.value > rows["length"].apgr.value
    nothing = {row.router: row for row in measure(recorded(1, 0.0), ConstantEstimator())}
    assert nothing["length"].apgr.low < 0.5 < nothing["length"].apgr.high


def test_a_row_has_the_usual_figures():
    data = recorded(2, 0.5)
    score = np.array([len(prompt) for prompt in data.prompts], dtype=float)
    row = router_row("length", score, data.weak, data.strong, np.random.default_rng(0))
    assert row.apgr.value == apgr(score, data.weak, data.strong)
    assert 0 < row.cpt50 < row.cpt80 < 1


def test_contaminated_rows_are_dropped(tmp_path):
    (tmp_path / "routellm_gsm8k").mkdir()
    rows = [
        {"prompt": f"q{i}", "weak_correct": i % 2 == 0, "strong_correct": True, "contaminated": i == 3}
        for i in range(6)
    ]
    (tmp_path / "routellm_gsm8k" / "outcomes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_routellm(tmp_path)
    assert list(found.prompts) == ["q0", "q1", "q2", "q4", "q5"]
    assert found.weak.tolist() == [1, 0, 1, 1, 0]
    with pytest.raises(InputError, match="cannot be read"):
        load_routellm(tmp_path / "nowhere")
