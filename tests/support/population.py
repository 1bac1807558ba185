"""Synthetic recordings: agents that answer questions of random difficulty, with prices of 1 : 10."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odar.config import load_settings
from odar.lab.recording.schema import Attempt, ItemKey, RecordedItem
from odar.lab.replay.table import ReplayTable
from odar.types import FAST, SECOND, SLOW, Ask, Step, Token

MODELS = {
    "quick": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 0.1, "output": 0.4}, "family": "a"},
    "other": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 0.1, "output": 0.4}, "family": "b"},
    "deep": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}, "family": "c"},
}
MODEL_OF = {FAST: "quick", SECOND: "other", SLOW: "deep"}
COST = {FAST: 0.0001, SECOND: 0.0001, SLOW: 0.001}


def settings(**overrides):
    """Settings with the agents fast, second and slow."""
    agents = {f"{agent}__model": model for agent, model in MODEL_OF.items()}
    providers = {"p": {"kind": "openai"}}
    return load_settings(
        "tiny", environ={}, models=MODELS, providers=providers, calibration="",
        **{"policy": "cascade", **agents, **overrides},
    )  # fmt: skip


def attempt(rng, agent, chance, index=0, verify=False):
    """An answer that is right with this chance; wrong ones are seldom equal."""
    right = bool(rng.random() < chance)
    answer = "7" if right else str(rng.integers(100, 130))
    count = int(rng.integers(5, 60))
    logprob = -float(rng.uniform(0.01, 0.3 if right else 0.5))
    return Attempt(
        agent=agent, step=Step.VERIFY if verify else Ask(agent).step, index=index, model=MODEL_OF[agent],
        text=f"So it is {answer}.", answer=answer, score=float(right),
        tokens=(Token("x", logprob),) * count, request=index + 10 * verify,
        prompt_usd=0.1 * COST[agent], output_usd=0.9 * COST[agent], seconds=1.0,
    )  # fmt: skip


def population(size=240, seed=0, fast=0.7, slow=0.9, samples=5, labels=True):
    """Items on which fast and second are right with chance `fast`, slow with `slow`, less on difficult ones."""
    rng = np.random.default_rng(seed)
    items = []
    for i in range(size):
        easy = rng.normal(0, 1.0)
        chance = {agent: _shifted(skill, easy) for agent, skill in ((FAST, fast), (SECOND, fast), (SLOW, slow))}
        attempts = [attempt(rng, agent, chance[agent]) for agent in (FAST, SECOND)]
        attempts.append(attempt(rng, SLOW, chance[SLOW], verify=True))
        attempts += [attempt(rng, SLOW, chance[SLOW], index) for index in range(samples)]
        attempts = attempts if labels else [replace(each, score=None) for each in attempts]
        items.append(
            RecordedItem(
                key=ItemKey("made-up", str(i), 42), category="", metric="accuracy", fold=i % 5, query=f"What is q{i}?",
                gold=["7"] if labels else [], features=(), difficulty=float(rng.random()), expert="general",
                attempts=tuple(attempts),
            )
        )  # fmt: skip
    return items


def table(items, **overrides):
    """The replay table of items, without a calibration."""
    return ReplayTable(items, settings(**overrides), {step: step.value for step in Step})


def _shifted(chance, logit):
    return 1 / (1 + (1 - chance) / chance * np.exp(-logit))
