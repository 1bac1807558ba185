"""Everything that calibration fits, as one value: what is in use today is one setup, what was fitted is another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.calibration.evidence import FAST, FastAnswers
from odar.calibration.fusion_fit import FusionFit
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.alignment import Statistics
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array, Ints, Votes


@dataclass(frozen=True, slots=True)
class Thresholds:
    """τ1 and τ2 (SPEC 2.7)."""

    tau1: float
    tau2: float

    def paths(self, difficulty: Array) -> Ints:
        """0 Simple, 1 Medium, 2 Hard for each difficulty.

        >>> Thresholds(0.3, 0.7).paths(np.array([0.1, 0.3, 0.9])).tolist()
        [0, 1, 2]
        """
        return np.asarray((difficulty >= self.tau1).astype(np.int64) + (difficulty >= self.tau2).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Setup:
    """What decides the path of a query and the answer among candidates."""

    thresholds: Thresholds
    fusion: FusionFit
    statistics: tuple[Statistics | None, ...]
    """Of the fast answer, the verification and the slow samples; None where nothing was measured (SPEC 5.5)."""
    posterior: PosteriorDifficulty | None
    """None: the path is chosen by the question alone."""
    estimator: LearnedEstimator | None = None
    """None: the one that made the prior."""
    clearly_hard: float = 1.0
    """From this prior on, the fast answer is not waited for."""
    surrogate: tuple[Statistics | None, ...] | None = None
    """Of a surrogate's scores of the same three, where they decide (SPEC 5.6); None where the models' own do."""

    def align(self, votes: Votes) -> Votes:
        """The votes with F̃ for F; raw where one source has no statistics, as the engine does it (SPEC 5.5)."""
        statistics = self.statistics if self.surrogate is None else self.surrogate
        if any(known is None for known in statistics):
            return votes
        columns = [known for source in votes.sources if (known := statistics[source]) is not None]
        means = np.array([known.mean for known in columns])
        deviations = np.array([known.deviation for known in columns])
        return Votes((votes.energy - means) / deviations, votes.groups, votes.correct, votes.sources)

    def scores(self, fast: FastAnswers) -> tuple[Array, Array]:
        """F̃ of each fast answer and the z-score of its length; NaN where unknown."""
        known = self.statistics[FAST]
        if known is None or known.log_tokens_mean is None or not known.log_tokens_deviation:
            unknown = np.full(len(fast), np.nan)
            return unknown, unknown
        lengths = (fast.log_tokens - known.log_tokens_mean) / known.log_tokens_deviation
        return (fast.energy - known.mean) / known.deviation, lengths

    def prior(self, fast: FastAnswers) -> Array:
        """d(x) of each item."""
        if self.estimator is None or fast.features is None:
            return fast.prior
        return self.estimator.predict(fast.features)

    def difficulty(self, fast: FastAnswers) -> Array:
        """The difficulty that chooses the path of each item: the posterior where the engine looks first."""
        prior = self.prior(fast)
        if self.posterior is None:
            return prior
        return self.reconsider(prior, self.look(self.posterior, prior, fast), fast)

    def look(self, posterior: PosteriorDifficulty, prior: Array, fast: FastAnswers) -> Array:
        """What a posterior makes of each fast answer; of one that cannot be scored, as of an average one."""
        scores = (np.nan_to_num(each) for each in self.scores(fast))
        return posterior.predict(prior, *scores, unanswered=fast.unanswered, features=fast.features)

    def reconsider(self, prior: Array, posterior: Array, fast: FastAnswers) -> Array:
        """The posterior, but the prior where a fast answer cannot be scored or is not waited for."""
        unsureness, length = self.scores(fast)
        looks = np.isfinite(unsureness) & np.isfinite(length) & (prior < self.clearly_hard)
        return np.where(looks, posterior, prior)
