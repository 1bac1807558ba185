"""The learned difficulty estimator, d(x) = m(σ(W·φ(x) + b)) with a monotone map m, and its training (SPEC 2)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odar.difficulty.features import FEATURES, PARSED, parsed_features, unparsed_features
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
_MAX_LOGIT = 40.0
"""Limit for logits: beyond it exp would overflow, and σ is 0 or 1 to every digit."""
Knots = tuple[tuple[float, float], ...]
"""A monotone map from [0, 1] to [0, 1]: points that are joined by straight lines."""
IDENTITY: Knots = ((0.0, 0.0), (1.0, 1.0))
SEEDS = (42, 123, 456)
EPOCHS = 50
"""Number of epochs in the paper."""
STEPS = 10_000
"""Minimum number of steps: with few rows, Adam does not converge in 50 epochs."""
START_PENALTY = 2.0
"""λ times rows for ‖W − W_start‖²: the variance of d* (0.14²) over that of the weights around the start (0.1²)."""
MIN_ROWS = 40
"""Minimum number of rows for a fit that starts from another estimator."""
_PARSED_SPREAD = 1.5
"""Standard deviations to which f9, f10 and f13 are clipped, so that d differs little without the parse."""
_PARSE_PENALTY = 40.0
"""Factor of λ for f9, f10 and f13, which need the expensive parse."""
_BATCH = 32
_IS_COUNT = np.array([feature in COUNTS for feature in FEATURES])


@dataclass(frozen=True, slots=True)
class Scaling:
    """Standardisation of φ: logarithms of counts, clipped to the range of the training texts, centred and scaled.

    Because of the clip, a query of 100 kB is not hard by its length alone.
    """

    mean: Array
    scale: Array
    low: Array
    high: Array

    @classmethod
    def fit(cls, x: Array, tail: float = 0.005) -> Scaling:
        """Fit means, deviations and bounds. The scale of a constant feature is 1; flags are not clipped.

        f9, f10 and f13 are centred at the middle of their bounds, where they add nothing to the logit.
        """
        flags = ((x == 0) | (x == 1)).all(axis=0) & ~_IS_COUNT
        x = _logarithmic(x)
        low, high = np.quantile(x, tail, axis=0), np.quantile(x, 1 - tail, axis=0)
        low, high = np.where(flags, 0.0, low), np.where(flags, 1.0, high)
        clipped = np.clip(x, low, high)
        mean, deviation = clipped.mean(axis=0), clipped.std(axis=0)
        parsed = list(PARSED)
        spread = _PARSED_SPREAD * deviation
        low[parsed], high[parsed] = (mean - spread)[parsed], (mean + spread)[parsed]
        clipped = np.clip(x, low, high)
        mean, deviation = clipped.mean(axis=0), clipped.std(axis=0)
        mean[parsed] = (low + high)[parsed] / 2
        return cls(mean, np.where(deviation > 1e-9, deviation, 1.0), low, high)

    def __call__(self, x: Array) -> Array:
        """φ on the scale of the weights."""
        return (np.clip(_logarithmic(x), self.low, self.high) - self.mean) / self.scale


class LearnedEstimator:
    """Logistic unit on the 24 features, trained by Adam on MSE + λ‖W‖² (SPEC 2.6).

    Parameters:
        learning_rate, l2, epochs: as in the paper.
        seeds: one run each; their weights are averaged, which for a linear unit is the mean logit.
        start: estimator whose scaling and map are used, and whose weights the fit starts from and is regularised
            to: λ‖W − W_start‖².

    Attributes:
        weights_: (24,) for standardised features.
        bias_: float.
        scaling_: the `Scaling` of the training features.
        map_: the `Knots` of m (SPEC 2.10).
        runs_: seed and final loss of each run.
        about_: provenance of the weights; saved with them.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 24))
    >>> y = 1 / (1 + np.exp(-x[:, 3]))
    >>> model = LearnedEstimator(epochs=60, learning_rate=0.01, l2=0.0).fit(x, y)
    >>> bool(np.corrcoef(model.predict(x), y)[0, 1] > 0.95)
    True
    """

    name = "learned/3"

    def __init__(
        self,
        *,
        learning_rate: float = 1e-3,
        l2: float = 0.01,
        epochs: int = EPOCHS,
        seeds: Sequence[int] = SEEDS,
        start: LearnedEstimator | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.l2 = l2
        self.epochs = epochs
        self.seeds = seeds
        self.start = start

    def fit(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> LearnedEstimator:
        """Fit to features (n, 24) and targets d* in [0, 1] (SPEC 2.5)."""
        features, target = np.asarray(x, float), np.asarray(y, float)
        if features.ndim != 2 or features.shape[1] != len(FEATURES) or len(features) != len(target):
            raise InputError(
                f"features of shape {features.shape} and {len(target)} targets; expected (n, {len(FEATURES)})"
            )
        if not len(target) or not np.isfinite(features).all() or not ((target >= 0) & (target <= 1)).all():
            raise InputError("training needs at least one row, finite features and targets in [0, 1]")
        self.map_: Knots = self.start.map_ if self.start else IDENTITY
        weight = np.ones(len(target)) if sample_weight is None else np.asarray(sample_weight, float)
        self.scaling_: Scaling = self.start.scaling_ if self.start else Scaling.fit(features)
        z = self.scaling_(features)
        weight = weight / weight.mean()
        fits = [self._adam(z, target, weight, np.random.default_rng(seed)) for seed in self.seeds]
        stacked = np.mean(fits, axis=0)
        self.weights_ = stacked[:-1]
        self.bias_ = float(stacked[-1])
        errors = [(self._mapped(z @ each[:-1] + each[-1]) - target) ** 2 for each in fits]
        self.runs_ = [
            {"seed": seed, "mse": float(np.average(error, weights=weight))}
            for seed, error in zip(self.seeds, errors, strict=True)
        ]
        self.about_: dict[str, Any] = {}
        return self

    def predict(self, x: ArrayLike) -> Array:
        """d of each row of features (n, 24) (SPEC 2.1)."""
        return self._mapped(self.scaling_(np.asarray(x, float)) @ self.weights_ + self.bias_)

    def estimate(self, query: Query) -> Estimate:
        """d(x) from all 24 features, with (feature, value, W·φ) for each (SPEC 2.1)."""
        return self._estimate(parsed_features(query, unparsed_features(query)))

    def estimate_without_parse(self, query: Query) -> Estimate:
        """d(x) with f9, f10 and f13 at the middle of their bounds, where they add nothing to the logit."""
        x = unparsed_features(query)
        for index in PARSED:
            x[index] = math.expm1((self.scaling_.low[index] + self.scaling_.high[index]) / 2)
        return self._estimate(x)

    def _estimate(self, x: Sequence[float]) -> Estimate:
        shares = (self.scaling_(np.array(x)) * self.weights_).tolist()
        difficulty = float(self._mapped(np.array(sum(shares) + self.bias_)))
        return Estimate(difficulty, self.name, tuple(zip(FEATURES, x, shares, strict=True)))

    def _mapped(self, logit: Array) -> Array:
        """m(σ(logit))."""
        knots = np.array(self.map_)
        return np.asarray(np.interp(_sigmoid(logit), knots[:, 0], knots[:, 1]), float)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "weights": dict(zip(FEATURES, np.round(self.weights_, 6).tolist(), strict=True)),
            "bias": round(self.bias_, 6),
            "scaling": {
                part: dict(zip(FEATURES, np.round(values, 6).tolist(), strict=True))
                for part, values in asdict(self.scaling_).items()
            },
            "map": [list(knot) for knot in self.map_],
            "training": {
                "learning_rate": self.learning_rate,
                "batch_size": _BATCH,
                "l2": self.l2,
                "epochs": self.epochs,
                "seeds": list(self.seeds),
                "runs": self.runs_,
            },
            "about": self.about_,
        }

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> LearnedEstimator:
        """Read a saved estimator; by default the shipped one. Raise InputError for another version or shape."""
        source = path or DATA.joinpath("estimator.json")
        try:
            raw = load_json(source.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{source}: not an estimator file ({error})") from error
        model = cls.from_dict(raw, str(source))
        if path is not None:
            model.name = f"{cls.name} ({path.name})"
        return model

    @classmethod
    def from_dict(cls, raw: Any, name: str) -> LearnedEstimator:
        """Read what `to_dict` wrote; raises InputError for another version or shape."""
        saved_format = raw.get("format") if isinstance(raw, dict) else None
        check_format(saved_format, FORMAT, name, "train it again (`odar train`)")
        try:
            training = raw["training"]
            scaling = raw["scaling"]
            hyperparameters = {name: training[name] for name in ("learning_rate", "l2", "epochs")}
            model = cls(**hyperparameters, seeds=tuple(training["seeds"]))
            model.weights_ = _vector(raw["weights"], f"{name}: weights")
            model.bias_ = float(raw["bias"])
            names = [field.name for field in fields(Scaling)]
            model.scaling_ = Scaling(*(_vector(scaling[part], f"{name}: {part}") for part in names))
            model.map_ = _knots(raw["map"], name)
            model.runs_ = training["runs"]
            model.about_ = raw["about"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{name}: {type(error).__name__} at {error}: the file is damaged") from error
        return model

    def _adam(self, z: Array, target: Array, weight: Array, rng: np.random.Generator) -> Array:
        """(W, b) of one run, in one vector. The bias is not regularised."""
        origin = np.append(self.start.weights_, self.start.bias_) if self.start else np.zeros(z.shape[1] + 1)
        theta = origin.copy()
        first, second = np.zeros_like(theta), np.zeros_like(theta)
        padded = np.column_stack([z, np.ones(len(z))])
        shrink = np.append(np.full(z.shape[1], self.l2), 0.0)
        shrink[list(PARSED)] *= _PARSE_PENALTY
        knots = np.array(self.map_)
        slopes = np.diff(knots[:, 1]) / np.diff(knots[:, 0])
        step = 0
        for _ in range(self.epochs):
            order = rng.permutation(len(z))
            for start in range(0, len(z), _BATCH):
                rows = order[start : start + _BATCH]
                batch = padded[rows]
                w = weight[rows]
                raw = _sigmoid(batch @ theta)
                segment = np.searchsorted(knots[1:-1, 0], raw, side="right")
                d = knots[segment, 1] + slopes[segment] * (raw - knots[segment, 0])
                logit_gradient = 2 * w * (d - target[rows]) * slopes[segment] * raw * (1 - raw) / len(rows)
                gradient = logit_gradient @ batch + 2 * shrink * (theta - origin)
                step += 1
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                rate = self.learning_rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                theta -= rate * first / (np.sqrt(second) + 1e-8)
        return theta


def _sigmoid(logit: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(logit, -_MAX_LOGIT, _MAX_LOGIT)))


def _logarithmic(x: Array) -> Array:
    return np.where(_IS_COUNT, np.log1p(np.maximum(x, 0)), x)


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


def d_star(failure: ArrayLike, effort: ArrayLike) -> Array:
    """The targets of SPEC 2.5: ½·T/max T + ½·(1 − Acc_fast), or the failure alone where T is NaN.

    The longest one per cent count as max T: a single outlier would push all others to zero.

    >>> d_star([1.0, 0.0, 0.25], [10.0, 5.0, np.nan]).round(2).tolist()
    [1.0, 0.25, 0.25]
    """
    failed: Array = np.clip(np.asarray(failure, float), 0, 1)
    time = np.asarray(effort, float)
    known = np.isfinite(time)
    if not known.any() or np.quantile(time[known], 0.99) <= 0:
        return failed
    share = np.clip(time / np.quantile(time[known], 0.99), 0, 1)
    return np.where(known, 0.5 * share + 0.5 * failed, failed)


def check_row_count(rows: int) -> None:
    """Raise InputError if there are too few rows to fit 24 weights."""
    if rows < MIN_ROWS:
        raise InputError(f"{rows} rows cannot teach an estimator; at least {MIN_ROWS} are needed")


def fit_features(
    x: Array,
    targets: ArrayLike,
    start: LearnedEstimator | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    epochs: int | None = None,
) -> LearnedEstimator:
    """Fit an estimator to the features of queries and their d* in [0, 1] (SPEC 2.6).

    Args:
        x: φ of each query, (n, 24); see `phi_batch`.
        targets: difficulty of each query; see `d_star`.
        start: estimator to start from and to stay near; None: to train from scratch.
        seeds: one run each; their weights are averaged.
        epochs: passes over the data; by default 50, or more if there are few rows.
    """
    epochs = epochs or max(EPOCHS, math.ceil(STEPS * _BATCH / len(x)))
    l2 = START_PENALTY / len(x) if start else 0.01
    return LearnedEstimator(l2=l2, epochs=epochs, seeds=tuple(seeds), start=start).fit(x, targets)


def cross_predict(
    x: Array, targets: Array, start: LearnedEstimator | None = None, epochs: int | None = None
) -> Array:
    """d of every row, predicted by an estimator that was fitted to the other four fifths of the rows."""
    seed = SEEDS[0]
    fold = np.random.default_rng(seed).permutation(len(x)) % 5
    predicted = np.zeros(len(x))
    for held_out in range(5):
        seen = fold != held_out
        model = fit_features(x[seen], targets[seen], start, seeds=(seed,), epochs=epochs)
        predicted[~seen] = model.predict(x[~seen])
    return predicted
