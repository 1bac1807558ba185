"""Posterior difficulty: the estimate after the fast answer was seen (SPEC 5.11).

    d(x, y_fast) = σ(a + b·logit d(x) + quadratic in u and t)

u is how unsure the fast answer is, as a z-score among that model's own answers: of −ln(mean token
probability) where only that is known, or F̃ itself (SPEC 5.5). t is the z-score of ln(1 + tokens), so that
terse and wordy models compare. It estimates the chance that the fast answer is wrong, on the scale of d(x).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.errors import InputError

FORMAT = "odar-posterior/1"
_TERMS = (
    "intercept", "logit_prior", "unsureness", "log_tokens", "unsureness_x_log_tokens", "unsureness_squared",
    "log_tokens_squared",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnswerStatistics:
    """Mean and deviation of unsureness and ln(1 + tokens) over a model's own answers."""

    unsureness_mean: float
    unsureness_scale: float
    log_tokens_mean: float
    log_tokens_scale: float

    @classmethod
    def fit(cls, probability: ArrayLike, tokens: ArrayLike) -> AnswerStatistics:
        """From the mean token probability and length of some answers of one model."""
        u, t = unsureness(probability), np.log1p(np.asarray(tokens, float))
        return cls(float(u.mean()), float(u.std()) or 1.0, float(t.mean()), float(t.std()) or 1.0)


def unsureness(probability: ArrayLike) -> NDArray[np.float64]:
    """−ln of the mean token probability.

    >>> unsureness([1.0]).tolist()
    [-0.0]
    """
    return np.asarray(-np.log(np.clip(np.asarray(probability, float), 1e-6, 1.0)))


class PosteriorDifficulty:
    """Logistic regression, to second order, on the prior's logit, the fast answer's unsureness and length.

    Parameters:
        l2: ridge on all coefficients but the intercept.

    Attributes:
        coef_: one number for each of intercept, logit_prior, unsureness, log_tokens, and their products.

    >>> sure = PosteriorDifficulty.load()
    >>> sure.update(0.5, unsureness=-1.0, log_tokens=-1.0) < sure.update(0.5, unsureness=1.0, log_tokens=1.0)
    True
    """

    def __init__(self, *, l2: float = 1.0) -> None:
        self.l2 = l2

    def fit(
        self, prior: ArrayLike, unsureness: ArrayLike, log_tokens: ArrayLike, escalate: ArrayLike
    ) -> PosteriorDifficulty:
        """Learn from z-scores and from whether the fast answer was wrong, by Newton's method."""
        x, y = _design(prior, unsureness, log_tokens), np.asarray(escalate, float)
        if len(x) != len(y) or not len(y) or not np.isfinite(x).all():
            raise InputError("the posterior needs equally many, finite priors, answers and outcomes")
        ridge = np.diag([0.0] + [self.l2] * (x.shape[1] - 1))
        ridge[0, 0] = 1e-6  # keeps the step finite where every outcome is the same
        theta = np.zeros(x.shape[1])
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(x @ theta, -30, 30)))
            step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge, x.T @ (y - p) - ridge @ theta)
            theta = theta + np.clip(step, -2, 2)
            if np.abs(step).max() < 1e-9:
                break
        self.coef_ = theta
        self.about_: dict[str, Any] = {}
        return self

    def predict(self, prior: ArrayLike, unsureness: ArrayLike, log_tokens: ArrayLike) -> NDArray[np.float64]:
        """Posterior difficulty for columns of priors and z-scores."""
        logit = _design(prior, unsureness, log_tokens) @ self.coef_
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))))

    def update(self, prior: float, *, unsureness: float, log_tokens: float) -> float:
        """Posterior of one query from z-scores; `unsureness` may be F̃."""
        return float(self.predict([prior], [unsureness], [log_tokens])[0])

    def observe(self, prior: float, *, mean_probability: float, tokens: int, statistics: AnswerStatistics) -> float:
        """Posterior of one query from the raw fast answer and its model's statistics."""
        u = -math.log(min(1.0, max(1e-6, mean_probability)))
        return self.update(
            prior,
            unsureness=(u - statistics.unsureness_mean) / statistics.unsureness_scale,
            log_tokens=(math.log1p(tokens) - statistics.log_tokens_mean) / statistics.log_tokens_scale,
        )

    def document(self, statistics: dict[str, AnswerStatistics] | None = None) -> dict[str, Any]:
        """What a saved file holds."""
        return {
            "format": FORMAT,
            "coefficients": dict(zip(_TERMS, np.round(self.coef_, 6).tolist(), strict=True)),
            "l2": self.l2,
            "statistics": {m: asdict(s) for m, s in (statistics or {}).items()},
            "about": self.about_,
        }

    @classmethod
    def from_document(cls, raw: Any, name: str = "posterior") -> PosteriorDifficulty:
        """From a saved file's content; another version or shape is refused."""
        found = raw.get("format") if isinstance(raw, dict) else None
        if found != FORMAT:
            raise InputError(
                f"{name}: format {found!r}, this version reads {FORMAT!r}; refit with `odar calibrate`"
            )
        coefficients = raw.get("coefficients", {})
        if tuple(coefficients) != _TERMS:
            raise InputError(f"{name}: coefficients {sorted(coefficients)}; expected {list(_TERMS)}")
        model = cls(l2=float(raw.get("l2", 1.0)))
        model.coef_ = np.array([float(coefficients[t]) for t in _TERMS])
        model.about_ = raw.get("about", {})
        return model

    @classmethod
    def fitted(cls, document: Any = None) -> PosteriorDifficulty:
        """The coefficients a calibration found, or else the shipped ones."""
        return cls.load() if document is None else cls.from_document(document)

    @classmethod
    def load(cls) -> PosteriorDifficulty:
        """The shipped coefficients."""
        return cls.from_document(_shipped(), "posterior.json")


def shipped_statistics() -> dict[str, AnswerStatistics]:
    """Answer statistics of the models the shipped coefficients were fitted on, on MMLU-Pro prompts."""
    return {model: AnswerStatistics(**values) for model, values in _shipped()["statistics"].items()}


@cache
def _shipped() -> Any:
    return json.loads(resources.files("odar.difficulty").joinpath("data", "posterior.json").read_text("utf-8"))


def _design(prior: ArrayLike, unsureness: ArrayLike, log_tokens: ArrayLike) -> NDArray[np.float64]:
    d = np.clip(np.asarray(prior, float), 1e-6, 1 - 1e-6)
    # z-scores beyond 4 are glitches of a provider, not news
    u, t = (np.clip(np.asarray(v, float), -4, 4) for v in (unsureness, log_tokens))
    prior_logit = np.log(d / (1 - d))
    columns: Sequence[NDArray[np.float64]] = (
        np.ones_like(d), prior_logit, u, t, u * t, u * u, t * t,
    )  # fmt: skip
    return np.column_stack(columns)
