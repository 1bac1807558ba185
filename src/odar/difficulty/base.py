"""Difficulty estimators: the protocol, the baselines, the registry, and estimates for a conversation's last turn.

"Commit it" after a proof is short and still part of the proof. A short turn inherits from the user turns before it,
less for each turn in between and less the more it says for itself:

    d = max(d_last, w · max_k 0.75^k · d_k)      k = 1 for the turn before, 2 for the one before that, …

with w = 1 up to 8 words, falling to 0 at 24. The factor lets one step from a hard turn land in Medium.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from odar.difficulty.text import READ_LIMIT, lengths
from odar.files import user_path
from odar.registry import Registry
from odar.types import Estimate, Query

DECAY = 0.75
REACH = 4
"""Turns looked back at: 0.75^5 is below the first threshold whatever came before."""
SHORT_WORDS, LONG_WORDS = 8, 24


class Estimator(Protocol):
    """Gives a query a difficulty in [0, 1]. Deterministic, fast, without I/O."""

    @property
    def name(self) -> str:
        """What the trace calls it."""
        ...

    def estimate(self, query: Query) -> Estimate:
        """Return how hard the query looks."""
        ...


class LazyEstimator(Estimator, Protocol):
    """An estimator that can give bounds for d first, and the exact value at a higher cost."""

    def unparsed(self, query: Query) -> Estimate:
        """Return an estimate with an interval."""
        ...

    def parsed(self, query: Query, estimate: Estimate) -> Estimate:
        """Return the same estimate with the exact value."""
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


def open_estimator(name: str, calibrated: Mapping[str, Any] | None = None, origin: str = "") -> Estimator:
    """Return an estimator by its registered name, or the file that `odar calibrate --difficulty` wrote.

    The learned one has the weights that the calibration `origin` found, where there are any.
    """
    if name not in ESTIMATORS.names() and name.endswith(".json"):
        from odar.difficulty.estimator import LearnedEstimator

        return LearnedEstimator.load(user_path(name, setting="routing.estimator"))
    if calibrated is not None and name == "learned":
        from odar.difficulty.estimator import calibrated_estimator

        return calibrated_estimator(calibrated, origin)
    return ESTIMATORS[name]()


class ConstantEstimator:
    """Every query is equally hard; with d = 0.5, always Medium."""

    name = "constant"

    def __init__(self, difficulty: float = 0.5) -> None:
        self.difficulty = difficulty

    def estimate(self, query: Query) -> Estimate:
        """Return the constant."""
        return Estimate(self.difficulty, self.name)


class LengthEstimator:
    """Longer is harder: d = words / (words + 40).

    The scale puts six words at 0.13, the 0.3 threshold at 18 words and the 0.7 threshold at 94.

    >>> LengthEstimator().estimate(Query("Is Paris the capital of France?")).difficulty
    0.13043478260869565
    """

    name = "length"

    def estimate(self, query: Query) -> Estimate:
        """Return the share of words in words + scale."""
        words = lengths(query.text).words
        difficulty = words / (words + 40)
        return Estimate(difficulty, self.name, (("word_count", float(words), difficulty),))


def estimate_turn(estimator: Estimator, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
    """Return the difficulty of a query's last user turn, given the earlier ones.

    With `thresholds`, the dependency parse is made only where d could lie on either side of one of them.
    """
    asked = turns(query)
    if thresholds is None or not hasattr(estimator, "unparsed"):
        return combine_turns(query, [estimator.estimate(turn) for turn in asked])
    estimator = cast(LazyEstimator, estimator)
    unparsed = [estimator.unparsed(turn) for turn in asked]
    estimate = combine_turns(query, unparsed)
    if not estimate.crosses(thresholds):
        return estimate
    return combine_turns(
        query, [estimator.parsed(turn, known) for turn, known in zip(asked, unparsed, strict=True)]
    )


def turns(query: Query) -> list[Query]:
    """Return what has to be estimated: the query itself, then the earlier turns that it may lean on."""
    leans = query.earlier and inheritance(_words(query.text)) > 0
    return [query, *map(Query, query.earlier[-REACH:] if leans else ())]


def combine_turns(query: Query, estimates: Sequence[Estimate]) -> Estimate:
    """Return the query's estimate, raised by those of its earlier `turns` where it follows on from them."""
    own, *earlier = estimates
    if not earlier:
        return own
    weight = inheritance(_words(query.text))
    before = [estimate.difficulty for estimate in earlier]
    intervals = [estimate.interval or (estimate.difficulty,) * 2 for estimate in estimates]
    lows, highs = zip(*intervals, strict=True)
    exact = [estimate.exact_or_middle for estimate in estimates]
    combined = replace(
        own,
        difficulty=sticky(own.difficulty, weight, before),
        interval=own.interval and (sticky(lows[0], weight, lows[1:]), sticky(highs[0], weight, highs[1:])),
        exact=None if own.exact is None else sticky(exact[0], weight, exact[1:]),
    )
    gain = combined.exact_or_middle - own.exact_or_middle
    if not gain:
        return combined
    return replace(combined, contributions=(*own.contributions, ("inherited", max(before), gain)))


def sticky(own: float, weight: float, earlier: Sequence[float]) -> float:
    """Return the difficulty of a turn that follows on others, the oldest first."""
    inherited = [DECAY**k * d for k, d in enumerate(reversed(earlier), start=1)]
    return max(own, weight * max(inherited, default=0.0))


def inheritance(words: int) -> float:
    """Return how much a turn of so many words leans on what came before it."""
    return min(1.0, max(0.0, (LONG_WORDS - words) / (LONG_WORDS - SHORT_WORDS)))


def _words(text: str) -> int:
    """Return words of a text, as far as `inheritance` can tell the difference."""
    return len(text[:READ_LIMIT].split(None, LONG_WORDS))
