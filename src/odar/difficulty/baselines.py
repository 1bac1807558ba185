"""The honest baselines: every learned estimator has to beat these."""

from __future__ import annotations

from odar.difficulty.text import lengths
from odar.types import Estimate, Query


class ConstantEstimator:
    """Every query is equally hard; with d = 0.5, always Medium.

    >>> ConstantEstimator().estimate(Query("anything")).difficulty
    0.5
    """

    name = "constant"

    def __init__(self, difficulty: float = 0.5) -> None:
        self.difficulty = difficulty

    def estimate(self, query: Query) -> Estimate:
        """The constant."""
        return Estimate(self.difficulty, self.name)


class LengthEstimator:
    """Longer is harder: d = words / (words + 40).

    The scale puts six words at 0.13, the 0.3 threshold at 18 words and the 0.7 threshold at 94.

    >>> LengthEstimator().estimate(Query("Is Paris the capital of France?")).difficulty
    0.13043478260869565
    """

    name = "length"

    def __init__(self, half_at_words: int = 40) -> None:
        self.half_at_words = half_at_words

    def estimate(self, query: Query) -> Estimate:
        """The share of words in words + scale."""
        words = lengths(query.text).words
        difficulty = words / (words + self.half_at_words)
        return Estimate(difficulty, self.name, (("word_count", float(words), difficulty),))
