"""Which items of a benchmark to ask: disjoint stratified folds of a large set, all of a small one (SPEC 7.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from odar.evals.benchmarks.base import Task

LARGE = 5_000
"""Sets above this are drawn from; smaller ones are asked whole."""
FOLDS = 5
FOLD_SIZE = 1_000
QUANTILES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """The items to ask, and the fold of each."""

    tasks: list[Task]
    folds: list[int]


def plan(tasks: Sequence[Task], *, limit: int | None = None, seed: int = 42) -> Plan:
    """Five disjoint folds, in which every stratum has its share.

    A set of more than 5,000 gives five folds of 1,000; a smaller one, or one cut by `limit`, is dealt out whole.
    Strata are the set's own subjects or levels crossed with quarters of question length: nothing in them depends
    on a model or on an answer.
    """
    size = FOLDS * FOLD_SIZE if len(tasks) > LARGE else len(tasks)
    strata = label_free_strata([task.stratum for task in tasks], [len(task.query.text) for task in tasks])
    chosen = deal(strata, np.random.default_rng(seed))[: min(size, limit or size)]
    # Dealt out stratum by stratum, like cards: folds of equal size, each stratum spread evenly over them.
    fold_of = {place: number % FOLDS for number, place in enumerate(sorted(chosen, key=lambda i: strata[i]))}
    # Asked in the order they were dealt: what a run that is stopped has asked is a stratified sample, too.
    return Plan([tasks[i] for i in chosen], [fold_of[i] for i in chosen])


def deal(strata: Sequence[tuple[Hashable, ...]], rng: np.random.Generator) -> list[int]:
    """Positions in an order whose every beginning holds each stratum in proportion, at random within a stratum.

    A stratum is a path: the first part is kept in proportion first, within it the second, and so on.

    >>> order = deal([("a",), ("a",), ("a",), ("a",), ("b",), ("b",)], np.random.default_rng(1))
    >>> sum(place >= 4 for place in order[:3])
    1
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, stratum in enumerate(strata):
        members[stratum[:1]].append(position)
    ranked: list[tuple[float, int]] = []
    for first, positions in members.items():
        rest = [strata[i][1:] for i in positions]
        inner = deal(rest, rng) if first else rng.permutation(len(positions)).tolist()
        # The k-th of n members comes at (k + u)/n of the way: systematic sampling with a random start.
        start = rng.random()
        ranked += [((k + start) / len(positions), positions[place]) for k, place in enumerate(inner)]
    return [position for _, position in sorted(ranked)]


def label_free_strata(tags: Sequence[str], lengths: Sequence[int]) -> list[tuple[str, int]]:
    """A set's own tags crossed with quarters of question length, which no model and no label has a hand in."""
    edges = np.quantile(np.asarray(lengths, float), np.linspace(0, 1, QUANTILES + 1)[1:-1]) if lengths else []
    quarters = np.searchsorted(edges, np.asarray(lengths, float), side="right")
    return [(tag, int(quarter)) for tag, quarter in zip(tags, quarters, strict=True)]
