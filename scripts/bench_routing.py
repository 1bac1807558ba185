"""`bench.py routing`: compare the estimator with random, length and an oracle on recorded outcomes.

`routellm_gsm8k` is for evaluation only. On the MMLU-Pro pair the posterior is cross-validated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odar.calibration.parts import fit_weights, fold_masks
from odar.difficulty.base import Estimator
from odar.errors import InputError
from odar.evals.router_quality import RouterRow, oracle_score, router_row
from odar.evals.scorers.text import LETTERS
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import AnswerKind, QuantileTables, SignalArrays
from odar.recording.files import import_arrow
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
        signals = _signals(outcomes, prior)
        scores["posterior (no labels)"] = PosteriorDifficulty.load().predict(
            signals, QuantileTables.from_signals(signals)
        )
        scores["posterior (cross-validated)"] = _cross_validated(outcomes, signals, seed)
    scores["oracle"] = oracle_score(outcomes.weak, outcomes.strong)
    return [router_row(name, score, outcomes.weak, outcomes.strong, rng) for name, score in scores.items()]


def _signals(outcomes: Outcomes, prior: Array) -> SignalArrays:
    """Signals of reasoned answers; ranks depend on the unit of none of them."""
    assert outcomes.confidence is not None
    assert outcomes.tokens is not None
    count, unknown = len(prior), np.full(len(prior), np.nan)
    return SignalArrays(
        kind=np.full(count, AnswerKind.REASONED.value),
        prior=prior,
        stated=np.full(count, True),
        length=outcomes.tokens,
        mean_logprob=np.log(np.clip(outcomes.confidence, 1e-6, 1.0)),
        answer_logprob=unknown,
        agreement=unknown,
        finished=np.full(count, True) if outcomes.unanswered is None else outcomes.unanswered == 0,
    )


def _cross_validated(outcomes: Outcomes, signals: SignalArrays, seed: int) -> Array:
    """The posterior of each question by quantiles and weights that were fitted without it."""
    gain = outcomes.strong - outcomes.weak
    shipped, kind, scores = PosteriorDifficulty.load(), AnswerKind.REASONED, np.zeros(len(signals))
    for test in fold_masks(len(signals), seed):
        train = ~test
        tables, kept = QuantileTables.from_signals(signals.rows(train)), train & signals.finished
        terms = shipped.terms(signals.rows(kept), kind, tables)
        model = shipped.with_weights(kind, fit_weights(terms, gain[kept], start=shipped.weights[kind.value]))
        scores[test] = model.predict(signals.rows(test), tables)
    return scores


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
