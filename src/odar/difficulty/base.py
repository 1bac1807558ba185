"""Difficulty estimators: the protocol, the baselines, the registry, and estimates for a conversation's last turn.

"Commit it" after a proof is short and still part of the proof. A short turn inherits difficulty from earlier user
turns, with a factor for each turn in between and a weight that falls with the number of its words:

    d = max(d_last, w · max_k 0.75^k · d_k)      k = 1 for the turn before, 2 for the one before that, …

with w = 1 up to 8 words, falling to 0 at 24. One turn after a hard one is at least Medium.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

from odar.difficulty.text import READ_LIMIT, lengths
from odar.files import user_path
from odar.question import core_question, earlier_questions
from odar.registry import Registry
from odar.types import Estimate, Query

DECAY = 0.75
MAX_EARLIER_TURNS = 4
"""Number of earlier turns that count: 0.75^5 is below the first threshold."""
SHORT_WORDS, LONG_WORDS = 8, 24
"""Words up to which a turn inherits fully, and from which it inherits nothing."""


class Estimator(Protocol):
    """Estimates the difficulty of a query, in [0, 1]. Deterministic, fast, without I/O."""

    @property
    def name(self) -> str:
        """Name of the estimator in traces."""
        ...

    def estimate(self, query: Query) -> Estimate:
        """Return the difficulty of the query."""
        ...


class Bounds(NamedTuple):
    """What is known of d without a dependency parse."""

    estimate: Estimate
    """d at the middle of the interval."""
    low: float
    high: float


class LazyEstimator(Estimator, Protocol):
    """An estimator that gives bounds for d first, and the exact value at a higher cost."""

    def estimate_bounds(self, query: Query) -> Bounds:
        """Return an interval for d."""
        ...

    def refine(self, query: Query, bounds: Bounds) -> Estimate:
        """Return the exact value."""
        ...


ESTIMATORS: Registry[Callable[[], Estimator]] = Registry(
    "estimator",
    {
        "constant": "odar.difficulty.base:ConstantEstimator",
        "learned": "odar.difficulty.estimator:shipped_estimator",
        "length": "odar.difficulty.base:LengthEstimator",
    },
    group="odar.estimators",
)
"""Estimators by name; each entry makes one when called without arguments."""


def open_estimator(name: str) -> Estimator:
    """Return an estimator by its registered name, or from a file that `odar calibrate --difficulty` wrote."""
    if name not in ESTIMATORS.names() and name.endswith(".json"):
        from odar.difficulty.estimator import LearnedEstimator

        return LearnedEstimator.load(user_path(name, setting="routing.estimator"))
    return ESTIMATORS[name]()


class ConstantEstimator:
    """The same difficulty for every query; with d = 0.5, always Medium."""

    name = "constant"

    def __init__(self, difficulty: float = 0.5) -> None:
        self.difficulty = difficulty

    def estimate(self, query: Query) -> Estimate:
        """Return the constant."""
        return Estimate(self.difficulty, self.name)


class LengthEstimator:
    """Difficulty by length: d = words / (words + 40), which is 0.3 at 18 words and 0.7 at 94.

    >>> LengthEstimator().estimate(Query("Is Paris the capital of France?")).difficulty
    0.13043478260869565
    """

    name = "length"

    def estimate(self, query: Query) -> Estimate:
        """Return the difficulty by the number of words."""
        words = lengths(core_question(query).text).words
        difficulty = words / (words + 40)
        return Estimate(difficulty, self.name, (("word_count", float(words), difficulty),))


def estimate_turn(estimator: Estimator, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
    """Return the difficulty of a query's last user turn, given the earlier ones.

    With `thresholds`, texts are parsed only if a threshold lies between the bounds of d.
    """
    weight = inheritance_weight(_count_words(core_question(query).text)) if len(query.turns) > 1 else 0.0
    turns = [query, *map(Query, earlier_questions(query, MAX_EARLIER_TURNS))] if weight else [query]
    if thresholds is None or not hasattr(estimator, "estimate_bounds"):
        return combine_turns(weight, [estimator.estimate(turn) for turn in turns])
    lazy = cast(LazyEstimator, estimator)
    bounds = [lazy.estimate_bounds(turn) for turn in turns]
    low, high = (_combine(weight, [getattr(each, end) for each in bounds]) for end in ("low", "high"))
    if any(low < threshold <= high for threshold in thresholds):
        return combine_turns(weight, list(map(lazy.refine, turns, bounds)))
    return combine_turns(weight, [each.estimate for each in bounds])


def combine_turns(weight: float, estimates: Sequence[Estimate]) -> Estimate:
    """Return the query's estimate, which comes first, raised by those of the earlier turns with this weight."""
    own = estimates[0]
    difficulty = _combine(weight, [each.difficulty for each in estimates])
    gain = difficulty - own.difficulty
    if not gain:
        return own
    hardest = max(each.difficulty for each in estimates[1:])
    inherited = ("inherited", hardest, gain)
    return replace(own, difficulty=difficulty, contributions=(*own.contributions, inherited))


def _combine(weight: float, difficulties: Sequence[float]) -> float:
    """Return the difficulty of a query, which comes first, raised by those of the earlier turns."""
    own, *earlier = difficulties
    return with_inherited(own, weight, earlier) if earlier else own


def with_inherited(own: float, weight: float, earlier: Sequence[float]) -> float:
    """Return the difficulty of a turn after earlier turns, the oldest first."""
    inherited = [DECAY**k * d for k, d in enumerate(reversed(earlier), start=1)]
    return max(own, weight * max(inherited, default=0.0))


def inheritance_weight(words: int) -> float:
    """Return the weight of earlier turns for a turn of this many words."""
    return min(1.0, max(0.0, (LONG_WORDS - words) / (LONG_WORDS - SHORT_WORDS)))


def _count_words(text: str) -> int:
    """Return the number of words; a long text counts as `LONG_WORDS` or more."""
    return len(text[:READ_LIMIT].split(None, LONG_WORDS))
