"""Compare the fitted fusion rule with voting, the best single model and the paper's argmin on recorded models.

Reads the folder `mmlu_pro_outcomes`: 83 models on 5,222 questions, each with its answer and mean token probability.
Every figure of the fitted rule is for questions it was not fitted to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from odar.calibration.fusion_fit import BETAS, GAMMAS, baseline_rule, fit_fusion, skill_weights
from odar.calibration.parts import fold_masks
from odar.errors import InputError
from odar.files import user_path
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.rules import Votes, fuse
from odar.recording.files import import_arrow

CONSTANT = ("deepseek-chat",)
"""Models whose recorded probability is the same for every answer, and so says nothing."""
DRAWS = 20
"""Of all questions anew, to see what luck does."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Models and their votes, one column each."""

    models: tuple[str, ...]
    votes: Votes


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group of models, by each rule."""

    models: tuple[str, ...]
    best_single: float
    majority: float
    argmin: float
    plain: float
    """The better of majority and best single, which of them (and which single) chosen on other folds."""
    fitted: float
    oracle: float
    luck: tuple[float, ...] = ()
    """The hindsight margin of a rule that knows the best setting, on questions drawn anew, for each draw."""

    @property
    def margin(self) -> float:
        """The fitted rule against the better of the two plain ones, both with the same knowledge."""
        return self.fitted - self.plain

    @property
    def hindsight_margin(self) -> float:
        """The same against the better one as known from all questions.

        Of two equal models, the one that leads on four folds is behind on the fifth. So this is negative there, for
        any rule that has to choose between them.
        """
        return self.fitted - max(self.best_single, self.majority)


def load_panel(folder: str | Path) -> Panel:
    """The recorded models.

    Raises:
        InputError: the folder does not hold the data, or pyarrow is not installed.
    """
    file = user_path(folder) / "mmlu_pro_outcomes" / "outcomes.parquet"
    _, parquet = import_arrow()
    try:
        table = parquet.read_table(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    names = table.column("model").to_pylist()
    models = tuple(sorted(set(names) - set(CONSTANT)))
    column_of = {model: i for i, model in enumerate(models)}
    columns = np.array([column_of.get(name, -1) for name in names])
    rows = np.unique(table.column("row").to_numpy(), return_inverse=True)[1]
    kept = columns >= 0
    place = rows[kept], columns[kept]
    shape = rows.max() + 1, len(models)
    probability = np.full(shape, np.nan)
    probability[place] = table.column("mean_token_probability").to_numpy(zero_copy_only=False)[kept]
    correct = np.zeros(shape, dtype=bool)
    correct[place] = table.column("correct").to_numpy(zero_copy_only=False)[kept]
    answers = np.array([str(answer or "") for answer in table.column("answer").to_pylist()])[kept]
    letters = {letter: number for number, letter in enumerate(sorted(set(answers) - {""}))}
    groups = np.full(shape, -1, dtype=np.int64)
    # A model that gave no option agrees with nobody: it is a group of its own.
    groups[place] = [letters.get(a, len(letters) + c) for a, c in zip(answers, place[1], strict=True)]
    energy = -np.log(np.clip(probability, 1e-9, 1.0))
    return Panel(models, Votes(energy, groups, correct))


@dataclass(frozen=True, slots=True)
class CrossFit:
    """What a fitted rule does to questions it has not seen."""

    winners: Ints
    """The winning column of each question, chosen by a rule fitted without it."""
    plain: Ints
    """The same by the better of majority voting and "always the best source" on the other folds."""
    energy: Array
    """The aligned energies those rules saw."""


def standardize(energy: Array, fitted_on: Bools | slice) -> Array:
    """Each source's energies as z-scores by the mean and deviation of some of the questions (SPEC 5.5)."""
    known = energy[fitted_on]
    count = np.maximum(1, np.isfinite(known).sum(axis=0))  # a source without any energy stays without
    mean = np.nansum(known, axis=0) / count
    deviation = np.sqrt(np.nansum((known - mean) ** 2, axis=0) / count)
    return np.asarray((energy - mean) / np.where(deviation > 0, deviation, 1.0))


def cross_fit(votes: Votes, seed: int) -> CrossFit:
    """Choose the answers to each fold by a rule that was fitted to the others."""
    winners, plain = (np.zeros(len(votes), dtype=np.int64) for _ in range(2))
    energy = np.zeros_like(votes.energy)
    for test in fold_masks(len(votes), seed):
        train = ~test
        aligned = standardize(votes.energy, train)
        seen = replace(votes, energy=aligned)
        holder, fit = baseline_rule(seen.rows(train)), fit_fusion(seen.rows(train))
        winners[test] = fuse(seen.rows(test), fit.beta, fit.skills)
        plain[test] = fuse(seen.rows(test), holder.beta, holder.skills)
        energy[test] = aligned[test]
    return CrossFit(winners, plain, energy)


def majority_vote(votes: Votes) -> Ints:
    """The winning column of each question by plain voting, ties by energy."""
    return fuse(votes, 0.0, np.ones(votes.groups.shape[1]))


def accuracy(votes: Votes, winners: Ints) -> float:
    """The share of questions whose winner is right."""
    return float(votes.correct[np.arange(len(votes)), winners].mean())


def oracle(votes: Votes) -> float:
    """The share of questions with at least one right candidate."""
    return float(votes.correct.any(axis=1).mean())


def measure_group(panel: Panel, members: Sequence[int], seed: int) -> GroupResult:
    """One group by every rule; energies and weights come from other folds than the questions they judge."""
    whole, columns = panel.votes, list(members)
    votes = Votes(whole.energy[:, columns], whole.groups[:, columns], whole.correct[:, columns])
    fitted = cross_fit(votes, seed)
    aligned = replace(votes, energy=fitted.energy)
    return GroupResult(
        models=tuple(panel.models[m] for m in members),
        best_single=float(votes.correct.mean(axis=0).max()),
        majority=accuracy(aligned, majority_vote(aligned)),
        argmin=accuracy(aligned, fuse(aligned, np.inf, np.ones(len(members)))),
        plain=accuracy(votes, fitted.plain),
        fitted=accuracy(votes, fitted.winners),
        oracle=oracle(votes),
        luck=tuple(luck(votes, seed).tolist()),
    )


def luck(votes: Votes, seed: int, draws: int = DRAWS) -> Array:
    """What hindsight alone costs: the margin of a rule that knows the best setting, on questions drawn anew.

    The population is these questions, and the rule is the one that is best on all of them, among the plain ones and
    all that can be fitted. On a draw the better plain rule is chosen by looking; this one was chosen before. Where
    two models are equal, it is behind by as much as one of them happens to lead, and nobody can do better.
    """
    aligned = replace(votes, energy=standardize(votes.energy, slice(None)))
    rows = np.arange(len(votes))
    plain = np.column_stack([votes.correct, aligned.correct[rows, majority_vote(aligned)]])
    settings = [(beta, skill_weights(votes, gamma)) for beta in BETAS for gamma in GAMMAS]
    fitted = [aligned.correct[rows, fuse(aligned, *setting)] for setting in settings]
    best = max([*fitted, *plain.T], key=lambda right: int(right.sum()))
    counts = np.random.default_rng(seed).multinomial(len(votes), np.full(len(votes), 1 / len(votes)), draws)
    return np.asarray((counts @ best - (counts @ plain).max(axis=1)) / len(votes))


def random_groups(panel: Panel, count: int, seed: int) -> Iterator[list[int]]:
    """Groups of three to six models."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.choice(len(panel.models), min(int(rng.integers(3, 7)), len(panel.models)), replace=False).tolist()


def pairs(panel: Panel, count: int | None, seed: int) -> list[tuple[int, int]]:
    """All pairs of models, or some of them at random."""
    every = list(itertools.combinations(range(len(panel.models)), 2))
    if count is None or count >= len(every):
        return every
    chosen = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [every[int(i)] for i in chosen]
