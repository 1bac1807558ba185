"""Selection of the items of a benchmark (SPEC 7.4), and checks before the first call is paid for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from odar.agents.prompts import load_prompts
from odar.errors import GradedElsewhere, InputError
from odar.lab.recording.schema import Task, TaskSet
from odar.settings import Settings
from odar.types import Step

LARGE = 5_000
"""Number of tasks above which a set is sampled; smaller sets are taken whole."""
FOLDS = 5
FOLD_SIZE = 1_000
QUANTILES = 4
PLAIN_PROMPTS = "chat"
_PROBE_ANSWER = "x + 1"
"""The answer that graders are tried with; an empty one could be rejected before the grader needs its libraries."""
_MAX_PROBES = 30
"""Maximum number of strata of a benchmark whose grader is tried."""


def select_tasks(tasks: Sequence[Task], *, limit: int | None = None, seed: int = 42) -> list[tuple[Task, int]]:
    """Select tasks, each with one of five disjoint folds; every stratum is in proportion.

    A set of more than 5,000 tasks gives five folds of 1,000; a smaller one is taken whole; `limit` takes fewer.
    Strata depend on no model and no answer.
    """
    size = FOLDS * FOLD_SIZE if len(tasks) > LARGE else len(tasks)
    strata = label_free_strata([task.stratum for task in tasks], [len(task.query.text) for task in tasks])
    chosen = stratified_order(strata, np.random.default_rng(seed))[: min(size, limit or size)]
    # Assigned stratum by stratum: folds of equal size, each stratum spread evenly over them.
    fold_of = {place: number % FOLDS for number, place in enumerate(sorted(chosen, key=lambda i: strata[i]))}
    # Asked in the order of `stratified_order`: a run that is stopped early has asked a stratified sample, too.
    return [(tasks[i], fold_of[i]) for i in chosen]


def stratified_order(strata: Sequence[tuple[Hashable, ...]], rng: np.random.Generator) -> list[int]:
    """Positions in an order of which every prefix holds each stratum in proportion; random within a stratum.

    A stratum is a tuple: its first element is kept in proportion first, within it the second, and so on.

    >>> order = stratified_order([("a",), ("a",), ("a",), ("a",), ("b",), ("b",)], np.random.default_rng(1))
    >>> sum(place >= 4 for place in order[:3])
    1
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, stratum in enumerate(strata):
        members[stratum[:1]].append(position)
    ranked: list[tuple[float, int]] = []
    for first, positions in members.items():
        rest = [strata[i][1:] for i in positions]
        inner = stratified_order(rest, rng) if first else rng.permutation(len(positions)).tolist()
        # The k-th of n members comes at (k + u)/n of the way: systematic sampling with a random start.
        start = rng.random()
        ranked += [((k + start) / len(positions), positions[place]) for k, place in enumerate(inner)]
    return [position for _, position in sorted(ranked)]


def label_free_strata(tags: Sequence[str], lengths: Sequence[int]) -> list[tuple[str, int]]:
    """A set's own tags crossed with quarters of question length: they depend on no model and no label."""
    edges = np.quantile(np.asarray(lengths, float), np.linspace(0, 1, QUANTILES + 1)[1:-1]) if lengths else []
    quarters = np.searchsorted(edges, np.asarray(lengths, float), side="right")
    return [(tag, int(quarter)) for tag, quarter in zip(tags, quarters, strict=True)]


def check_grader(task_set: TaskSet, tasks: Sequence[Task]) -> None:
    """Score an answer to a task of every stratum, so that a missing requirement is reported before the first call.

    Raises:
        GradedElsewhere: the benchmark has its own harness.
        InputError: answers cannot be scored here; the message names what is missing.
    """
    if task_set.how_to_import:
        raise GradedElsewhere(task_set.how_to_import)
    first_of_stratum = {task.stratum: task for task in reversed(tasks)}
    for task in list(first_of_stratum.values())[:_MAX_PROBES]:
        try:
            task_set.score(task, _PROBE_ANSWER, _PROBE_ANSWER)
        except InputError as error:
            raise InputError(f"scoring {task_set.name}: {error}") from None


def with_fitting_prompts(settings: Settings, sets: Sequence[TaskSet]) -> Settings:
    """The settings with prompts that ask for no marked answer, if the form of the answers is scored.

    Prompts of a user that ask for no marked answer are kept.

    Raises:
        InputError: some of the sets need such prompts and others do not; a recording has one set of prompts.
    """
    plain = [task_set.name for task_set in sets if task_set.form_is_scored]
    prompts = load_prompts(settings.prompts).exact
    if not plain or not any(prompts[step].asks_for_marker for step in (Step.ANSWER, Step.VERIFY, Step.SOLVE)):
        return settings
    if others := [task_set.name for task_set in sets if task_set.name not in plain]:
        raise InputError(
            f"{', '.join(plain)} is asked with prompts = {PLAIN_PROMPTS!r}, because the form of its answers is "
            f"scored, and {', '.join(others)} with {settings.prompts!r}: collect them into two recordings"
        )
    return replace(settings, prompts=PLAIN_PROMPTS)
