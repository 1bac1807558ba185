"""What can be known before the first question is paid for: that answers can be scored, and how to ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odar.agents.prompts import load_prompts
from odar.errors import InputError
from odar.evals.benchmarks.base import Benchmark, Task
from odar.settings import Settings
from odar.types import Step

PLAIN_PROMPTS = "chat"
_PROBE = "x + 1"
"""An answer that a scorer has to look at: an empty one might be wrong without a look."""
_PROBES = 30
"""Strata of a benchmark whose scorer is tried; more would say the same again."""


def check_scorer(benchmark: Benchmark, tasks: Sequence[Task]) -> None:
    """Score some answer to a task of every kind: whatever the scorer lacks, it says so now.

    Raises:
        InputError: answers to this benchmark cannot be scored here; says what is missing.
    """
    kinds = {task.stratum: task for task in reversed(tasks)}
    for task in list(kinds.values())[:_PROBES]:
        try:
            benchmark.score(task, _PROBE, _PROBE)
        except InputError as error:
            needs = f" needs {benchmark.about.needs}:" if benchmark.about.needs else ":"
            raise InputError(f"scoring {benchmark.name}{needs} {error}") from None


def with_fitting_prompts(settings: Settings, benchmarks: Sequence[Benchmark]) -> Settings:
    """The settings with prompts that leave an answer its own form, where that form is what is scored.

    Prompts of the user's own that ask for no marked answer stay.

    Raises:
        InputError: some of the benchmarks want such prompts and others do not; one panel has one set of prompts.
    """
    plain = [benchmark.name for benchmark in benchmarks if benchmark.about.plain]
    if not plain:
        return settings
    prompts = load_prompts(settings.prompts)
    if not any(prompts[step].marks for step in (Step.ANSWER, Step.VERIFY, Step.SOLVE)):
        return settings
    if others := [benchmark.name for benchmark in benchmarks if not benchmark.about.plain]:
        raise InputError(
            f"{', '.join(plain)} is asked with prompts = {PLAIN_PROMPTS!r}, because the form of its answers is "
            f"scored, and {', '.join(others)} with {settings.prompts!r}: collect them into two panels"
        )
    return replace(settings, prompts=PLAIN_PROMPTS)
