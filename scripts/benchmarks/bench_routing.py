"""`bench.py routing`: compare the estimator with random, length and an oracle on recorded outcomes.

`routellm_gsm8k` is for evaluation only. On the MMLU-Pro pair the belief of the cascade sees the weak model's answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.difficulty.base import Estimator
from odar.errors import InputError
from odar.lab.graders.text import LETTERS
from odar.lab.recording.files import import_arrow
from odar.lab.router_quality import RouterRow, router_row
from odar.policy.belief import Belief, Evidence, Opinion, RatedAgent
from odar.policy.signals import QuantileTables
from odar.types import Query

Array = NDArray[np.float64]
PAIR = ("gpt-4.1-nano", "gpt-4.1")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the weak and the strong model made of each question."""

    name: str
    prompts: Sequence[str]
    weak: Array
    strong: Array
    confidence: Array | None = None
    """The weak model's mean token probability, where it was recorded."""
    tokens: Array | None = None
    unanswered: Array | None = None
    """1 where the weak model stated no answer."""


def load_routellm(folder: Path) -> Outcomes:
    """RouteLLM's GSM8K file without the questions its authors marked as contaminated."""
    rows = [row for row in _lines(folder / "routellm_gsm8k" / "outcomes.jsonl") if not row["contaminated"]]
    weak, strong = (np.array([row[f"{side}_correct"] for row in rows], dtype=float) for side in ("weak", "strong"))
    return Outcomes("routellm_gsm8k", [row["prompt"] for row in rows], weak, strong)


def load_mmlu_pair(folder: Path, weak: str = PAIR[0], strong: str = PAIR[1]) -> Outcomes:
    """Two models of the MMLU-Pro outcomes; questions with their options, as the models saw them."""
    _, parquet = import_arrow()
    place = folder / "mmlu_pro_outcomes"
    items = {row["row"]: row for row in _lines(place / "items.jsonl")}
    try:
        table = parquet.read_table(place / "outcomes.parquet", filters=[("model", "in", [weak, strong])])
    except OSError as error:
        raise InputError(f"{place / 'outcomes.parquet'} cannot be read: {error}") from None
    found: dict[str, dict[int, dict[str, Any]]] = {weak: {}, strong: {}}
    for row in table.to_pylist():
        found[row["model"]][row["row"]] = row
    both = sorted(found[weak].keys() & found[strong].keys())
    if not both:
        raise InputError(f"{place} has no question that both {weak} and {strong} answered")
    prompts = [
        "\n".join(
            [items[r]["question"], *(f"({a}) {o}" for a, o in zip(LETTERS, items[r]["options"], strict=False))]
        )
        for r in both
    ]
    return Outcomes(
        name=f"{weak} → {strong}",
        prompts=prompts,
        weak=np.array([found[weak][r]["correct"] for r in both], dtype=float),
        strong=np.array([found[strong][r]["correct"] for r in both], dtype=float),
        confidence=np.array([found[weak][r]["mean_token_probability"] for r in both], dtype=float),
        tokens=np.array([found[weak][r]["response_tokens"] for r in both], dtype=float),
        unanswered=np.array([found[weak][r]["answer"] is None for r in both], dtype=float),
    )


def measure(outcomes: Outcomes, estimator: Estimator, seed: int = 42) -> list[RouterRow]:
    """Every router on one set."""
    rng = np.random.default_rng(seed)
    estimates = [estimator.estimate(Query(prompt)) for prompt in outcomes.prompts]
    prior = np.array([estimate.difficulty for estimate in estimates])
    scores = {
        "random": rng.random(len(prior)),
        "length": np.array([len(prompt) for prompt in outcomes.prompts], dtype=float),
        estimator.name: prior,
    }
    if outcomes.confidence is not None and outcomes.tokens is not None:
        scores["belief (no labels)"] = _expected_gain(outcomes, prior)
    scores["oracle"] = outcomes.strong - outcomes.weak
    return [router_row(name, score, outcomes.weak, outcomes.strong, rng) for name, score in scores.items()]


def _expected_gain(outcomes: Outcomes, prior: Array) -> Array:
    """q − p of the belief after each answer of the weak model; ranks are among its own answers."""
    assert outcomes.confidence is not None
    assert outcomes.tokens is not None
    weak, strong = RatedAgent("fast", 0.6, "weak"), RatedAgent("slow", 0.8, "strong")
    values = {"length": outcomes.tokens, "mean_logprob": np.log(np.clip(outcomes.confidence, 1e-6, 1.0))}
    tables = QuantileTables.fit({("reasoned", name): each for name, each in values.items()})
    ranks = {
        name: np.array([tables.rank("reasoned", name, value) for value in each]) for name, each in values.items()
    }
    missing = np.zeros(len(prior)) if outcomes.unanswered is None else outcomes.unanswered
    opinion = Opinion(weak, np.where(missing > 0, -1, 0), ranks["length"], ranks["mean_logprob"])
    posterior = Belief.load().posterior(Evidence([opinion], plausible=10, difficulty=prior))
    return np.asarray(posterior.q(strong) - posterior.p)


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
