"""Score the recorded responses of any model against a benchmark's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odar.errors import InputError
from odar.evals.benchmarks.base import Benchmark, Task, read_rows
from odar.policy.answers import extract_answer


class RecordedResponse(NamedTuple):
    """What a model wrote, and for which task: by its id, or by its prompt."""

    text: str
    answer: str
    id: str = ""
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """How right a file of responses is."""

    mean: float
    count: int
    missing: int
    """Tasks that have no response; they are left out of the mean."""
    by_place: int
    """Responses that were matched by their place in the file, their prompts being slightly different."""
    strata: dict[str, tuple[float, int]]
    """Mean and number, by stratum."""
    figures: dict[str, float]
    """Further published figures, where the benchmark has them."""


def read_responses(path: Path) -> list[RecordedResponse]:
    """Responses from a JSONL or Parquet file: response, and id (or key) or prompt; answer where it is known.

    Raises:
        InputError: the file cannot be read, or a row lacks one of them.
    """
    responses = []
    for number, row in enumerate(read_rows(path)):
        name, prompt, text = row.get("id", row.get("key")), row.get("prompt"), row.get("response")
        if not isinstance(text, str) or (name is None and prompt is None):
            raise InputError(f"{path}: row {number} needs response, and id or prompt; it has {sorted(row)}")
        answer = row.get("answer")
        responses.append(
            RecordedResponse(
                text, extract_answer(text) if answer is None else str(answer), str(name or ""), prompt or ""
            )
        )
    return responses


def score_responses(benchmark: Benchmark, tasks: Iterable[Task], responses: Sequence[RecordedResponse]) -> Scores:
    """Score every task that has a response.

    Raises:
        InputError: no response belongs to any task.
    """
    tasks = list(tasks)
    found, by_place = match(tasks, responses)
    if not found:
        raise InputError(
            f"none of the {len(responses)} responses has the id or the prompt of a {benchmark.name} task"
        )
    scores: dict[str, list[float]] = defaultdict(list)
    pooled: dict[str, list[float]] = defaultdict(list)
    figures = getattr(benchmark, "figures", None)
    for task in tasks:
        if (response := found.get(task.id)) is None:
            continue
        scores[task.stratum].append(benchmark.score(task, response.text, response.answer))
        for name, values in figures(task, response.text, response.answer).items() if figures else ():
            pooled[name] += map(float, values)
    everything = [score for group in scores.values() for score in group]
    return Scores(
        mean=_mean(everything),
        count=len(everything),
        missing=len(tasks) - len(everything),
        by_place=by_place,
        strata={name: (_mean(group), len(group)) for name, group in sorted(scores.items())},
        figures={name: _mean(values) for name, values in pooled.items()},
    )


def match(tasks: Sequence[Task], responses: Sequence[RecordedResponse]) -> tuple[dict[str, RecordedResponse], int]:
    """Responses by the id of their task, and how many were found by place alone.

    An id counts before a prompt. Where a file has one response a task, and a prompt was edited since, the place in
    the file tells; but only where nine in ten prompts are the same.
    """
    ids = {task.id for task in tasks}
    prompts = {task.query.text: task.id for task in tasks}
    found: dict[str, RecordedResponse] = {}
    lost = []
    for place, response in enumerate(responses):
        name = response.id if response.id in ids else prompts.get(response.prompt)
        if name is None:
            lost.append(place)
        else:
            found[name] = response
    aligned = len(responses) == len(tasks) and len(lost) * 10 < len(tasks)
    moved = [place for place in lost if aligned and tasks[place].id not in found]
    for place in moved:
        found[tasks[place].id] = responses[place]
    return found, len(moved)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
