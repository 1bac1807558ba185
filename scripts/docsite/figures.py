"""The data of the figures of the concept pages, computed by odar; plots.py draws them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from docsite.markdown import ROOT
from odar.difficulty.estimator import LearnedEstimator
from odar.lab.recording.files import open_recording
from odar.lab.recording.schema import Attempt
from odar.lab.replay.table import load_table
from odar.policy.base import FixedPolicy
from odar.policy.energy import measure_energy
from odar.policy.fusion import Fusion
from odar.policy.fusion_rules import Ballot, free_energy_rule
from odar.types import Energy, Query, Step

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
            (energy.free_energy, attempt.score == 1)
            for item in open_recording(path).items()
            for attempt in item.attempts
            if attempt.step is not Step.VERIFY and (energy := _energy(attempt)) is not None
        ]
        found[name] = {
            "right": sorted(round(f, 4) for f, right in pairs if right),
            "wrong": sorted(round(f, 4) for f, right in pairs if not right),
        }
    return found


def _energy(attempt: Attempt) -> Energy | None:
    return measure_energy(attempt.tokens, LAMBDA, None)


def tokens() -> Data:
    """Two recorded candidates of one question, token by token: the surest right one and the least sure wrong one."""
    for item in open_recording(RECORDED["numbers"]).items():
        scored = [
            (energy.free_energy, attempt.score == 1, index)
            for index, attempt in enumerate(item.attempts)
            if attempt.step is not Step.VERIFY and (energy := _energy(attempt)) is not None
        ]
        right, wrong = (
            min((s for s in scored if s[1]), default=None),
            max((s for s in scored if not s[1]), default=None),
        )
        if not (right and wrong and right[0] < 0.03 < 0.3 < wrong[0]):
            continue
        if len(item.attempts[wrong[2]].tokens) < 24:
            picked = [("right", right[2]), ("wrong", wrong[2])]
            figures = {name: _token_figures(item.attempts[index]) for name, index in picked}
            return {"question": item.query} | figures
    raise LookupError("no recorded question has a sure right and an unsure wrong candidate")


def _token_figures(attempt: Attempt) -> Data:
    energy = _energy(attempt)
    assert energy is not None
    return {
        "tokens": [[token.text, token.logprob] for token in attempt.tokens],
        "E": round(energy.energy, 4),
        "V": round(energy.varentropy, 3),
        "F": round(energy.free_energy, 4),
    }


def answer_energy() -> Data:
    """How the choice moves with β: three candidates of medium energy that agree, against one with a lower energy."""
    energies, groups = np.array([-0.2, 0.0, 0.3, -1.6]), np.array([0, 0, 0, 1])
    shares = []
    for beta in BETAS:
        ballot = Ballot(energies, groups, np.ones(4), beta)
        shares.append(round(float(free_energy_rule(ballot)[0][0]), 4))
    accuracy = {}
    for name, path in RECORDED.items():
        table = load_table(path)
        rules = [Fusion("fep", beta) for beta in (*BETAS, np.inf)]
        found = [table.walk(FixedPolicy((table.all_answers,)), fusion=rule) for rule in rules]
        accuracy[name] = [round(float(each.right.mean()), 4) for each in found]
    return {"betas": list(BETAS), "share of the answer three agree on": shares, "accuracy": accuracy}


FIGURES: dict[str, Callable[[], Data]] = {
    "answer-energy": answer_energy,
    "difficulty": difficulty,
    "free-energy": free_energy,
    "tokens": tokens,
}


def digest(data: Data) -> str:
    """A digest of the numbers; the drawing contains it, so that a test can see whether it is up to date."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
