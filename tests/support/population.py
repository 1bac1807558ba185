"""Synthetic items: easy ones need no slow agent, hard ones do, and the energy of the fast answer is slightly informative."""

from __future__ import annotations

import functools

import numpy as np

from odar.calibration.evidence import evidence_of
from odar.calibration.fit import CurrentParts
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.setup import Setup
from odar.difficulty.estimator import shipped_estimator
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.recording.schema import Attempt, ItemKey, RecordedItem
from odar.types import Step

SIZE = 240


def attempt(rng, step, chance, cost, index=0):
    """An answer of some tokens, each of ten characters and of the same log-probability: V is 0, E is drawn."""
    correct = bool(rng.random() < chance)
    answer = "right" if correct else f"wrong {rng.integers(3)}"
    energy, count = float(rng.normal(0.2 if correct else 0.3, 0.1)), int(rng.integers(5, 60))
    text = "so " * int(rng.integers(60, 800)) + f"{answer}·{index}"
    return Attempt(
        step=step, index=index, model="m", text=text, answer=answer, score=float(correct),
        tokens=("x",) * count, logprobs=(-energy,) * count, control=(False,) * count,
        request=list(Step).index(step) + index, prompt_usd=0.0, output_usd=cost, seconds=1.0,
    )  # fmt: skip


def population(seed=0, size=SIZE, fast=0.5, solve=0.75):
    """Items with d < 0.35 are always right; the others with these chances."""
    rng = np.random.default_rng(seed)
    items = []
    for i in range(size):
        d = float(rng.random())
        slow = 1.0 if d < 0.35 else solve
        attempts = (
            attempt(rng, Step.ANSWER, 1.0 if d < 0.35 else fast, 0.001),
            attempt(rng, Step.VERIFY, slow, 0.004),
            *(attempt(rng, Step.SOLVE, slow, 0.004, index) for index in range(5)),
        )
        items.append(
            RecordedItem(
                key=ItemKey("made-up", str(i), 42), category="", metric="accuracy", stratum="", fold=i % 5,
                query=f"q{i}", gold=["right"], effort=None, features=(), difficulty=d, expert="general",
                attempts=attempts,
            )
        )  # fmt: skip
    return items


@functools.cache
def evidence(**options):
    """Evidence of a population; made once for the same options, as every question is parsed."""
    return evidence_of(population(**options), 0.1)


def setup(**options):
    """Return a setup without measured statistics."""
    return Setup(
        **{
            "thresholds": Thresholds(0.3, 0.7),
            "fusion": FusionFit(0.25, 0.0, np.ones(3)),
            "statistics": (None, None, None),
            "posterior": PosteriorDifficulty.load(),
            **options,
        }
    )


def current_parts(*, may_use_posterior=True, estimator=False, **options):
    now = setup(**options) if may_use_posterior else setup(**{"posterior": None, **options})
    return CurrentParts(
        now, shipped_estimator() if estimator else None, PosteriorDifficulty.load(), may_use_posterior
    )
