"""Records as arrays: what was asked, what each candidate said, what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.records import Attempt, Record, Score
from odar.difficulty.training import d_star
from odar.policy.energy import free_energy
from odar.policy.equivalence import AnswerGroups
from odar.policy.fusion import CandidateArrays, is_complete, tie_order
from odar.policy.rules import Array, Bools, Ints
from odar.types import Candidate


@dataclass(frozen=True, slots=True)
class FastAnswers:
    """What is known of each item once the fast agent has answered; one entry per item in every array."""

    prior: Array
    """d(x) by the estimator in use."""
    energy: Array
    """Raw free energy of the fast answer; NaN where unknown."""
    log_tokens: Array
    """ln(1 + tokens) of it; NaN where unknown."""
    unanswered: Bools
    """Whether it marked no final answer, although it was told to."""
    wrong: Bools
    effort: Array
    """Human time or length of a reference reasoning; NaN where unknown."""
    features: Array | None
    """(N, 24) φ(x); None where the estimator in use is not the learned one."""

    def __len__(self) -> int:
        return len(self.prior)

    @property
    def target(self) -> Array:
        """d* (SPEC 2.5)."""
        return d_star(self.wrong, self.effort)

    def rows(self, index: Bools | Ints) -> FastAnswers:
        """Some of the items."""
        features = None if self.features is None else self.features[index]
        return FastAnswers(
            prior=self.prior[index],
            energy=self.energy[index],
            log_tokens=self.log_tokens[index],
            unanswered=self.unanswered[index],
            wrong=self.wrong[index],
            effort=self.effort[index],
            features=features,
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was recorded of each item; columns are those of `CandidateArrays`."""

    fast: FastAnswers
    candidates: CandidateArrays
    """Not aligned yet, and with a skill of 1: both are what a `Setup` adds."""
    correct: Bools
    """(N, M) whether the candidate is right."""
    cost: Array
    """(N, M) US dollars; NaN where unknown."""
    scoring_cost: Array
    """(N, M) what the surrogate's score of the candidate cost; NaN where unknown."""

    def __len__(self) -> int:
        return len(self.fast)

    @property
    def by_surrogate(self) -> bool:
        """Whether a surrogate scored any candidate."""
        return bool(np.isfinite(self.candidates.surrogate).any())

    def rows(self, index: Bools | Ints) -> Evidence:
        """Some of the items."""
        return Evidence(
            self.fast.rows(index),
            self.candidates.rows(index),
            self.correct[index],
            self.cost[index],
            self.scoring_cost[index],
        )


def evidence_of(records: Sequence[Record], varentropy_weight: float, features: Array | None = None) -> Evidence:
    """Turn records into arrays; `features` are φ of their queries, in the same order."""
    fast = [record.fast for record in records]
    answers = FastAnswers(
        prior=np.array([record.difficulty for record in records]),
        energy=np.array([free_energy_of(attempt, varentropy_weight) for attempt in fast]),
        log_tokens=np.array([np.log1p(attempt.tokens) if attempt.tokens else np.nan for attempt in fast]),
        unanswered=np.array([not attempt.stated for attempt in fast]),
        wrong=np.array([not attempt.correct for attempt in fast]),
        effort=np.array([np.nan if record.effort is None else record.effort for record in records]),
        features=features,
    )
    rows = [[record.fast, record.verify, *record.solves] for record in records]
    width = max(map(len, rows))

    def table(of: Callable[[Attempt], float], absent: float = np.nan) -> Array:
        return np.array([[*map(of, row), *[absent] * (width - len(row))] for row in rows], dtype=np.float64)

    def score(attempt: Attempt) -> float:
        return np.nan if attempt.score is None else free_energy_of(attempt.score, varentropy_weight)

    unknown = np.full((len(rows), width), np.nan)
    candidates = CandidateArrays(
        present=table(lambda _: 1.0, 0.0) > 0,
        energy=table(lambda each: free_energy_of(each, varentropy_weight)),
        aligned=unknown,
        surrogate=table(score),
        surrogate_aligned=unknown,
        total=table(lambda each: each.counted or each.tokens, 0.0),
        missing=table(_missing, 0.0),
        complete=table(lambda each: is_complete(_candidate(each)), 0.0) > 0,
        skills=np.ones(unknown.shape),
        order=np.array([_order(row, width) for row in rows]),
        mean_logprob=unknown,
        mean_probability=unknown,
        lowest_window=unknown,
        groups=AnswerGroups.of_answers([[each.answer for each in row] for row in rows]),
    )
    return Evidence(
        fast=answers,
        candidates=candidates,
        correct=table(lambda each: each.correct, 0.0) > 0,
        cost=table(lambda each: _price(each), 0.0),
        scoring_cost=table(lambda each: _price(each.score), 0.0),
    )


def free_energy_of(attempt: Attempt | Score, varentropy_weight: float) -> float:
    """F = E + λ·V of a recorded attempt; NaN where it had no log-probabilities."""
    if attempt.energy is None or attempt.varentropy is None:
        return float("nan")
    return free_energy(attempt.energy, attempt.varentropy, varentropy_weight)


def _candidate(attempt: Attempt) -> Candidate:
    said = (attempt.step, attempt.model, attempt.text, attempt.answer)
    return Candidate(*said, finish=attempt.finish, stated=attempt.stated)


def _order(row: Sequence[Attempt], width: int) -> list[int]:
    return [*tie_order([*map(_candidate, row)]), *range(len(row), width)]


def _missing(attempt: Attempt) -> float:
    """Tokens without a log-probability; all of them where it has no energy."""
    return (attempt.counted or attempt.tokens) if attempt.energy is None else attempt.missing


def _price(part: Attempt | Score | None) -> float:
    return np.nan if part is None or part.cost_usd is None else part.cost_usd
