"""Everything that calibration fits, as one value: what is in use is one setup, what was fitted is another.

A setup says what each path would do with recorded items. All decisions are those of `odar.policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from odar.calibration.evidence import Evidence, FastAnswers
from odar.calibration.fusion_fit import FusionFit
from odar.difficulty.estimator import LearnedEstimator
from odar.policy.alignment import Statistics
from odar.policy.arrays import Array, Bools, Ints, Rows
from odar.policy.fusion import FAST, SOLVE, CandidateArrays, Fusion
from odar.policy.path import HARD, MEDIUM, PATHS, Route, Routing, Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Votes
from odar.policy.signals import QuantileTables
from odar.policy.simulation import Simulation, simulate
from odar.policy.stopping import Stopping

NEVER_STOP = Stopping(None)


@dataclass(frozen=True, slots=True)
class PathOutcomes(Rows):
    """What each path gives for each item: (N, 3), columns are Simple, Medium, Hard."""

    correct: Bools
    calls: Ints
    cost: Array
    """US dollars; NaN if unknown."""

    @property
    def price(self) -> Array:
        """(N, 3) US dollars; calls if some prices are unknown or nothing is charged: all in one unit."""
        return self.cost if np.isfinite(self.cost).all() and self.cost.any() else self.calls.astype(np.float64)

    def under(self, paths: Ints) -> tuple[Array, Array, Array]:
        """Return correctness, calls and cost of each item if it takes this path."""
        rows = np.arange(len(paths))
        every = (self.correct, self.calls, self.cost)
        right, calls, cost = (each[rows, paths].astype(np.float64) for each in every)
        return right, calls, cost


@dataclass(frozen=True, slots=True)
class Setup:
    """What decides the path of a question and the answer among candidates."""

    thresholds: Thresholds
    fusion: FusionFit
    statistics: tuple[Statistics | None, ...]
    """Statistics of fast answer, verification and slow samples; None if nothing was measured (SPEC 5.5)."""
    posterior: PosteriorDifficulty | None
    """None: the path is chosen by the question alone."""
    estimator: LearnedEstimator | None = None
    """None: the one that made the prior."""
    clearly_hard: float = 1.0
    """If the prior is at least this, the path is chosen without the fast answer."""
    surrogate: tuple[Statistics | None, ...] | None = None
    """Statistics of a surrogate's scores of the same three (SPEC 5.6); None if there is no surrogate."""
    rule: str = "fep"
    similarity: str = "lexical"
    """How free text is compared (SPEC 5.15); the evidence must have been made with the same."""
    stopping: Stopping = NEVER_STOP
    samples: int = 5
    enabled: bool = True
    """Off: every question takes Medium (SPEC 4.4)."""
    by_expert: Mapping[str, Thresholds] = field(default_factory=dict)
    """Thresholds of single experts (SPEC 4.3)."""

    @property
    def routing(self) -> Routing:
        """The routing policy."""
        looks = self.posterior is not None
        return Routing(self.thresholds, self.samples, looks, self.clearly_hard, self.enabled, self.by_expert)

    def align(self, candidates: CandidateArrays) -> CandidateArrays:
        """Add F̃ and skills to recorded candidates."""
        columns = source_columns(candidates)
        return replace(
            candidates,
            aligned=_aligned(candidates.energy, self.statistics, columns),
            surrogate_aligned=_aligned(candidates.surrogate, self.surrogate or (None,) * len(PATHS), columns),
            skills=np.broadcast_to(self.fusion.skills[columns], candidates.present.shape),
        )

    def route(self, fast: FastAnswers) -> Route:
        """Choose the path of each item."""
        prior = self.prior(fast)
        posterior = np.full(len(prior), np.nan)
        if self.posterior is not None:
            posterior = self.look(self.posterior, prior, fast)
        return self.routing.route(prior, posterior, fast.experts)

    def outcomes(self, evidence: Evidence) -> PathOutcomes:
        """Return what each path would have done with these items."""
        found = [self.simulate(evidence, np.full(len(evidence), path)) for path in range(len(PATHS))]
        rows = np.arange(len(evidence))
        paid = [
            np.where(run.asked, evidence.cost, 0.0).sum(axis=1)
            + np.where(run.scored, evidence.scoring_cost, 0.0).sum(axis=1)
            for run in found
        ]
        return PathOutcomes(
            correct=np.stack([evidence.correct[rows, run.winner] for run in found], axis=1),
            calls=np.stack([run.calls for run in found], axis=1),
            cost=np.stack(paid, axis=1),
        )

    def simulate(self, evidence: Evidence, path: Ints) -> Simulation:
        """Take the given path with each item."""
        fusion = Fusion(self.rule, self.fusion.beta, similarity=self.similarity)
        return simulate(self.align(evidence.candidates), path, fusion, self.stopping, self.samples)

    def votes(self, evidence: Evidence) -> Votes:
        """Return the candidates that energies decide between, on both paths that fuse; −1 where one has no vote.

        β and skills change nothing on rows without enough log-probabilities (SPEC 5.6): these are left out.
        """
        fusion = Fusion(self.rule, self.fusion.beta)
        candidates, parts = self.align(evidence.candidates), list[Votes]()
        sources = tuple(source_columns(candidates))
        for path in (MEDIUM, HARD):
            read = self.simulate(evidence, np.full(len(evidence), path)).read
            view = fusion.compare(candidates, read)
            groups, similarity = candidates.answers.groups_and_similarity(view.scored)
            votes = Votes(view.energy, groups, evidence.correct & view.scored, sources, similarity)
            parts.append(votes.rows(~view.without_energy))
        return Votes.concatenate(parts)

    @property
    def tables(self) -> QuantileTables | None:
        """Quantiles of the fast agent's signals; None if the shipped ones are used."""
        known = self.statistics[FAST]
        return None if known is None else known.tables

    def prior(self, fast: FastAnswers) -> Array:
        """Return d(x) of each item."""
        if self.estimator is None or fast.features is None:
            return fast.prior
        return self.estimator.predict(fast.features)

    def look(self, posterior: PosteriorDifficulty, prior: Array, fast: FastAnswers) -> Array:
        """Return the posterior after each fast answer; NaN if the answer shows nothing."""
        return posterior.predict(replace(fast.signals, prior=prior), self.tables)

    def reconsider(self, posterior: PosteriorDifficulty, prior: Array, fast: FastAnswers) -> Array:
        """Return the posterior, but the prior if a fast answer shows nothing or is not waited for."""
        looked = self.look(posterior, prior, fast)
        return replace(self.routing, uses_posterior=True, enabled=True).route(prior, looked).difficulty


def source_columns(candidates: CandidateArrays) -> list[int]:
    """Return the source of each column: the fast answer, the verification, then the same for all slow samples."""
    return [min(column, SOLVE) for column in range(candidates.present.shape[1])]


def _aligned(energy: Array, statistics: tuple[Statistics | None, ...], columns: list[int]) -> Array:
    known = [each if (each := statistics[column]) is not None and each.count else None for column in columns]
    means = np.array([np.nan if each is None else each.mean for each in known])
    deviations = np.array([np.nan if each is None else each.deviation for each in known])
    return np.asarray((energy - means) / deviations)
