"""Every fusion rule applied to the candidates of a recording: the fast answer and the slow samples of each item."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from odar.calibration.bootstrap import Interval, bootstrap_mean
from odar.calibration.fusion_fit import fit_fusion
from odar.calibration.parts import fold_masks
from odar.errors import InputError
from odar.policy.arrays import Array
from odar.policy.energy import Alignment, measure_energy
from odar.policy.fusion import Fusion
from odar.policy.rules import RULES, Votes
from odar.policy.similarity import AnswerRows
from odar.recording.files import open_recording
from odar.recording.schema import MIN_RIGHT_SCORE
from odar.types import Candidate, Step

MIN_QUESTIONS = 30
"""Minimum number of questions for cross-validation."""

Source = tuple[str, Step]


@dataclass(frozen=True, slots=True)
class FusionItem:
    """The candidates of one item, and whether each is right."""

    candidates: tuple[Candidate, ...]
    correct: tuple[bool, ...]
    question: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The accuracy of one rule, and its difference to two others."""

    rule: str
    accuracy: Interval
    against_majority: Interval
    """Paired difference to majority voting."""
    against_argmin: Interval
    """Paired difference to the paper's rule, the single candidate of lowest free energy."""


def load_fusion_items(place: str | Path, varentropy_weight: float, split: str = "") -> list[FusionItem]:
    """Load the candidates of a recording, with energies aligned by model and step.

    Raises:
        InputError: the file cannot be read, or no item in it has candidates.
    """
    items = []
    for item in open_recording(place).items(split):
        # The Hard path has no verification among its candidates.
        attempts = [each for each in item.attempts if each.step is not Step.VERIFY and each.score is not None]
        if attempts:
            candidates = tuple(with_energy(each.candidate, varentropy_weight) for each in attempts)
            correct = tuple((each.score or 0.0) >= MIN_RIGHT_SCORE for each in attempts)
            items.append(FusionItem(candidates, correct, item.query))
    if not items:
        raise InputError(f"{place} holds no items with candidates")
    return _align_energies(items, varentropy_weight)


def apply_rules(
    questions: Sequence[FusionItem], beta: float, seed: int, fitted: Array | None = None
) -> list[RuleResult]:
    """Compare every registered rule, `fep` with the configured β, the paper's argmin, and the mean candidate.

    `fitted` adds a rule that was fitted to other questions: 1 for each question on which it is right, else 0.
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
    """Return the share of questions with a right candidate, an upper bound for every rule."""
    return float(np.mean([any(q.correct) for q in questions]))


def score_rule(questions: Sequence[FusionItem], fusion: Fusion) -> Array:
    """Return 1 for each question on which the rule chooses a right candidate, else 0."""
    return np.array(
        [q.correct[fusion.choose(q.candidates, q.question).winner] for q in questions], dtype=np.float64
    )


def with_energy(candidate: Candidate, weight: float) -> Candidate:
    """Return a candidate with its free energy, before alignment."""
    return replace(candidate, energy=measure_energy(candidate.tokens, weight, None))


def _align_energies(questions: list[FusionItem], weight: float) -> list[FusionItem]:
    values: dict[Source, list[float]] = defaultdict(list)
    for question in questions:
        for candidate in question.candidates:
            if candidate.energy is not None:
                values[candidate.model, candidate.step].append(candidate.energy.free_energy)
    alignments = {
        source: Alignment(float(np.mean(energies)), float(np.std(energies)) or 1.0)
        for source, energies in values.items()
    }

    def align(candidate: Candidate) -> Candidate:
        alignment = alignments.get((candidate.model, candidate.step))
        return replace(candidate, energy=measure_energy(candidate.tokens, weight, alignment))

    return [replace(q, candidates=tuple(map(align, q.candidates))) for q in questions]


@dataclass(frozen=True, slots=True)
class CrossValidatedFit:
    """The rule `fep` fitted to a recording by cross-validation."""

    right: Array
    """1 for each question on which the rule fitted to the other folds is right, else 0."""
    beta: float
    """β fitted to all questions."""
    skills: dict[str, float]
    """w of each source, fitted to all questions: its model, with the agent if the model is both agents."""


def cross_validate(questions: Sequence[FusionItem], seed: int) -> CrossValidatedFit | None:
    """Fit on four folds and choose on the fifth, for each fold; None if there are too few questions."""
    if len(questions) < MIN_QUESTIONS:
        return None
    sources, votes = _to_votes(questions)
    right = np.zeros(len(questions))
    for test in fold_masks(len(questions), seed):
        fusion = _fit(votes.rows(~test), sources)
        right[test] = score_rule([questions[i] for i in np.flatnonzero(test).tolist()], fusion)
    whole = _fit(votes, sources)
    return CrossValidatedFit(
        right, whole.beta, {_source_name(source, sources): whole.skills[source] for source in set(sources)}
    )


def _fit(votes: Votes, sources: Sequence[Source]) -> Fusion:
    fit = fit_fusion(votes)
    return Fusion("fep", fit.beta, dict(zip(sources, fit.skills.tolist(), strict=True)))


def _to_votes(questions: Sequence[FusionItem]) -> tuple[list[Source], Votes]:
    """Return the source of each column, and the votes; a source has as many columns as candidates at most."""
    most: Counter[Source] = Counter()
    for question in questions:
        most |= Counter((candidate.model, candidate.step) for candidate in question.candidates)
    sources = sorted(most.elements())
    shape = len(questions), len(sources)
    energy, (present, correct, stated) = np.full(shape, np.nan), np.zeros((3, *shape), dtype=bool)
    answers = [[""] * len(sources) for _ in questions]
    for row, question in enumerate(questions):
        seen: Counter[Source] = Counter()
        for candidate, is_correct in zip(question.candidates, question.correct, strict=True):
            source = candidate.model, candidate.step
            column = sources.index(source) + seen[source]
            seen[source] += 1
            answers[row][column] = candidate.answer
            present[row, column], correct[row, column], stated[row, column] = True, is_correct, candidate.stated
            if candidate.energy is not None and candidate.energy.aligned is not None:
                energy[row, column] = candidate.energy.aligned
    texts = [question.question for question in questions]
    rows = AnswerRows.of_answers(answers, stated.tolist(), texts, Fusion().similarity)
    groups, similarity = rows.groups_and_similarity(present)
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    return sources, Votes(energy, groups, correct, tuple(numbers[source] for source in sources), similarity)


def _source_name(source: Source, sources: Sequence[Source]) -> str:
    """Return the model, with the agent if the model has several steps."""
    model, step = source
    steps = {each for name, each in sources if name == model}
    return model if len(steps) == 1 else f"{model} ({step.role})"
