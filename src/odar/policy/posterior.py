"""Posterior difficulty: the estimate after the fast answer was seen (SPEC 5.11).

    d(x, y_fast) = σ(a + b·logit d(x) + quadratic in u and t + c·[no answer] + v·φ(x))

u is how unsure the fast answer is, as a z-score among that model's own answers: of −ln(mean token
probability) where only that is known, or F̃ itself (SPEC 5.5). t is the z-score of ln(1 + tokens), so that
terse and wordy models compare. A fast agent that rambled and stated no final answer has told us most of all.
φ(x) corrects the prior where the prompt and the kind of answer belong together. The whole estimates the chance that
the fast answer is wrong, on the scale of d(x).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.difficulty.estimator import Scaling, scaling_document, scaling_from
from odar.difficulty.features import FEATURES
from odar.errors import InputError
from odar.formats import check_format
from odar.types import Estimate

FORMAT = "odar-posterior/2"
Array = NDArray[np.float64]
ANSWER_TERMS = (
    "intercept", "logit_prior", "unsureness", "log_tokens", "unsureness_x_log_tokens", "unsureness_squared",
    "log_tokens_squared", "unanswered",
)  # fmt: skip
TERMS = (*ANSWER_TERMS, *FEATURES)
"""What the coefficients belong to, in order."""
RARE = 0.05
"""A feature that differs from its median in fewer queries of the fit than this has no say."""
_IS_FEATURE = np.array([term in FEATURES for term in TERMS])
_FIXED = 1e9
CLIP = 3.0
"""z-scores beyond this are glitches of a provider, not news; and the quadratic would turn around there."""


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

    def scores(self, probability: ArrayLike, tokens: ArrayLike) -> tuple[Array, Array]:
        """u and t of answers of this model, from their mean token probability and length."""
        u = (unsureness(probability) - self.unsureness_mean) / self.unsureness_scale
        t = (np.log1p(np.asarray(tokens, float)) - self.log_tokens_mean) / self.log_tokens_scale
        return u, t


def unsureness(probability: ArrayLike) -> Array:
    """−ln of the mean token probability.

    >>> unsureness([1.0]).tolist()
    [-0.0]
    """
    return np.asarray(-np.log(np.clip(np.asarray(probability, float), 1e-6, 1.0)))


class PosteriorDifficulty:
    """Logistic regression on the prior's logit, the fast answer's unsureness and length, and the prompt's features.

    Parameters:
        l2: ridge on what the answer says.
        l2_prompt: ridge on φ. The prior keeps the coefficient it has without φ, which spans it and would else take
            its place, with a sign that only holds for queries like those of the fit.
        start: another posterior that the ridge draws to, in place of zero: for few rows, `load()` and an l2 of 25.

    Attributes:
        coef_: one number for each of `TERMS`.
        scaling_: how φ is standardised.

    Where no features are given they count as average, and without `unanswered` every answer was stated.

    >>> sure = PosteriorDifficulty.load()
    >>> sure.update(0.5, unsureness=-1.0, log_tokens=-1.0) < sure.update(0.5, unsureness=1.0, log_tokens=1.0)
    True
    """

    def __init__(
        self, *, l2: float = 1.0, l2_prompt: float = 100.0, start: PosteriorDifficulty | None = None
    ) -> None:
        self.l2 = l2
        self.l2_prompt = l2_prompt
        self.start = start

    def fit(
        self,
        prior: ArrayLike,
        unsureness: ArrayLike,
        log_tokens: ArrayLike,
        wrong: ArrayLike,
        *,
        unanswered: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> PosteriorDifficulty:
        """Learn from z-scores, φ (n, 24) and whether the fast answer was wrong, by Newton's method."""
        if self.start:
            self.scaling_: Scaling = self.start.scaling_
        else:
            self.scaling_ = _scaling(
                np.zeros((1, len(FEATURES))) if features is None else np.asarray(features, float)
            )
        x, y = self._design(prior, unsureness, log_tokens, unanswered, features), np.asarray(wrong, float)
        if len(x) != len(y) or not len(y) or not np.isfinite(x).all():
            raise InputError("the posterior needs equally many, finite priors, answers and outcomes")
        gentle = np.where(_IS_FEATURE, self.l2_prompt, self.l2)
        if self.start:
            theta = _newton(x, y, self.start.coef_, gentle)
        else:
            # first without φ, for the prior's coefficient; which it keeps while φ corrects it
            theta = _newton(np.where(_IS_FEATURE, 0.0, x), y, np.zeros(len(TERMS)), np.full(len(TERMS), self.l2))
            if features is not None:
                theta = _newton(x, y, theta, np.where(np.array(TERMS) == "logit_prior", _FIXED, gentle))
        self.coef_: Array = theta
        self.about_: dict[str, Any] = {}
        return self

    def predict(
        self,
        prior: ArrayLike,
        unsureness: ArrayLike,
        log_tokens: ArrayLike,
        *,
        unanswered: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Array:
        """Posterior difficulty for columns of priors and z-scores."""
        logit = self._design(prior, unsureness, log_tokens, unanswered, features) @ self.coef_
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))))

    def update(
        self,
        prior: float,
        *,
        unsureness: float,
        log_tokens: float,
        unanswered: bool = False,
        features: ArrayLike | None = None,
    ) -> float:
        """Posterior of one query from z-scores; `unsureness` may be F̃, `features` come from `features_of`."""
        row = None if features is None else np.asarray(features, float)[None]
        found = self.predict([prior], [unsureness], [log_tokens], unanswered=[unanswered], features=row)
        return float(found[0])

    def _design(
        self,
        prior: ArrayLike,
        unsureness: ArrayLike,
        log_tokens: ArrayLike,
        unanswered: ArrayLike | None,
        features: ArrayLike | None,
    ) -> Array:
        """One column for each of `TERMS`."""
        d = np.clip(np.asarray(prior, float), 1e-6, 1 - 1e-6)
        u, t = (np.clip(np.asarray(v, float), -CLIP, CLIP) for v in (unsureness, log_tokens))
        silent = np.zeros_like(d) if unanswered is None else np.asarray(unanswered, float)
        phi = np.zeros((len(d), len(FEATURES))) if features is None else self.scaling_(np.asarray(features, float))
        phi = np.clip(phi, -CLIP, CLIP)
        return np.column_stack([np.ones_like(d), np.log(d / (1 - d)), u, t, u * t, u * u, t * t, silent, phi])

    def document(self, statistics: Mapping[str, AnswerStatistics] | None = None) -> dict[str, Any]:
        """What a saved file holds."""
        return {
            "format": FORMAT,
            "coefficients": dict(zip(TERMS, np.round(self.coef_, 6).tolist(), strict=True)),
            "scaling": scaling_document(self.scaling_),
            "l2": self.l2,
            "l2_prompt": self.l2_prompt,
            "statistics": {m: asdict(s) for m, s in (statistics or {}).items()},
            "about": self.about_,
        }

    @classmethod
    def from_document(cls, raw: Any, name: str = "posterior") -> PosteriorDifficulty:
        """From a saved file's content; another version or shape is refused."""
        found = raw.get("format") if isinstance(raw, dict) else None
        check_format(found, FORMAT, name, "run `odar calibrate` again")
        coefficients = raw.get("coefficients", {})
        if tuple(coefficients) != TERMS:
            raise InputError(f"{name}: coefficients {sorted(coefficients)}; expected {list(TERMS)}")
        model = cls(l2=float(raw.get("l2", 1.0)), l2_prompt=float(raw.get("l2_prompt", 100.0)))
        model.coef_ = np.array([float(coefficients[t]) for t in TERMS])
        model.scaling_ = scaling_from(raw.get("scaling", {}), name)
        model.about_ = raw.get("about", {})
        return model

    @classmethod
    def fitted(cls, document: Any = None, name: str = "") -> PosteriorDifficulty:
        """The coefficients that a calibration of this name found, or else the shipped ones."""
        return cls.load() if document is None else cls.from_document(document, f"the posterior of {name}")

    @classmethod
    def load(cls) -> PosteriorDifficulty:
        """The shipped coefficients."""
        return cls.from_document(_shipped(), "posterior.json")


def _newton(x: Array, y: Array, origin: Array, ridge: Array) -> Array:
    """The coefficients of a logistic regression that a ridge draws to `origin`."""
    # none on the intercept but a trace, which keeps the step finite where every outcome is the same
    penalty = np.diag(np.append(1e-6, ridge[1:] + 1e-9))
    theta = origin.copy()
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ theta, -30, 30)))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(curvature, x.T @ (y - p) - penalty @ (theta - origin))
        theta = theta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-7:
            break
    return theta


def _scaling(features: Array) -> Scaling:
    """As the estimator's, but what hardly varies in the fit has no say: a few proofs teach nothing."""
    scaling = Scaling.fit(features)
    usual = np.median(features, axis=0)
    rare = (features == usual).mean(axis=0) > 1 - RARE
    low, high = (np.where(rare, scaling.mean, bound) for bound in (scaling.low, scaling.high))
    return Scaling(scaling.mean, scaling.scale, low, high)


def features_of(estimate: Estimate) -> Array | None:
    """φ(x) as an estimate shows it; None where the estimator does not use the 24 features.

    >>> features_of(Estimate(0.5, "constant")) is None
    True
    """
    values = {name: value for name, value, _ in estimate.contributions}
    return np.array([values[f] for f in FEATURES]) if set(FEATURES) <= values.keys() else None


@cache
def _shipped() -> Any:
    return json.loads(resources.files("odar.policy").joinpath("posterior.json").read_text("utf-8"))
