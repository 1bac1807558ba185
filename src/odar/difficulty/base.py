"""Difficulty estimators: the protocol, the baselines, the registry, and estimates for a conversation's last turn.

"Commit it" after a proof is short and still part of the proof. A short turn inherits difficulty from earlier user
turns, with a factor for each turn in between and a weight that falls with the number of its words:

    d = max(d_last, w · max_k 0.75^k · d_k)      k = 1 for the turn before, 2 for the one before that, …

with w = 1 up to 8 words, falling to 0 at 24. One turn after a hard one is at least Medium.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from odar.difficulty.text import READ_LIMIT, word_lengths
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

    def estimate(self, query: Query) -> Estimate: ...


def open_estimator(name: str) -> Estimator:
    """An estimator by its registered name, or from a file that `odar train` wrote."""
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
        return Estimate(self.difficulty, self.name)


class LengthEstimator:
    """Difficulty by length: d = words / (words + 40), which is 0.3 at 18 words and 0.7 at 94.

    >>> LengthEstimator().estimate(Query("Is Paris the capital of France?")).difficulty
    0.13043478260869565
    """

    name = "length"

    def estimate(self, query: Query) -> Estimate:
        words = len(word_lengths(core_question(query).text))
        difficulty = words / (words + 40)
        return Estimate(difficulty, self.name, (("word_count", float(words), difficulty),))


def estimate_turn(estimator: Estimator, query: Query, *, parse: bool = True) -> Estimate:
    """The difficulty of a query's last user turn, given the earlier ones.

    Without `parse`, the learned estimator takes usual values for the three features that need the dependency
    parse, which is four times as fast.
    """
    quick = None if parse else getattr(estimator, "estimate_without_parse", None)
    estimate: Callable[[Query], Estimate] = quick or estimator.estimate
    own = estimate(query)
    words = len(core_question(query).text[:READ_LIMIT].split(None, LONG_WORDS))
    if len(query.turns) < 2 or words >= LONG_WORDS:
        return own
    earlier = [estimate(Query(text)).difficulty for text in earlier_questions(query, MAX_EARLIER_TURNS)]
    weight = min(1.0, (LONG_WORDS - words) / (LONG_WORDS - SHORT_WORDS))
    inherited = weight * max((DECAY**k * d for k, d in enumerate(reversed(earlier), start=1)), default=0.0)
    if inherited <= own.difficulty:
        return own
    share = ("inherited", max(earlier), inherited - own.difficulty)
    return replace(own, difficulty=inherited, contributions=(*own.contributions, share))


def _learned() -> Estimator:
    from odar.difficulty.estimator import shipped_estimator  # which imports this module

    return shipped_estimator()


ESTIMATORS: Registry[Callable[[], Estimator]] = Registry(
    "estimator",
    {"constant": ConstantEstimator, "learned": _learned, "length": LengthEstimator},
    group="odar.estimators",
)
"""Estimators by name; each entry makes one when called without arguments."""
