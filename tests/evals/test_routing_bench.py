"""Routers on recorded outcomes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from odar.difficulty.base import LengthEstimator
from odar.difficulty.estimator import shipped_estimator
from odar.errors import InputError
from odar.evals.routing_bench import Outcomes, load_mmlu_pair, load_routellm, measure


def outcomes(rows: int = 200) -> Outcomes:
    """The weak model fails where it is unsure, and always where it states no answer."""
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
def test_the_posterior_sees_what_the_prompt_cannot_show(estimator) -> None:
    rows = {row.router: row for row in measure(outcomes(), estimator)}
    posterior, prior = rows["posterior (cross-validated)"], rows[estimator.name]
    assert posterior.apgr.value > prior.apgr.value + 0.05
    assert rows["oracle"].apgr.value >= posterior.apgr.value
    assert posterior.auroc > 0.7


def test_a_missing_answer_is_news() -> None:
    told = outcomes()
    untold = Outcomes(told.name, told.prompts, told.weak, told.strong, told.confidence, told.tokens)
    with_it, without = (
        next(row for row in measure(o, LengthEstimator()) if row.router.startswith("posterior"))
        for o in (told, untold)
    )
    assert with_it.apgr.value > without.apgr.value


def test_prompts_alone_have_no_posterior() -> None:
    told = outcomes(60)
    rows = measure(Outcomes("x", told.prompts, told.weak, told.strong), LengthEstimator())
    assert {row.router for row in rows} == {"random", "length", "oracle"}


def test_contaminated_questions_are_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "routellm_gsm8k"
    folder.mkdir()
    lines = [
        {"prompt": p, "weak_correct": False, "strong_correct": True, "contaminated": bad}
        for p, bad in (("a", False), ("b", True))
    ]
    (folder / "outcomes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert load_routellm(tmp_path).prompts == ["a"]


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


def test_a_table_that_is_not_there_is_named(tmp_path):
    (tmp_path / "mmlu_pro_outcomes").mkdir()
    (tmp_path / "mmlu_pro_outcomes" / "items.jsonl").write_text('{"row": 0, "question": "x", "options": ["a"]}')
    with pytest.raises(InputError, match=r"outcomes\.parquet cannot be read"):
        load_mmlu_pair(tmp_path)
