"""`odar eval list` and `collect`: make recordings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from odar.cli.local import prepare_models
from odar.cli.options import COUNT, FILE, json_option, settings_options
from odar.cli.runs import RunOptions, read_chat_body, record_items, run_options
from odar.cli.terminal import format_known, notice, print_columns, print_json
from odar.engine import Odar
from odar.errors import GradedElsewhere, InputError, UsageError
from odar.lab.benchmarks.base import BENCHMARKS, NAMES, Benchmark
from odar.lab.graders.text import TEXT_GRADERS
from odar.lab.recording.files import SUFFIXES, is_recording, open_recording
from odar.lab.recording.header import header_of
from odar.lab.recording.questions import load_questions, question_set
from odar.lab.recording.schema import Task, TaskSet, sum_costs
from odar.lab.runs.collect import Job, make_items
from odar.lab.runs.journal import Journal, WorkItem
from odar.lab.selection import check_grader, select_tasks, with_fitting_prompts
from odar.settings import Settings
from odar.types import Query

MAX_SAMPLES = 9
"""Length of the longest best-of-N curve of SPEC 7.3."""
LoadedSet = tuple[TaskSet, list[Task]]


@click.command("collect")
@click.argument("names", nargs=-1, required=True, metavar="SET...")
@click.option("--out", type=FILE, required=True, metavar="FILE.jsonl", help="The recording.")
@click.option("--limit", type=COUNT, help="Items of each set, a stratified sample.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(42,), help="Repeatable.")
@click.option("--samples", type=click.IntRange(1, MAX_SAMPLES), help="Slow samples per item. Default: as on Hard.")
@click.option("--data", type=FILE, metavar="DIR", help="Read benchmarks from this folder, not from the hub.")
@click.option("--score-by", type=click.Choice(sorted(TEXT_GRADERS)), help="Grader of your own questions.")
@run_options(concurrency=4)
@click.option("--quiet", is_flag=True, help="No progress bar.")
@settings_options
def collect_command(names: tuple[str, ...], out: str, run: RunOptions, settings: Settings, **options: Any) -> int:
    """Run all agents on every item of some sets, and record their answers.

    A SET is a benchmark (`odar eval list`), a JSONL file of your own questions, with query and answer on each line
    as for `odar calibrate`, or a recording: its questions are asked again, with other models or prompts. You can
    stop it at any time, with Ctrl-C or kill -9: every answer is saved when it arrives, and the same command
    continues.
    Sets of more than 5,000 items give five disjoint stratified folds of 1,000.

    \b
    odar eval collect my-questions.jsonl --out runs/mine.jsonl
    odar eval collect gsm8k math --data data --samples 9 --seed 42 --seed 123 \\
      --out runs/maths.jsonl
    odar eval collect gsm8k --out runs/maths.jsonl --engine ray \\
      --ray-address HOST:6379
    """
    path = Path(out)
    if not path.name.endswith(".jsonl"):
        raise UsageError(f"--out {out}: a recording that can grow is a .jsonl file, such as {out}.jsonl")
    # the questions, and prompts that their graders can read
    folder = Path(options["data"]) if options["data"] else None
    loaded = [each for name in dict.fromkeys(names) for each in _load_sets(name, folder, options["score_by"])]
    sets = _scorable_sets(loaded)
    prompts_before = settings.prompts
    settings = with_fitting_prompts(settings, [task_set for task_set, _ in sets])
    if settings.prompts != prompts_before:
        notice(f"prompts = {settings.prompts!r}: the form of the answers is scored")
    jobs = list(_jobs(sets, options["limit"], options["seeds"]))
    prepare_models(settings, quiet=run.quiet)
    # record what the journal does not hold yet
    samples = options["samples"] or settings.routing.samples
    recorded = replace(settings, routing=replace(settings.routing, samples=samples))
    odar = Odar(recorded)  # makes no call
    header = header_of(odar, settings.routing.samples)
    items = make_items(odar, jobs)
    with Journal(path, header.to_row()) as journal:
        try:
            return record_items(run, recorded, items, journal)
        finally:
            _print_summary(journal, items, out)


def _load_sets(name: str, folder: Path | None, score_by: str | None) -> Iterator[LoadedSet]:
    """Load a benchmark, or the sets of a recording or of a file of questions."""
    if not name.endswith(SUFFIXES):
        if score_by:
            raise UsageError(f"--score-by is for your own questions; {name} has its own grader")
        yield BENCHMARKS[name], _load_benchmark(BENCHMARKS[name], folder)
    elif not name.endswith(".jsonl") or is_recording(name):
        yield from _recorded_sets(name)
    else:
        yield from _question_sets(name, score_by)


def _load_benchmark(benchmark: Benchmark, folder: Path | None) -> list[Task]:
    if benchmark.how_to_import:  # `_scorable_sets` rejects it; no data is needed
        return []
    tasks = list(benchmark.load(folder))
    if benchmark.size not in (None, len(tasks)):
        notice(f"{benchmark.name} has {len(tasks):,} tasks here; the official set has {benchmark.size:,}")
    return tasks


def _question_sets(name: str, score_by: str | None) -> Iterator[LoadedSet]:
    questions = load_questions(name, read_chat_body, answers=True)
    grader = TEXT_GRADERS[score_by] if score_by else None
    for own in dict.fromkeys(question.set for question in questions):
        members = [question for question in questions if question.set == own]
        by_benchmark = {question.by_benchmark for question in members}
        if len(by_benchmark) > 1:
            raise InputError(f"{name}: set {own!r} has questions with gold and others with answer; use one of them")
        if by_benchmark == {True}:
            yield BENCHMARKS[own], [*members]
        else:
            yield question_set(own or Path(name).stem, score_by or "accuracy", grader), [*members]


def _recorded_sets(name: str) -> Iterator[LoadedSet]:
    """Yield the sets of a recording, whose questions are asked again."""
    tasks: dict[str, dict[str, Task]] = {}
    for item in open_recording(name).items():
        task = Task(item.key.id, Query(item.query), item.gold, item.stratum, item.effort, split=item.split)
        tasks.setdefault(item.key.set, {})[item.key.id] = task
    for own, members in tasks.items():
        task_set: TaskSet = BENCHMARKS[own] if own.partition("+")[0] in BENCHMARKS.names() else question_set(own)
        yield task_set, list(members.values())


def _scorable_sets(sets: Iterable[LoadedSet]) -> list[LoadedSet]:
    """The sets whose answers can be scored here; a notice names the others. InputError if no set is left."""
    scorable = []
    reasons = []
    for task_set, tasks in sets:
        try:
            check_grader(task_set, tasks)
            scorable.append((task_set, tasks))
        except GradedElsewhere as error:
            reasons.append(str(error))
    if not scorable:
        raise InputError(" ".join(reasons))
    for reason in reasons:
        notice(f"left out: {reason}")
    return scorable


def _jobs(sets: Iterable[LoadedSet], limit: int | None, seeds: Sequence[int]) -> Iterator[Job]:
    """Yield every item of every set with every seed; all seeds have the same items."""
    for task_set, tasks in sets:
        drawn = select_tasks(tasks, limit=limit)
        if not drawn:
            raise InputError(f"set {task_set.name} holds no items")
        for seed in dict.fromkeys(seeds):
            for task, fold in drawn:
                yield Job(task_set, task, fold, seed)


def _print_summary(journal: Journal, items: Sequence[WorkItem], out: str) -> None:
    done = len(items) - len(journal.missing(items))
    held = sum(not row.failed for row in journal.entries.values())
    cost = sum_costs([row.cost_usd for row in journal.entries.values()])
    spent = "" if cost == 0 else format_known(cost, ", ${:.4f} spent", ", cost unknown")
    rest = "" if done == len(items) else "; the same command continues"
    notice(f"{done} of {len(items)} items done{spent}; {out} holds {held}{rest}")


@click.command("list")
@json_option("Print a JSON list.")
def list_command(as_json: bool) -> None:
    """List every benchmark: category, metric, size and licence; with --json also its source and notes."""
    benchmarks = [BENCHMARKS[name] for name in (*NAMES, *sorted(BENCHMARKS.names() - set(NAMES)))]
    if as_json:
        shown = [field.name for field in fields(Benchmark) if field.name not in ("load", "score")]
        rows = [{name: getattr(each, name) for name in shown} for each in benchmarks]
        print_json(rows)
        return
    columns = {
        "name": [b.name for b in benchmarks],
        "category": [b.category for b in benchmarks],
        "metric": [b.metric for b in benchmarks],
        "size": ["" if b.size is None else f"{b.size:,}" for b in benchmarks],
        "licence": [f"{b.licence}{', gated' * b.gated}" for b in benchmarks],
    }
    print_columns(columns, left=("category", "metric", "licence"), gap=2)
    click.echo("Sources, notes and how to grade what is graded elsewhere: --json", err=True)
