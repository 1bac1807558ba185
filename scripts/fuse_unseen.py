"""Apply β and skills fitted to recorded questions to others of the same kind that were recorded later.

    python scripts/fuse_unseen.py docs/data/embedded-sums.jsonl.gz docs/data/embedded-sums-rest.jsonl.gz

All parameters (μ, σ, β, skills) come from the first file; all figures are computed on the second.
"""

from __future__ import annotations

import sys

import numpy as np

from odar.calibration.bootstrap import bootstrap_mean
from odar.calibration.fusion_fit import FusionFit, fit_fusion
from odar.evals.fusion_study import load_fusion_items
from odar.policy.arrays import Array
from odar.policy.fusion import Fusion
from odar.policy.rules import Votes, fuse
from odar.types import Step

VARENTROPY_WEIGHT = 0.1
FAST, SLOW = 0, 1


def recorded(path: str) -> Votes:
    """The candidates of a file with raw free energies; the fast one first, as a recording has them."""
    questions = load_fusion_items(path, VARENTROPY_WEIGHT)
    size = max(len(question.candidates) for question in questions)
    energy = np.full((len(questions), size), np.nan)
    groups = np.full((len(questions), size), -1, dtype=np.int64)
    correct = np.zeros((len(questions), size), dtype=bool)
    for row, question in enumerate(questions):
        steps = [candidate.step for candidate in question.candidates]
        if steps != [Step.ANSWER] + [Step.SOLVE] * (len(steps) - 1):
            raise SystemExit(f"{path}, question {row + 1}: one fast answer, then slow ones, are wanted")
        count = len(steps)
        groups[row, :count] = Fusion("fep").groups(question.candidates)
        correct[row, :count] = question.correct
        energy[row, :count] = [c.energy.free_energy if c.energy else np.nan for c in question.candidates]
    return Votes(energy, groups, correct, (FAST, *[SLOW] * (size - 1)))


def aligned(votes: Votes, to: Votes, *, by_agent: bool = True) -> Votes:
    """F̃ with μ and σ of other questions, by agent or with one scale for both (SPEC 5.5)."""
    energy = votes.energy.copy()
    for columns in [slice(0, 1), slice(1, None)] if by_agent else [slice(None)]:
        known = to.energy[:, columns]
        energy[:, columns] = (energy[:, columns] - np.nanmean(known)) / np.nanstd(known)
    return Votes(energy, votes.groups, votes.correct, votes.sources)


def right(votes: Votes, rule: FusionFit) -> Array:
    """1 where the rule is right, else 0."""
    winners = fuse(votes, rule.beta, rule.skills)
    return votes.correct[np.arange(len(votes)), winners].astype(np.float64)


def main(seen_path: str, unseen_path: str) -> None:
    """Print every rule on the second file, and its differences to majority and argmin."""
    seen, unseen = recorded(seen_path), recorded(unseen_path)
    fitted = fit_fusion(aligned(seen, seen))
    ones = np.ones(unseen.groups.shape[1])
    by_agent, one_scale = aligned(unseen, seen), aligned(unseen, seen, by_agent=False)
    results = {
        "majority": right(by_agent, FusionFit(0.0, 0.0, ones)),
        "argmin": right(by_agent, FusionFit(np.inf, 0.0, ones)),
        "β = 0.25": right(by_agent, FusionFit(0.25, 0.0, ones)),
        "β = 0.25, one scale for both agents": right(one_scale, FusionFit(0.25, 0.0, ones)),
        "fitted to the first file": right(by_agent, fitted),
    }
    slow = f"w of a slow sample {fitted.skills[SLOW]:.2f}"
    print(f"{len(unseen)} questions; fitted to {len(seen)} others: β = {fitted.beta:g}, {slow}\n")
    print(f"{'rule':36} accuracy  against majority         against argmin")
    for name, values in results.items():
        gains = (bootstrap_mean(values - results[other]).signed() for other in ("majority", "argmin"))
        print(f"{name:36} {values.mean():.3f}     {'   '.join(gains)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
