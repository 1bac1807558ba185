"""Compare prompt sets on questions with known answers: the figures behind the prompts of the profile `local`.

    python scripts/measure_prompts.py --profile local --items dev.jsonl local default my-prompts/

A line of the file has `query` and `answer`, or `set` and `gold` for the scorer of a benchmark.
Never use items that will judge the result. Prints accuracy, tokens and accuracy per 100 tokens of each prompt.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from odar.calibration.prompt_comparison import compare_prompts
from odar.config import load_settings
from odar.evals.benchmarks.base import BENCHMARKS
from odar.recording.collect import Job
from odar.recording.questions import QuestionSet, load_questions


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
