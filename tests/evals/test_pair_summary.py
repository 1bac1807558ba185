"""The summary of a recorded pair; imported direct answers keep the order of their probabilities (SPEC 5.11)."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from odar.difficulty.base import LengthEstimator
from odar.errors import InputError
from odar.evals.pair_summary import summarize_pair
from odar.evals.router_quality import apgr
from odar.policy.posterior import PosteriorDifficulty
from odar.recording.importers import read_answers
from odar.recording.joining import join_answers, to_items
from odar.recording.schema import Attempt, ItemKey, RecordedItem
from odar.types import Step, Usage

POSTERIOR = PosteriorDifficulty.load()


def item(i, fast, slow, mean=None, difficulty=0.5, usd=(0.001, 0.01)):
    attempts = tuple(
        Attempt(step=step, model=step.role.value, text="4", answer="4", score=score, mean_logprob=mean,
                usage=Usage(1, 0, 10), prompt_usd=None if cost is None else 0.0, output_usd=cost)
        for step, score, cost in zip((Step.ANSWER, Step.SOLVE), (fast, slow), usd, strict=True)
    )  # fmt: skip
    return RecordedItem(
        key=ItemKey("s", str(i), 0), category="", metric="score", stratum="", fold=0, query="", gold="4", effort=None,
        features=(), difficulty=difficulty, expert="general", attempts=attempts,
    )  # fmt: skip


def confident(count=200):
    """Return items where the fast model is wrong if its log-probability is low; the slow one is always right."""
    rng = np.random.default_rng(0)
    means = -rng.random(count)
    return [item(i, float(mean > -0.5), 1.0, float(mean), (i % 10) / 10) for i, mean in enumerate(means)]


def test_every_use_of_the_pair_has_a_row():
    items = confident()
    found = summarize_pair(items, POSTERIOR, 0.3)
    rows = {row.name: row for row in found.rows}
    fast = np.mean([each.attempts[0].score for each in items])
    assert rows["always fast"].accuracy.value == pytest.approx(fast)
    assert (rows["always slow"].accuracy.value, rows["always slow"].calls) == (1.0, 1.0)
    assert rows["oracle"].calls == pytest.approx(2 - fast)
    assert rows["oracle"].cost_usd == pytest.approx(0.001 + 0.01 * (1 - fast))
    assert rows["ODAR prior (d ≥ 0.3)"].slow_share == 0.7
    assert [rows[f"ODAR posterior, {calls:g} calls"].calls for calls in (1.25, 1.5, 1.75)] == [1.25, 1.5, 1.75]
    assert rows["ODAR posterior, 1.5 calls"].gain.low > 0.2
    assert found.apgr["posterior"] > 0.6 > found.apgr["prior"]
    assert found.signals == ("prior", "answer log-prob", "mean log-prob")
    assert found.apgr["mean log-prob"] > 0.7


def test_unknown_prices_have_no_cost_and_no_gap_has_no_apgr():
    found = summarize_pair([item(i, 1.0, 1.0, usd=(0.1, None)) for i in range(40)], POSTERIOR, 0.3)
    rows = {row.name: row for row in found.rows}
    assert (rows["always fast"].cost_usd, rows["always slow"].cost_usd) == (pytest.approx(0.1), None)
    assert found.apgr == {}
    assert "ODAR prior (d ≥ 0.3)" not in rows  # every prior is the same: nothing is known of the questions
    assert found.signals == ()


def test_a_recording_without_pairs_is_rejected():
    with pytest.raises(InputError, match="no item has a fast and a slow answer"):
        summarize_pair([], POSTERIOR, 0.3)


# --- direct answers: the posterior must order them as their own probability does --------------------------------

COUNT = 1500


def skewed(seed=3):
    """Return log-probabilities of direct answers, most above -0.01 and some at -1e-6, and the scores of both models."""
    rng = np.random.default_rng(seed)
    logprob = -(10 ** rng.uniform(-6, 0.6, COUNT))
    fast = rng.random(COUNT) < 1 - 0.6 * (1 - np.argsort(np.argsort(logprob)) / COUNT)
    slow = rng.random(COUNT) < 0.92
    return logprob, fast.astype(float), slow.astype(float)


def batch_line(i, tokens):
    body = {
        "model": "m",
        "choices": [
            {
                "message": {"content": "".join(text for text, _ in tokens)},
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": text, "logprob": value} for text, value in tokens]},
            }
        ],
    }
    return {"custom_id": str(i), "response": {"body": body}, "error": None}


SPELLED = {
    "letter": lambda lp: [("B", lp)],
    "brackets": lambda lp: [("(", -1e-5), ("B", lp), (")", -1e-6)],
    "marked": lambda lp: [("Answer", -0.2), (":", -1e-4), (" B", lp)],
    "yes": lambda lp: [("yes", lp), (".", -1e-6)],
    "two words": lambda lp: [("New", lp / 2), (" York", lp / 2)],
    "sentence": lambda lp: [("The", -0.01), (" answer", -1e-4), (" is", -1e-4), (" B", lp), (".", -1e-6)],
}


def imported_apgr(tmp_path, rows, fast, slow):
    """Return the APGR of the posterior and of each signal after an import of two files."""
    (tmp_path / "fast.jsonl").write_text("\n".join(map(json.dumps, rows)))
    deep = [{"id": str(i), "answer": "C", "score": score} for i, score in enumerate(slow)]
    (tmp_path / "slow.jsonl").write_text("\n".join(map(json.dumps, deep)))
    answers = read_answers(tmp_path / "fast.jsonl")
    scored = [replace(each, score=float(right)) for each, right in zip(answers, fast, strict=True)]
    joined = join_answers(scored, [read_answers(tmp_path / "slow.jsonl")])
    return summarize_pair(to_items(joined, LengthEstimator(), "s", {}), POSTERIOR, 0.3).apgr


@pytest.mark.parametrize("spelling", SPELLED)
def test_direct_answers_of_a_batch_are_ordered_by_their_own_probability(tmp_path, spelling):
    logprob, fast, slow = skewed()
    rows = [batch_line(i, SPELLED[spelling](float(value))) for i, value in enumerate(logprob)]
    found = imported_apgr(tmp_path, rows, fast, slow)
    raw = apgr(-logprob, fast, slow)
    assert raw > 0.7
    assert found["posterior"] == pytest.approx(raw, abs=0.005)


@pytest.mark.parametrize(
    "columns",
    [
        lambda lp: {"answer": "B", "answer_logprob": lp},
        lambda lp: {"answer": "B", "confidence": math.exp(lp)},
        lambda lp: {"response": "yes", "mean_logprob": lp},
        lambda lp: {"response": "New York", "logprobs": [lp / 3, lp * 2 / 3]},
        lambda lp: {"response": "(B)", "tokens": ["(B", ")"], "logprobs": [lp, -1e-7]},
        lambda lp: {"answer_probability": math.exp(lp), "score": 0},
    ],
)
def test_direct_answers_of_a_table_are_ordered_by_their_own_probability(tmp_path, columns):
    logprob, fast, slow = skewed(4)
    rows = [{"id": str(i), **columns(float(value))} for i, value in enumerate(logprob)]
    found = imported_apgr(tmp_path, rows, fast, slow)
    assert found["posterior"] == pytest.approx(apgr(-logprob, fast, slow), abs=0.005)
