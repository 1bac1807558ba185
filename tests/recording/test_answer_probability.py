"""Direct answers in the forms that tables have: the posterior ranks them by the answer's own probability (SPEC 5.11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odar.difficulty.estimator import LearnedEstimator
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import QuantileTables, SignalArrays
from odar.recording.importers import read_answers
from odar.recording.joining import join_answers, to_items
from odar.recording.schema import recorded_signals

COUNT = 200
RNG = np.random.default_rng(11)
LOGPROBS = np.where(RNG.random(COUNT) < 0.4, -(10 ** RNG.uniform(-6, -3, COUNT)), -RNG.gamma(0.6, 0.5, COUNT))
"""Skewed, as those of a good model are: 40% of the answers have a probability above 0.999."""
LETTERS = ["ABCD"[i] for i in RNG.integers(0, 4, COUNT)]
OPTIONS = [" ".join(["plants", "take", "in", "light"][: 1 + i % 4] * (1 + i % 5)) for i in range(COUNT)]
REASONS = [" ".join(["because", "it", "is", "so"] * (4 + i % 7)) for i in range(COUNT)]
Row = Callable[[int], dict[str, Any]]
FORMS: dict[str, Row] = {
    "log-probability of a letter": lambda i: {"answer": LETTERS[i], "answer_logprob": LOGPROBS[i]},
    "probability of a letter": lambda i: {"answer": LETTERS[i], "answer_probability": np.exp(LOGPROBS[i])},
    "probability, no text": lambda i: {"prob": np.exp(LOGPROBS[i])},
    "mean log-probability": lambda i: {"answer": LETTERS[i], "mean_logprob": LOGPROBS[i]},
    "mean log-probability, no text": lambda i: {"mean_logprob": LOGPROBS[i]},
    "one token written, cut off": lambda i: {
        "response": LETTERS[i],
        "logprob": LOGPROBS[i],
        "output_tokens": 1,
        "finish_reason": "length",
    },
    "list of log-probabilities": lambda i: {"response": LETTERS[i], "logprobs": [LOGPROBS[i]]},
    "tokens": lambda i: {"response": LETTERS[i], "tokens": [LETTERS[i]], "logprobs": [LOGPROBS[i]]},
    "tokens and an end mark": lambda i: {
        "response": LETTERS[i],
        "tokens": [LETTERS[i], "<|im_end|>"],
        "logprobs": [LOGPROBS[i], -0.3 * (i % 7)],
    },
    "chat completion": lambda i: {
        "response": LETTERS[i],
        "logprobs": {"content": [{"token": LETTERS[i], "logprob": LOGPROBS[i], "top_logprobs": []}]},
    },
    "list of token objects": lambda i: {
        "response": LETTERS[i],
        "logprobs": [{"token": LETTERS[i], "logprob": LOGPROBS[i]}],
    },
    "letter and text of the option": lambda i: {
        "response": f"{LETTERS[i]}. {OPTIONS[i]}",
        "answer": LETTERS[i],
        "tokens": [LETTERS[i], ".", *(f" {word}" for word in OPTIONS[i].split())],
        "logprobs": [LOGPROBS[i], -0.1, *(-0.01 * (i % 9) for _ in OPTIONS[i].split())],
    },
    "letter and text of the option, probability": lambda i: {
        "response": f"{LETTERS[i]}) {OPTIONS[i]}",
        "answer": LETTERS[i],
        "answer_probability": np.exp(LOGPROBS[i]),
    },
    "in brackets": lambda i: {
        "response": f"({LETTERS[i]})",
        "answer": LETTERS[i],
        "tokens": ["(", LETTERS[i], ")"],
        "logprobs": [-0.1 * (i % 5), LOGPROBS[i], -0.1],
    },
    "marked": lambda i: {
        "response": f"Answer: {LETTERS[i]}",
        "tokens": ["Answer", ":", f" {LETTERS[i]}"],
        "logprobs": [-0.1 * (i % 5), -0.1, LOGPROBS[i]],
    },
    "two of three marked": lambda i: {
        "response": f"Answer: {LETTERS[i]}" if i % 3 else LETTERS[i],
        "answer_logprob": LOGPROBS[i],
    },
    "with reasons, probability alone": lambda i: {
        "response": f"{REASONS[i]}. Answer: {LETTERS[i]}",
        "answer": LETTERS[i],
        "answer_logprob": LOGPROBS[i],
    },
    "letter alone, sixty tokens written": lambda i: {
        "answer": LETTERS[i],
        "answer_logprob": LOGPROBS[i],
        "output_tokens": 60,
    },
    "tokens do not hold the answer": lambda i: {
        "response": f"It is {LETTERS[i]}",
        "answer": OPTIONS[i],
        "answer_logprob": LOGPROBS[i],
        "tokens": ["It", " is ", LETTERS[i]],
        "logprobs": [-0.1 * (i % 5), -0.2 * (i % 3), -0.3],
    },
}


def difficulties(folder: Path, form: Row, *, questions: bool = False, shipped: bool = False) -> np.ndarray:
    """d of every answer after an import, in the order of the rows."""
    for name, make in (("fast", form), ("slow", lambda i: {"answer": "A"})):
        rows = [{"id": f"q{i}", "score": i % 2} | make(i) for i in range(COUNT)]
        for i, row in enumerate(rows if questions else ()):
            row["question"] = f"{'Prove that ' * (i % 3)}question {i} is about {OPTIONS[i]}?"
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fast, slow = (read_answers(folder / f"{name}.jsonl") for name in ("fast", "slow"))
    items = to_items(join_answers(fast, [slow]), LearnedEstimator.load(), "table", {})
    assert [item.key.id for item in items] == [f"q{i}" for i in range(COUNT)]
    signals = SignalArrays.from_answers([recorded_signals(item.attempts[0], item.difficulty) for item in items])
    tables = None if shipped else QuantileTables.from_signals(signals)
    return PosteriorDifficulty.load().predict(signals, tables)


@pytest.mark.parametrize("shipped", [False, True], ids=["own quantiles", "shipped quantiles"])
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_difficulty_is_ordered_by_answer_probability(tmp_path: Path, form: Row, shipped: bool) -> None:
    d = difficulties(tmp_path, form, shipped=shipped)
    ordered = d[np.argsort(-LOGPROBS)]
    assert (np.diff(ordered) >= -1e-9).all(), "a less likely answer has no lower difficulty"
    assert len(np.unique(d)) > 0.9 * COUNT, "few answers are tied"


@pytest.mark.parametrize("name", ["log-probability of a letter", "probability, no text", "chat completion"])
def test_the_prior_changes_ranks_by_a_bounded_amount(tmp_path: Path, name: str) -> None:
    d = difficulties(tmp_path, FORMS[name], questions=True)
    rank = np.argsort(np.argsort(-LOGPROBS)) / COUNT
    weights = PosteriorDifficulty.load().weights["direct"]
    most = weights["looks_hard"] / weights["unsure_answer"]
    surer, less_sure = np.nonzero(rank[None, :] - rank[:, None] > most + 0.03)
    assert len(surer) > COUNT and (d[surer] < d[less_sure]).all()


def test_an_empty_answer_has_maximal_difficulty(tmp_path: Path) -> None:
    d = difficulties(tmp_path, lambda i: {"answer": LETTERS[i] if i % 50 else "", "answer_logprob": LOGPROBS[i]})
    assert (d[::50] == d.max()).all() and (np.delete(d, np.s_[::50]) < d.max()).all()
