"""The fusion rule over many questions at once: arrays of candidates in, the winner of each question out.

The same rule as `fusion.rules.free_energy_rule`, row by row, to fit and measure it on thousands of questions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Votes:
    """N questions with up to M candidates each; a column is always the same source, such as one model."""

    energy: Array
    """(N, M) aligned free energies; NaN where a candidate has none."""
    groups: Ints
    """(N, M) equal answers of a row share a number; −1 where there is no candidate."""
    correct: Bools
    """(N, M) whether the candidate is right."""
    sources: tuple[int, ...] = ()
    """(M,) columns of the same source share a number; each its own if left out."""

    def __len__(self) -> int:
        return len(self.groups)

    def rows(self, index: Ints | Bools | slice) -> Votes:
        """Some of the questions."""
        return Votes(self.energy[index], self.groups[index], self.correct[index], self.sources)

    def columns(self, index: list[int]) -> Votes:
        """Some of the sources."""
        return Votes(self.energy[:, index], self.groups[:, index], self.correct[:, index])

    @property
    def present(self) -> Bools:
        """(N, M) where there is a candidate."""
        return self.groups >= 0


def fuse(votes: Votes, beta: float, skills: Array) -> Ints:
    """The winning column of each question by answer free energy (SPEC 5.10).

    >>> votes = Votes(np.array([[-2.0, 0.0, 0.1]]), np.array([[0, 1, 1]]), np.array([[False, True, True]]))
    >>> fuse(votes, beta=np.inf, skills=np.ones(3)).tolist(), fuse(votes, beta=0.0, skills=np.ones(3)).tolist()
    ([0], [1])
    """
    # Candidates are few and questions many: with one candidate of all questions in a row, numpy is twice as fast.
    groups = np.ascontiguousarray(votes.groups.T)
    present, own = groups >= 0, own_weights(votes)
    if np.isinf(beta):
        return np.asarray(own.argmax(axis=0))
    scaled = np.where(present, beta * np.where(present, own, 0.0), -np.inf)
    of_each = np.atleast_2d(skills).T  # a skill for each source, or for each candidate
    weights = of_each * np.exp(scaled - scaled.max(axis=0))  # exp(−∞) = 0: the absent have no weight
    totals = np.where(present, weights, -np.inf)
    for one in range(len(groups)):
        for other in range(one + 1, len(groups)):
            same = present[one] & (groups[one] == groups[other])
            totals[one] += np.where(same, weights[other], 0.0)
            totals[other] += np.where(same, weights[one], 0.0)
    # Among candidates of the heaviest answer the one of lowest energy speaks; between answers of equal weight, too.
    heaviest = totals >= totals.max(axis=0) * (1 - 1e-12)
    return np.asarray(np.where(heaviest, own, -np.inf).argmax(axis=0))


def own_weights(votes: Votes) -> Array:
    """(M, N) −F̃ of each candidate, −∞ where there is none.

    A candidate without an energy counts as an average one: it votes, but is not preferred.
    """
    energy = np.ascontiguousarray(votes.energy.T)
    return np.where(np.ascontiguousarray(votes.groups.T) >= 0, np.where(np.isnan(energy), 0.0, -energy), -np.inf)


def majority(votes: Votes) -> Ints:
    """The winning column of each question by plain voting, ties by energy."""
    return fuse(votes, 0.0, np.ones(votes.groups.shape[1]))


def accuracy(votes: Votes, winners: Ints) -> float:
    """The share of questions whose winner is right."""
    return float(votes.correct[np.arange(len(votes)), winners].mean())


def oracle(votes: Votes) -> float:
    """The share of questions with at least one right candidate."""
    return float(votes.correct.any(axis=1).mean())
