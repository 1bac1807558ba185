"""Compare prompt sets on questions with known answers: the figures behind the prompts of the profile `local`.

    python scripts/measure_prompts.py --profile local --items dev.jsonl local default my-prompts/

A line of the file has `query` and `answer`, or `set` and `gold` for the scorer of a benchmark.
Never use items that will judge the result. Prints accuracy, tokens and accuracy per 100 tokens of each prompt.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odar.config import load_settings
from odar.engine import Odar
from odar.evals.benchmarks.base import BENCHMARKS
from odar.recording.collect import ItemCalls, Job, finish
from odar.recording.journal import Memo
from odar.recording.questions import QuestionSet, load_questions
from odar.recording.schema import Attempt
from odar.settings import Settings
from odar.types import Step


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How one prompt of a set did."""

    prompts: str
    step: Step
    answers: int
    accuracy: float
    """Mean score by the metric of each set."""
    tokens: float
    """Mean output tokens of an answer."""
    cut_off: float
    """Share of answers that ended at the token budget."""
    unstated: float
    """Share of answers that did not mark their final answer."""

    @property
    def accuracy_per_100_tokens(self) -> float:
        """What a token buys: the figure by which prompt sets are compared."""
        return 100 * self.accuracy / self.tokens if self.tokens else 0.0


async def compare_prompts(
    settings: Settings,
    names: Sequence[str],
    jobs: Sequence[Job],
    *,
    samples: int = 1,
    make_engine: Callable[[Settings], Odar] = Odar,
) -> AsyncIterator[PromptResult]:
    """Yield one result per prompt set and step, as soon as it is known.

    Args:
        settings: models, sampling and token budgets.
        names: shipped prompt sets, or folders with `answer.toml`, `verify.toml` and `solve.toml`.
        jobs: the questions; never those that will be used to judge.
        samples: slow answers per question.
        make_engine: makes the engine for the settings of a prompt set.
    """
    for name in names:
        tried = replace(settings, prompts=name, routing=replace(settings.routing, samples=samples))
        attempts: list[Attempt] = []
        async with make_engine(tried) as odar:
            for job in jobs:
                calls = ItemCalls(odar, job, Memo({}, lambda name, value: None))
                await calls.run()
                attempts += finish(odar, job, calls.assignment, calls.attempts).attempts
        for step in Step:
            yield summarise(name, step, [attempt for attempt in attempts if attempt.step is step])


def summarise(prompts: str, step: Step, attempts: Sequence[Attempt]) -> PromptResult:
    """Return the figures of one prompt; zeros if it has no answers."""
    count = max(1, len(attempts))
    return PromptResult(
        prompts,
        step,
        len(attempts),
        accuracy=sum(attempt.score or 0.0 for attempt in attempts) / count,
        tokens=sum(attempt.usage.output or len(attempt.tokens) for attempt in attempts) / count,
        cut_off=sum(attempt.finish == "length" for attempt in attempts) / count,
        unstated=sum(not attempt.stated for attempt in attempts) / count,
    )


def load_jobs(path: str, limit: int | None, seed: int) -> list[Job]:
    """Return the questions of a file, at most `limit` of each set."""
    jobs: list[Job] = []
    taken: dict[str, int] = {}
    for question in load_questions(path, answers=True):
        taken[question.set] = taken.get(question.set, 0) + 1
        if limit is None or taken[question.set] <= limit:
            own = question.gold is None
            source = QuestionSet(question.set or Path(path).stem) if own else BENCHMARKS[question.set]
            jobs.append(Job(source, question.task, 0, seed))
    return jobs


async def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="+", help="shipped prompt sets, or folders")
    parser.add_argument("--items", required=True, metavar="FILE.jsonl")
    parser.add_argument("--profile", default="local")
    parser.add_argument("--limit", type=int, help="questions of each set")
    parser.add_argument("--samples", type=int, default=1, help="slow answers per question")
    parser.add_argument("--seed", type=int, default=42)
    arguments = parser.parse_args()
    settings = load_settings(profile=arguments.profile)
    jobs = load_jobs(arguments.items, arguments.limit, arguments.seed)
    print(f"{len(jobs)} questions\n{'prompts':24} {'step':8} accuracy tokens cut off unstated per 100 tokens")
    async for found in compare_prompts(settings, arguments.prompts, jobs, samples=arguments.samples):
        print(
            f"{found.prompts:24.24} {found.step:8} {found.accuracy:8.3f} {found.tokens:6.0f} {found.cut_off:7.2f} "
            f"{found.unstated:8.2f} {found.accuracy_per_100_tokens:14.2f}",
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(main())
