"""Records as arrays: what was asked, what each candidate was worth, what each path cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.records import Attempt, Record, Score
from odar.difficulty.training import d_star
from odar.policy.energy import free_energy
from odar.policy.equivalence import group
from odar.policy.rules import Array, Bools, Ints, Votes

FAST, VERIFY, SOLVE = 0, 1, 2
"""Columns of the votes, and numbers of the sources: the fast answer, the verification, then the slow samples."""


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
    """Everything that the three paths did with each item."""

    fast: FastAnswers
    votes: Votes
    """All candidates of each item: fast, verify, solves. Energies are raw free energies, those that decide."""
    calls: Ints
    """(N, 3) calls on each path."""
    cost: Array
    """(N, 3) US dollars on each path; NaN where unknown."""
    own: Votes | None = None
    """The same with the models' own energies, where a surrogate's decide; None where those are the models' own."""

    def __len__(self) -> int:
        return len(self.fast)

    def rows(self, index: Bools | Ints) -> Evidence:
        """Some of the items."""
        own = None if self.own is None else self.own.rows(index)
        return Evidence(self.fast.rows(index), self.votes.rows(index), self.calls[index], self.cost[index], own)


def evidence_of(records: Sequence[Record], varentropy_weight: float, features: Array | None = None) -> Evidence:
    """The records as arrays; `features` are φ of their queries, in the same order."""
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
    own = votes_of(records, varentropy_weight)
    scored = any(record.fast.score is not None for record in records)
    return Evidence(
        fast=answers,
        votes=votes_of(records, varentropy_weight, by_surrogate=True) if scored else own,
        calls=np.array([[1, 2 + _scores(r, r.verify), 1 + r.solve_calls + _scores(r, *r.solves)] for r in records]),
        cost=np.array([[_sum(r.fast), _paid(r, r.verify), _paid(r, *r.solves)] for r in records]),
        own=own if scored else None,
    )


def votes_of(records: Sequence[Record], varentropy_weight: float, *, by_surrogate: bool = False) -> Votes:
    """All candidates of each record as one row."""
    size = 2 + max(len(record.solves) for record in records)
    energy = np.full((len(records), size), np.nan)
    groups = np.full((len(records), size), -1, dtype=np.int64)
    correct = np.zeros((len(records), size), dtype=bool)
    for row, record in enumerate(records):
        attempts = (record.fast, record.verify, *record.solves)
        groups[row, : len(attempts)] = group([attempt.answer for attempt in attempts])
        for column, attempt in enumerate(attempts):
            source = attempt.score if by_surrogate else attempt
            energy[row, column] = np.nan if source is None else free_energy_of(source, varentropy_weight)
            correct[row, column] = attempt.correct
    return Votes(energy, groups, correct, (FAST, VERIFY, *[SOLVE] * (size - 2)))


def free_energy_of(attempt: Attempt | Score, varentropy_weight: float) -> float:
    """F = E + λ·V of a recorded attempt; NaN where it had no log-probabilities."""
    if attempt.energy is None or attempt.varentropy is None:
        return float("nan")
    return free_energy(attempt.energy, attempt.varentropy, varentropy_weight)


def _scores(record: Record, *slow: Attempt) -> int:
    """Calls of the surrogate on a path: one for each candidate that it scored."""
    return sum(attempt.score is not None for attempt in (record.fast, *slow))


def _paid(record: Record, *slow: Attempt) -> float:
    """What a path with these slow answers cost, scoring included."""
    attempts = (record.fast, *slow)
    return _sum(*attempts) + _sum(*(attempt.score for attempt in attempts if attempt.score is not None))


def _sum(*parts: Attempt | Score) -> float:
    return float(sum(np.nan if part.cost_usd is None else part.cost_usd for part in parts))
