"""The data of the figures of the concept pages, computed by odar; plots.py draws them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from docsite.markdown import ROOT
from odar.difficulty.estimator import LearnedEstimator
from odar.evals.fusion_study import load_fusion_items
from odar.policy.fusion import Fusion
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Ballot, free_energy_rule
from odar.policy.signals import LEVELS, RANKED, AnswerKind, AnswerSignals, QuantileTables, SignalArrays
from odar.recording.files import open_recording
from odar.types import Query

Data = dict[str, Any]
RECORDED = {
    "numbers": ROOT / "docs" / "data" / "embedded-numbers.jsonl.gz",
    "words": ROOT / "docs" / "data" / "embedded-words.jsonl.gz",
}
QUESTIONS = {
    "Is Paris the capital of France?": "Is Paris the capital of France?",
    "Father of Quantum Mechanics?": "Who is considered the father of Quantum Mechanics?",
    "Print 'Hello World' in C++.": "Print 'Hello World' in C++.",
    "√(x+3) + √(x−1) = 4": "Find all real numbers x such that sqrt(x+3)+sqrt(x-1)=4",
    "Derive the Schrödinger equation.": "Derive the time-dependent Schrödinger equation.",
    "Prove that √2 is irrational.": "Prove that the square root of 2 is irrational, and generalize it to n-th roots.",
}
PRIORS = (0.15, 0.35, 0.55, 0.75)
BETAS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LAMBDA = 0.1


def difficulty() -> Data:
    """d(x) of six questions, and what moves that of one of them."""
    estimator = LearnedEstimator.load()
    estimates = {name: estimator.estimate(Query(text)) for name, text in QUESTIONS.items()}
    one = estimates["√(x+3) + √(x−1) = 4"]
    parts = sorted(one.contributions, key=lambda part: -abs(part[2]))[:8]
    return {
        "difficulty": {name: round(each.difficulty, 3) for name, each in estimates.items()},
        "contributions": {name: round(part, 3) for name, _, part in parts},
    }


def free_energy() -> Data:
    """Free energy of every recorded candidate, right ones and wrong ones, by set."""
    found: Data = {}
    for name, path in RECORDED.items():
        pairs = [
            (candidate.energy.free_energy, right)
            for question in load_fusion_items(path, LAMBDA)
            for candidate, right in zip(question.candidates, question.correct, strict=True)
            if candidate.energy is not None
        ]
        found[name] = {
            "right": sorted(round(f, 4) for f, right in pairs if right),
            "wrong": sorted(round(f, 4) for f, right in pairs if not right),
        }
    return found


def tokens() -> Data:
    """Two recorded candidates of one question, token by token: the surest right one and the least sure wrong one."""
    texts = [item.query for item in open_recording(RECORDED["numbers"]).items()]
    for text, question in zip(texts, load_fusion_items(RECORDED["numbers"], LAMBDA), strict=True):
        scored = [
            (candidate.energy.free_energy, right, index)
            for index, (candidate, right) in enumerate(zip(question.candidates, question.correct, strict=True))
            if candidate.energy is not None
        ]
        right, wrong = (
            min((s for s in scored if s[1]), default=None),
            max((s for s in scored if not s[1]), default=None),
        )
        if not (right and wrong and right[0] < 0.03 < 0.3 < wrong[0]):
            continue
        if len(question.candidates[wrong[2]].tokens) < 24:
            picked = [("right", right[2]), ("wrong", wrong[2])]
            figures = {name: _token_figures(question, index) for name, index in picked}
            return {"question": text} | figures
    raise LookupError("no recorded question has a sure right and an unsure wrong candidate")


def _token_figures(question: Any, index: int) -> Data:
    candidate = question.candidates[index]
    energy = candidate.energy
    return {
        "tokens": [[token.text, token.logprob] for token in candidate.tokens],
        "E": round(energy.energy, 4),
        "V": round(energy.varentropy, 3),
        "F": round(energy.free_energy, 4),
    }


def posterior() -> Data:
    """d(x, y_fast) of a direct answer over the rank of its probability, for four priors."""
    ranks = np.linspace(0, 1, 61)
    uniform = {("direct", name): (np.arange(LEVELS) + 0.5) / LEVELS for name in RANKED}
    model, tables = PosteriorDifficulty.load(), QuantileTables(uniform)
    curves = {}
    for prior in PRIORS:
        answers = [AnswerSignals(AnswerKind.DIRECT, prior, True, 5.0, r, float(r)) for r in 1 - ranks]
        curves[f"{prior}"] = [round(float(d), 4) for d in model.predict(SignalArrays.from_answers(answers), tables)]
    return {"unsureness": [round(float(r), 3) for r in ranks], "posterior": curves}


def answer_energy() -> Data:
    """How the choice moves with β: three candidates of medium energy that agree, against one with a lower energy."""
    energies, groups = np.array([-0.2, 0.0, 0.3, -1.6]), np.array([0, 0, 0, 1])
    shares = []
    for beta in BETAS:
        ballot = Ballot(energies, groups, np.ones(4), beta)
        shares.append(round(float(free_energy_rule(ballot)[0][0]), 4))
    accuracy = {}
    for name, path in RECORDED.items():
        questions = load_fusion_items(path, LAMBDA)
        accuracy[name] = [
            round(
                float(np.mean([q.correct[Fusion("fep", beta).choose(q.candidates).winner] for q in questions])), 4
            )
            for beta in (*BETAS, np.inf)
        ]
    return {"betas": list(BETAS), "share of the answer three agree on": shares, "accuracy": accuracy}


FIGURES: dict[str, Callable[[], Data]] = {
    "answer-energy": answer_energy,
    "difficulty": difficulty,
    "free-energy": free_energy,
    "posterior": posterior,
    "tokens": tokens,
}


def digest(data: Data) -> str:
    """A digest of the numbers; the drawing contains it, so that a test can see whether it is up to date."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
