"""Made-up records: easy items need no slow agent, hard ones do, and the fast answer's energy tells a little."""

from __future__ import annotations

import numpy as np

from odar.calibration.evidence import evidence_of
from odar.calibration.fit import Incumbents
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.records import Attempt, Record
from odar.calibration.setup import Setup
from odar.difficulty.estimator import shipped_estimator
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.types import Step

SIZE = 240


def attempt(rng, step, chance, cost):
    correct = bool(rng.random() < chance)
    answer = "right" if correct else f"wrong {rng.integers(3)}"
    energy = rng.normal(0.2 if correct else 0.3, 0.1)
    return Attempt(step, "m", answer, correct, float(energy), 0.1, int(rng.integers(5, 60)), None, cost)


def population(seed=0, size=SIZE, fast=0.5, solve=0.75):
    """Items with d < 0.35 are always right; the others with these chances."""
    rng = np.random.default_rng(seed)
    records = []
    for i in range(size):
        d = float(rng.random())
        records.append(
            Record(
                id=str(i),
                query=f"q{i}",
                difficulty=d,
                fast=attempt(rng, Step.ANSWER, 1.0 if d < 0.35 else fast, 0.001),
                verify=attempt(rng, Step.VERIFY, 1.0 if d < 0.35 else solve, 0.004),
                solves=tuple(attempt(rng, Step.SOLVE, 1.0 if d < 0.35 else solve, 0.004) for _ in range(5)),
                solve_calls=5,
            )
        )
    return records


def evidence(**options):
    return evidence_of(population(**options), 0.1)


def setup(**options):
    """As it is before anything was measured."""
    return Setup(
        **{
            "thresholds": Thresholds(0.3, 0.7),
            "fusion": FusionFit(0.25, 0.0, np.ones(3)),
            "statistics": (None, None, None),
            "posterior": PosteriorDifficulty.load(),
            **options,
        }
    )


def incumbents(*, looks_first=True, estimator=False, **options):
    now = setup(**options) if looks_first else setup(**{"posterior": None, **options})
    return Incumbents(now, shipped_estimator() if estimator else None, PosteriorDifficulty.load(), looks_first)
