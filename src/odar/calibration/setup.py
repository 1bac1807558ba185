"""Everything that calibration fits, as one value: the current setup and the fitted one are compared.

A setup simulates each path on recorded items. All decisions are those of `odar.policy`.
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
    """The outcomes of each path for each item: (N, 3), columns are Simple, Medium, Hard."""

    correct: Bools
    calls: Ints
    cost: Array
    """US dollars; NaN if unknown."""

    @property
    def price(self) -> Array:
        """(N, 3) US dollars, or calls if a price is unknown or nothing is charged."""
        return self.cost if np.isfinite(self.cost).all() and self.cost.any() else self.calls.astype(np.float64)

    def on_paths(self, paths: Ints) -> tuple[Array, Array, Array]:
        """Return correctness, calls and cost of each item if it takes this path."""
        rows, tables = np.arange(len(paths)), (self.correct, self.calls, self.cost)
        right, calls, cost = (table[rows, paths].astype(np.float64) for table in tables)
        return right, calls, cost


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that decides the path of a question and the answer among candidates."""

    thresholds: Thresholds
    fusion: FusionFit
    statistics: tuple[Statistics | None, ...]
    """Statistics of fast answer, verification and slow samples; None if nothing was measured (SPEC 5.5)."""
    posterior: PosteriorDifficulty | None
    """None if the path is chosen by the question alone."""
    estimator: LearnedEstimator | None = None
    """None for the estimator that made the prior."""
    clearly_hard: float = 1.0
    """If the prior is at least this, the path is chosen without the fast answer."""
    surrogate: tuple[Statistics | None, ...] | None = None
    """Statistics of a surrogate's scores of the same three (SPEC 5.6); None if there is no surrogate."""
    rule: str = "fep"
    similarity: str = "lexical"
    """Comparison of free text (SPEC 5.15); the evidence must have been made with the same."""
    stopping: Stopping = NEVER_STOP
    samples: int = 5
    enabled: bool = True
    """If False, every question takes Medium (SPEC 4.4)."""
    by_expert: Mapping[str, Thresholds] = field(default_factory=dict)
    """Thresholds of single experts (SPEC 4.3)."""

    @property
    def routing(self) -> Routing:
        """The routing policy."""
        with_answer = self.posterior is not None
        return Routing(self.thresholds, self.samples, with_answer, self.clearly_hard, self.enabled, self.by_expert)

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
        if self.posterior is None:
            posterior = np.full(len(prior), np.nan)
        else:
            posterior = self.posterior_difficulty(self.posterior, prior, fast)
        return self.routing.route(prior, posterior, fast.experts)

    def outcomes(self, evidence: Evidence) -> PathOutcomes:
        """Return the outcomes of each path for these items."""
        correct, calls, costs = [], [], []
        for path in range(len(PATHS)):
            run = self.simulate(evidence, np.full(len(evidence), path))
            cost = np.where(run.asked, evidence.cost, 0.0) + np.where(run.scored, evidence.scoring_cost, 0.0)
            correct.append(evidence.correct[np.arange(len(evidence)), run.winner])
            calls.append(run.calls)
            costs.append(cost.sum(axis=1))
        return PathOutcomes(np.stack(correct, axis=1), np.stack(calls, axis=1), np.stack(costs, axis=1))

    def simulate(self, evidence: Evidence, path: Ints) -> Simulation:
        """Simulate the given path of each item."""
        fusion = Fusion(self.rule, self.fusion.beta, similarity=self.similarity)
        return simulate(self.align(evidence.candidates), path, fusion, self.stopping, self.samples)

    def votes(self, evidence: Evidence) -> Votes:
        """Return the votes of the candidates on both paths that fuse.

        Rows without enough log-probabilities, where β and skills change nothing (SPEC 5.6), are left out.
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

    def posterior_difficulty(self, posterior: PosteriorDifficulty, prior: Array, fast: FastAnswers) -> Array:
        """Return the posterior after each fast answer; NaN for an answer without signals."""
        return posterior.predict(replace(fast.signals, prior=prior), self.tables)

    def routing_difficulty(self, posterior: PosteriorDifficulty, prior: Array, fast: FastAnswers) -> Array:
        """Return the posterior, or the prior if the fast answer has no signals or is not waited for."""
        after_answer = self.posterior_difficulty(posterior, prior, fast)
        return replace(self.routing, uses_posterior=True, enabled=True).route(prior, after_answer).difficulty


def source_columns(candidates: CandidateArrays) -> list[int]:
    """Return the source of each column: the fast answer, the verification, then the same for all slow samples."""
    return [min(column, SOLVE) for column in range(candidates.present.shape[1])]


def _aligned(energy: Array, statistics: tuple[Statistics | None, ...], columns: list[int]) -> Array:
    known = [each if (each := statistics[column]) is not None and each.count else None for column in columns]
    means = np.array([np.nan if each is None else each.mean for each in known])
    deviations = np.array([np.nan if each is None else each.deviation for each in known])
    return np.asarray((energy - means) / deviations)
