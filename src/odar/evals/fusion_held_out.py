"""Recorded candidates → β and skills fitted to them, judged on the questions that each fit had not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odar.calibration.fusion_fit import FOLDS, fit_fusion
from odar.calibration.part import folds
from odar.evals.fusion_file import Question, right_by
from odar.policy.fusion import Fusion
from odar.policy.rules import Array, Votes
from odar.types import Step

FEWEST = 30
"""Questions; of fewer, a fold says nothing."""

Source = tuple[str, Step]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A rule fitted to a file."""

    right: Array
    """1 where the rule that was fitted without a question is right on it, else 0."""
    beta: float
    """Fitted to all questions."""
    skills: dict[str, float]
    """w of each source, fitted to all questions; the source is the model, and the agent where a model is both."""


def held_out(questions: Sequence[Question], missing_limit: float, seed: int) -> HeldOut | None:
    """Fit on four folds and choose on the fifth, round the folds; None where there are too few questions."""
    if len(questions) < FEWEST:
        return None
    sources, votes = _votes(questions)
    fold = folds(len(questions), seed, FOLDS)
    right = np.zeros(len(questions))
    for number in range(FOLDS):
        test = np.flatnonzero(fold == number).tolist()
        fusion = _fitted(votes.rows(fold != number), sources, missing_limit)
        right[test] = right_by([questions[i] for i in test], fusion)
    whole = _fitted(votes, sources, missing_limit)
    return HeldOut(right, whole.beta, {_name(source, sources): whole.skills[source] for source in set(sources)})


def _fitted(votes: Votes, sources: Sequence[Source], missing_limit: float) -> Fusion:
    fit = fit_fusion(votes)
    return Fusion("fep", fit.beta, missing_limit, dict(zip(sources, fit.skills.tolist(), strict=True)))


def _votes(questions: Sequence[Question]) -> tuple[list[Source], Votes]:
    """The source of each column, and the votes: a source has as many columns as candidates in any one question."""
    most: Counter[Source] = Counter()
    for question in questions:
        most |= Counter((candidate.model, candidate.step) for candidate in question.candidates)
    sources = sorted(most.elements())
    shape = (len(questions), len(sources))
    energy, groups, correct = (
        np.full(shape, np.nan),
        np.full(shape, -1, dtype=np.int64),
        np.zeros(shape, dtype=bool),
    )
    for row, question in enumerate(questions):
        free = {source: sources.index(source) for source in most}
        numbers = Fusion().groups(question.candidates)
        kinds = {number: kind for kind, number in enumerate(dict.fromkeys(numbers))}  # calls of tools are below 0
        for candidate, number, is_right in zip(question.candidates, numbers, question.correct, strict=True):
            column = free[candidate.model, candidate.step]
            free[candidate.model, candidate.step] += 1
            groups[row, column], correct[row, column] = kinds[number], is_right
            if candidate.energy is not None and candidate.energy.aligned is not None:
                energy[row, column] = candidate.energy.aligned
    numbered = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    return sources, Votes(energy, groups, correct, tuple(numbered[source] for source in sources))


def _name(source: Source, sources: Sequence[Source]) -> str:
    model, step = source
    return model if len({s for m, s in sources if m == model}) == 1 else f"{model} ({step.role})"
