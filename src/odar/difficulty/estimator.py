"""The learned difficulty estimator, d(x) = m(σ(W·φ(x) + b)) with a monotone map m (SPEC 2).

It is trained by `odar.lab.training`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.difficulty.features import FEATURES, PARSED, phi
from odar.difficulty.text import DATA
from odar.errors import InputError
from odar.formats import check_format, load_json
from odar.types import Estimate, Query

FORMAT = "odar-estimator/3"
Array = NDArray[np.float64]
COUNTS = (
    "char_length", "word_count", "token_count", "sentence_count", "clause_count", "question_marks", "parse_depth",
    "logical_connectives",
)  # fmt: skip
"""Features that are used as ln(1 + count): the tenth sentence adds less than the second (docs/lab-notes.md)."""
IS_COUNT = np.array([feature in COUNTS for feature in FEATURES])
_MAX_LOGIT = 40.0
"""Limit for logits: beyond it exp would overflow, and σ is 0 or 1 to every digit."""
Knots = tuple[tuple[float, float], ...]
"""A monotone map from [0, 1] to [0, 1]: points that are joined by straight lines."""
IDENTITY: Knots = ((0.0, 0.0), (1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Scaling:
    """Standardisation of φ: logarithms of counts, clipped to the range of the training texts, centred and scaled.

    Because of the clip, a query of 100 kB is not hard by its length alone.
    """

    mean: Array
    scale: Array
    low: Array
    high: Array

    def __call__(self, x: Array) -> Array:
        """φ on the scale of the weights."""
        return (np.clip(logarithmic(x), self.low, self.high) - self.mean) / self.scale


@dataclass(frozen=True)
class LearnedEstimator:
    """Logistic unit on the 24 features.

    >>> LearnedEstimator.load().estimate(Query("Is Paris the capital of France?")).difficulty < 0.3
    True
    """

    weights: Array
    """(24,) for standardised features."""
    bias: float
    scaling: Scaling
    map: Knots = IDENTITY
    """m (SPEC 2.10)."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """How it was trained: rates, epochs, seeds, and the loss of each run."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the weights."""
    name: str = "learned/3"

    def predict(self, x: ArrayLike) -> Array:
        """d of each row of features (n, 24) (SPEC 2.1)."""
        return self._mapped(self.scaling(np.asarray(x, float)) @ self.weights + self.bias)

    def estimate(self, query: Query) -> Estimate:
        """d(x) from all 24 features, with (feature, value, W·φ) for each (SPEC 2.1)."""
        return self._estimate(phi(query))

    def estimate_without_parse(self, query: Query) -> Estimate:
        """d(x) with f9, f10 and f13 at the middle of their bounds, where they add nothing to the logit."""
        x = phi(query, parse=False)
        for index in PARSED:
            x[index] = math.expm1((self.scaling.low[index] + self.scaling.high[index]) / 2)
        return self._estimate(x)

    def _estimate(self, x: Sequence[float]) -> Estimate:
        shares = (self.scaling(np.array(x)) * self.weights).tolist()
        difficulty = float(self._mapped(np.array(sum(shares) + self.bias)))
        return Estimate(difficulty, self.name, tuple(zip(FEATURES, x, shares, strict=True)))

    def _mapped(self, logit: Array) -> Array:
        """m(σ(logit))."""
        knots = np.array(self.map)
        return np.asarray(np.interp(sigmoid(logit), knots[:, 0], knots[:, 1]), float)

    def save(self, path: Path) -> None:
        def by_feature(values: Array) -> dict[str, float]:
            return dict(zip(FEATURES, np.round(values, 6).tolist(), strict=True))

        document = {
            "format": FORMAT,
            "weights": by_feature(self.weights),
            "bias": round(self.bias, 6),
            "scaling": {part: by_feature(values) for part, values in asdict(self.scaling).items()},
            "map": [list(knot) for knot in self.map],
            "training": self.training,
            "about": self.about,
        }
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> LearnedEstimator:
        """Read a saved estimator; by default the shipped one.

        Raises:
            InputError: it is missing, of another version, or damaged.
        """
        source = path or DATA.joinpath("estimator.json")
        try:
            raw = load_json(source.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: not an estimator file ({error})") from error
        saved_format = raw.get("format") if isinstance(raw, dict) else None
        check_format(saved_format, FORMAT, str(source), "train it again (`odar train`)")
        try:
            scaling = [_vector(raw["scaling"][part.name], f"{source}: {part.name}") for part in fields(Scaling)]
            model = cls(
                _vector(raw["weights"], f"{source}: weights"),
                float(raw["bias"]),
                Scaling(*scaling),
                _knots(raw["map"], str(source)),
                raw["training"],
                raw["about"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{source}: {type(error).__name__} at {error}: the file is damaged") from error
        return model if path is None else replace(model, name=f"{cls.name} ({path.name})")


def sigmoid(logit: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(logit, -_MAX_LOGIT, _MAX_LOGIT)))


def logarithmic(x: Array) -> Array:
    """Features with counts as ln(1 + count)."""
    return np.where(IS_COUNT, np.log1p(np.maximum(x, 0)), x)


def _knots(raw: Any, name: str) -> Knots:
    """The map of a file; raise InputError if it does not increase strictly from (0, 0) to (1, 1)."""
    knots = tuple((float(x), float(y)) for x, y in raw)
    rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(knots))
    if len(knots) < 2 or not rising or (*knots[0], *knots[-1]) != (0.0, 0.0, 1.0, 1.0):
        raise InputError(f"{name}: the map of d does not rise from (0, 0) to (1, 1): the file is damaged")
    return knots


def _vector(values: Mapping[str, float], where: str) -> Array:
    if tuple(values) != FEATURES:
        missing = sorted(set(FEATURES) ^ set(values)) or "the order"
        raise InputError(f"{where}: features differ from the {len(FEATURES)} of this version ({missing})")
    vector = np.array([values[f] for f in FEATURES], float)
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: not all numbers are finite")
    return vector


@cache
def shipped_estimator() -> LearnedEstimator:
    return LearnedEstimator.load()
