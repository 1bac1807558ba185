"""Direct answers in the forms that tables have: the belief sees the rank of the answer's own probability (SPEC 5.11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odar.agents.measure import opinion_of
from odar.difficulty.estimator import LearnedEstimator
from odar.lab.recording.importers import read_answers
from odar.lab.recording.joining import join_answers, to_items
from odar.lab.recording.schema import recorded_signals
from odar.policy.belief import RatedAgent
from odar.policy.signals import QuantileTables, shipped_tables

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


def ranks(folder: Path, form: Row, *, shipped: bool = False) -> np.ndarray:
    """Return the rank of every answer's probability after an import, in the order of the rows; NaN if unknown."""
    for name, make in (("fast", form), ("slow", lambda i: {"answer": "A"})):
        rows = [{"id": f"q{i}", "score": i % 2} | make(i) for i in range(COUNT)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    answers = {name: read_answers(folder / f"{name}.jsonl") for name in ("fast", "slow")}
    items = to_items(join_answers(answers), LearnedEstimator.load(), "table", {})
    assert [item.key.id for item in items] == [f"q{i}" for i in range(COUNT)]
    fast = [item.attempts[0] for item in items]
    signals = [recorded_signals(attempt) for attempt in fast]
    tables = shipped_tables()
    if not shipped:
        tables = QuantileTables.of_answers(signals).with_fallback(tables)
    agent = RatedAgent("fast", 0.6, "m")
    seen = [opinion_of(a, s, tables, agent) for a, s in zip(fast, signals, strict=True)]
    return np.array([np.nan if o.group < 0 or o.logprob is None else o.logprob for o in seen])


@pytest.mark.parametrize("shipped", [False, True], ids=["own quantiles", "shipped quantiles"])
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_ranks_are_ordered_by_answer_probability(tmp_path: Path, form: Row, shipped: bool) -> None:
    found = ranks(tmp_path, form, shipped=shipped)
    ordered = found[np.argsort(LOGPROBS)]
    assert (np.diff(ordered) >= -1e-9).all(), "a less likely answer has no higher rank"
    assert len(np.unique(found)) > 0.9 * COUNT, "few answers are tied"


def test_an_empty_answer_has_no_group(tmp_path: Path) -> None:
    found = ranks(tmp_path, lambda i: {"answer": LETTERS[i] if i % 50 else "", "answer_logprob": LOGPROBS[i]})
    assert np.flatnonzero(np.isnan(found)).tolist() == [0, 50, 100, 150]
