"""Every fusion rule applied to the candidates of a recording: the fast answer and the slow samples of each item."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import FOLDS, fit_fusion
from odar.calibration.parts import folds
from odar.errors import InputError
from odar.policy.arrays import Array
from odar.policy.energy import Alignment, measure_energy
from odar.policy.fusion import Fusion
from odar.policy.rules import RULES, Votes
from odar.policy.similarity import AnswerRows
from odar.recording.files import open_recording
from odar.recording.schema import RIGHT
from odar.types import Candidate, Step

MIN_QUESTIONS = 30
"""Minimum number of questions for cross-validation."""

Source = tuple[str, Step]


@dataclass(frozen=True, slots=True)
class FusionItem:
    """The candidates of one item, and which of them are right."""

    candidates: tuple[Candidate, ...]
    correct: tuple[bool, ...]
    question: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The accuracy of one rule."""

    rule: str
    accuracy: Interval
    against_majority: Interval
    """Paired difference to plain voting."""
    against_argmin: Interval
    """Paired difference to the paper's rule, the single candidate of lowest free energy."""


def load_fusion_items(place: str | Path, varentropy_weight: float, split: str = "") -> list[FusionItem]:
    """Load the candidates of a recording, energies measured and aligned per model and step over all of them.

    Raises:
        InputError: the file cannot be read, or no item in it has candidates.
    """
    items = []
    for item in open_recording(place).items(split):
        # A verification has seen the fast answer: it is not one of the Hard path's candidates.
        attempts = [each for each in item.attempts if each.step is not Step.VERIFY and each.score is not None]
        candidates = tuple(with_energy(each.candidate, varentropy_weight) for each in attempts)
        if candidates:
            right = tuple((each.score or 0.0) >= RIGHT for each in attempts)
            items.append(FusionItem(candidates, right, item.query))
    if not items:
        raise InputError(f"{place} holds no items with candidates")
    return _align_energies(items, varentropy_weight)


def apply_rules(
    questions: Sequence[FusionItem], beta: float, seed: int, fitted: Array | None = None
) -> list[RuleResult]:
    """Compare every registered rule, `fep` with the configured β, the paper's argmin, and the mean candidate.

    `fitted` is 1 where a rule that was fitted to other questions is right, to be compared too.
    """
    argmin = "fep β=inf (argmin)"
    settings = {f"fep β={beta:g}": Fusion("fep", beta), argmin: Fusion("fep")}
    settings |= {name: Fusion(name) for name in sorted(RULES.names()) if name != "fep"}
    right = {name: score_rule(questions, fusion) for name, fusion in settings.items()}
    if fitted is not None:
        right["fep fitted"] = fitted
    right["mean candidate"] = np.array([np.mean(q.correct) for q in questions])
    return [
        RuleResult(
            name,
            bootstrap_mean(each, seed),
            bootstrap_mean(each - right["majority"], seed, shares=False),
            bootstrap_mean(each - right[argmin], seed, shares=False),
        )
        for name, each in right.items()
    ]


def oracle_accuracy(questions: Sequence[FusionItem]) -> float:
    """Return the share of questions with a right candidate: no rule can do better."""
    return float(np.mean([any(q.correct) for q in questions]))


def score_rule(questions: Sequence[FusionItem], fusion: Fusion) -> Array:
    """Return 1 for each question on which the rule chooses a right candidate, else 0."""
    return np.array(
        [q.correct[fusion.choose(q.candidates, q.question).winner] for q in questions], dtype=np.float64
    )


def with_energy(candidate: Candidate, weight: float) -> Candidate:
    """Return a candidate with its free energy, not aligned."""
    return replace(candidate, energy=measure_energy(candidate.tokens, weight, None))


def _align_energies(questions: list[FusionItem], weight: float) -> list[FusionItem]:
    values: dict[tuple[str, Step], list[float]] = defaultdict(list)
    for question in questions:
        for candidate in question.candidates:
            if candidate.energy is not None:
                values[candidate.model, candidate.step].append(candidate.energy.free_energy)
    pairs = {source: (float(np.mean(found)), float(np.std(found)) or 1.0) for source, found in values.items()}
    statistics = {source: Alignment(*pair) for source, pair in pairs.items()}

    def align(candidate: Candidate) -> Candidate:
        statistic = statistics.get((candidate.model, candidate.step))
        return replace(candidate, energy=measure_energy(candidate.tokens, weight, statistic))

    return [replace(q, candidates=tuple(map(align, q.candidates))) for q in questions]


@dataclass(frozen=True, slots=True)
class CrossValidatedFit:
    """A rule fitted to a file."""

    right: Array
    """1 where the rule that was fitted without a question is right on it, else 0."""
    beta: float
    """Fitted to all questions."""
    skills: dict[str, float]
    """w of each source, fitted to all questions; the source is the model, and the agent where a model is both."""


def cross_validate(questions: Sequence[FusionItem], seed: int) -> CrossValidatedFit | None:
    """Fit on four folds and choose on the fifth, for each fold; None if there are too few questions."""
    if len(questions) < MIN_QUESTIONS:
        return None
    sources, votes = _to_votes(questions)
    fold = folds(len(questions), seed, FOLDS)
    right = np.zeros(len(questions))
    for number in range(FOLDS):
        test = np.flatnonzero(fold == number).tolist()
        fusion = _fit(votes.rows(fold != number), sources)
        right[test] = score_rule([questions[i] for i in test], fusion)
    whole = _fit(votes, sources)
    return CrossValidatedFit(
        right, whole.beta, {_source_name(source, sources): whole.skills[source] for source in set(sources)}
    )


def _fit(votes: Votes, sources: Sequence[Source]) -> Fusion:
    fit = fit_fusion(votes)
    return Fusion("fep", fit.beta, dict(zip(sources, fit.skills.tolist(), strict=True)))


def _to_votes(questions: Sequence[FusionItem]) -> tuple[list[Source], Votes]:
    """Return the source of each column, and the votes; a source has a column for each of its candidates."""
    most: Counter[Source] = Counter()
    for question in questions:
        most |= Counter((candidate.model, candidate.step) for candidate in question.candidates)
    sources = sorted(most.elements())
    rows = [_by_column(question, sources) for question in questions]
    present = np.array([[each is not None for each in row] for row in rows])
    energies = [[each and each[0].energy and each[0].energy.aligned for each in row] for row in rows]
    correct = [[each is not None and each[1] for each in row] for row in rows]
    answers = [[each[0].answer if each else "" for each in row] for row in rows]
    stated = [[each is not None and each[0].stated for each in row] for row in rows]
    texts = [question.question for question in questions]
    groups, similarity = AnswerRows.of_answers(answers, stated, texts, Fusion().similarity).groups_and_similarity(
        present
    )
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    places = tuple(numbers[source] for source in sources)
    return sources, Votes(np.array(energies, dtype=np.float64), groups, np.array(correct), places, similarity)


def _by_column(question: FusionItem, sources: Sequence[Source]) -> list[tuple[Candidate, bool] | None]:
    """Return the candidate of each column and whether it is right; None if its source has fewer candidates."""
    left: dict[Source, list[tuple[Candidate, bool]]] = defaultdict(list)
    for candidate, right in zip(question.candidates, question.correct, strict=True):
        left[candidate.model, candidate.step].append((candidate, right))
    return [left[source].pop(0) if left[source] else None for source in sources]


def _source_name(source: Source, sources: Sequence[Source]) -> str:
    model, step = source
    return model if len({s for m, s in sources if m == model}) == 1 else f"{model} ({step.role})"
