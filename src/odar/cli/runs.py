"""Runs of many questions: what `odar batch`, `calibrate`, `certify`, `advise` and `eval collect` share.

Each of these calls the next:

record_questions  questions of a user → jobs
record_in_cache   jobs → items and a journal in the cache folder
record_items      the run in which all agents answer the items
run_items         shows the cost, asks for consent, and does any work on the items of a journal
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from odar import errors
from odar.call_prices import call_prices, is_nominal
from odar.cli.local import available_memory_mb, local_models, local_providers, memory_mb
from odar.cli.main import exit_code_of
from odar.cli.options import COUNT, USD
from odar.cli.terminal import format_known, notice
from odar.engine import Odar
from odar.errors import InputError
from odar.files import cache_folder
from odar.lab.calibration.items import usable_items
from odar.lab.recording.header import header_of
from odar.lab.recording.questions import Question, question_set
from odar.lab.recording.schema import RecordedItem, item_from_json
from odar.lab.runs.collect import Job, make_items, open_collect_work
from odar.lab.runs.executor import OpenWork, Progress
from odar.lab.runs.executor import run as run_work
from odar.lab.runs.journal import Journal, WorkItem
from odar.lab.runs.limits import check_needs, rates_of
from odar.lab.selection import select_tasks
from odar.settings import Settings
from odar.types import Query

F = TypeVar("F", bound=Callable[..., Any])
SEED = 42
"""The seed of the requests."""
MAX_COPIES = 4
"""Maximum number of copies of the local models."""
TIMEOUT_FACTOR = 10.0
"""Factor for the timeouts of the local model in batches: no user waits, and the machine may be busy."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Values of the options that `run_options` adds."""

    concurrency: int
    budget: float | None = None
    """Maximum cost in US dollars, earlier runs included."""
    yes: bool = False
    """Whether to spend money without confirmation."""
    engine: str = "local"
    ray_address: str | None = None
    workers: int = 1
    quiet: bool = False
    """Whether there is no progress bar, because of --json or --quiet."""


def run_options(concurrency: int, *, engine: bool = True) -> Callable[[F], F]:
    """Add --concurrency, --budget and --yes, and with `engine` those of Ray; the command receives `run`."""
    engine_help = "Run in this process or on a Ray cluster."
    address_help = "Address of the Ray cluster, or local to start one. Default: $RAY_ADDRESS."
    options = [
        click.option(
            "--concurrency", type=COUNT, metavar="N", default=concurrency, help="Number of concurrent questions."
        ),
        click.option("--budget", type=USD, metavar="USD", help="Stop before this is spent, earlier runs too."),
        click.option("--yes", is_flag=True, help="Do not ask before spending money."),
    ]
    if engine:
        options += [
            click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help=engine_help),
            click.option("--ray-address", metavar="ADDRESS", help=address_help),
            click.option("--workers", type=COUNT, default=2, help="Processes on Ray."),
        ]

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = {each.name: kwargs.pop(each.name) for each in fields(RunOptions) if each.name in kwargs}
            return command(*args, run=RunOptions(**{"quiet": kwargs.get("as_json", False), **given}), **kwargs)

        decorated: Callable[..., Any] = wrapper
        for option in reversed(options):
            decorated = option(decorated)
        return cast(F, decorated)

    return decorate


# --- questions → items → answers ---------------------------------------------------------------------------------


def record_questions(
    run: RunOptions, settings: Settings, questions: list[Question], data: str
) -> list[RecordedItem]:
    """Let all agents answer questions, and return the items that all of them answered.

    `data` is the file of the questions, which names their set.

    Raises:
        InputError: the questions are those of a benchmark, which scores them in its own way.
    """
    if any(question.by_benchmark for question in questions):
        raise InputError("these questions are scored by a benchmark; record them with `odar eval collect`")
    folds = {task.id: fold for task, fold in select_tasks(questions)}
    task_set = question_set(Path(data).stem)
    jobs = [Job(task_set, each, folds.get(each.id, 0), SEED) for each in questions]
    recorded = settings.with_default_models()
    _, items, _ = record_in_cache(run, recorded, jobs, "calibration/{}.jsonl")
    return usable_items(items, settings, settings.routing.samples)


def record_in_cache(
    run: RunOptions, settings: Settings, jobs: Sequence[Job], name: str
) -> tuple[int, list[RecordedItem], float]:
    """Let all agents answer the questions of jobs; return the exit code, the finished items, and what was spent.

    Answers are kept in a journal of the cache folder, so that only missing ones are asked for. In its `name`, {}
    stands for the digest of models and prompts.
    """
    odar = Odar(settings)  # makes no call
    header = header_of(odar)
    items = make_items(odar, jobs)
    with Journal(cache_folder() / name.format(header.made_by), header.to_row()) as journal:
        code = record_items(run, settings, items, journal)
        spent_usd = sum(entry.cost_usd or 0.0 for entry in journal.entries.values())
        return code, [item_from_json(row) for row in journal.rows(item.key for item in items)], spent_usd


def record_items(run: RunOptions, settings: Settings, items: Sequence[WorkItem], journal: Journal) -> int:
    """Let all agents answer every item that is not in the journal, report failures, and return the exit code.

    A local model runs once on each core of this process, or once in each Ray worker.
    """
    expected = expected_cost(settings, [item.payload for item in journal.missing(items)])
    open_providers = None
    if local_models(settings):
        settings = with_long_timeouts(settings)
        if run.engine == "ray":
            run = replace(run, concurrency=run.workers)
        else:
            run = replace(run, concurrency=copy_count(settings))
            open_providers = partial(local_providers, copies=run.concurrency)
    work = partial(open_collect_work, settings, open_providers)
    done, failed = run_items(run, settings, items, journal, work, expected)
    report_failures(failed, done)
    return exit_code(failed, done.stopped)


def run_items(
    run: RunOptions,
    settings: Settings,
    items: Sequence[WorkItem],
    journal: Journal,
    work: OpenWork,
    expected: str = "",
) -> tuple[Progress, dict[str, Mapping[str, Any]]]:
    """Do the work on every item that is not in the journal; return the progress and the errors by item.

    `expected` is that of `confirm_run`.
    """
    todo = journal.missing(items)
    confirm_run(run, settings, todo, len(items), expected)
    try:
        with progress_bar(len(items), len(items) - len(todo), quiet=run.quiet) as on_progress:
            running = run_work(
                items,
                on_engine(run, work),
                journal,
                rates=rates_of(settings),
                concurrency=run.concurrency,
                budget_usd=run.budget,
                on_progress=on_progress,
            )
            done = asyncio.run(running)
    except KeyboardInterrupt:
        notice("the same command continues from here; what is paid for is kept")
        raise
    failed = [item.key for item in items if item.key in journal.entries and journal.entries[item.key].failed]
    return done, {row["id"]: row["error"] for row in map(json.loads, journal.lines(failed))}


# --- before a run ------------------------------------------------------------------------------------------------


def confirm_run(run: RunOptions, settings: Settings, todo: Sequence[WorkItem], total: int, expected: str) -> None:
    """Check rate limits, print the maximum cost, and ask for consent if there is a cost and no budget.

    Args:
        todo: the items that are not in the journal yet, of `total` in all.
        expected: what it takes besides the maximum cost; ends in ", " or ": ".

    Raises:
        InputError: consent is needed, and there is no terminal to ask on.
        SettingsError: a single item exceeds a rate limit.
    """
    for item in todo:
        check_needs(item.needs, rates_of(settings))
    costs = [item.worst_cost_usd for item in todo]
    known = sum(cost for cost in costs if cost is not None)
    unknown = None in costs
    if todo:
        price = "an unknown amount: a price is missing" if unknown else f"at most ${known:.4f}"
        notice(f"{len(todo)} of {total} questions to answer, {expected}{price}")
    if run.budget is None and (unknown or known) and not run.yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --budget USD or --yes to go on")
        click.confirm("go on?", abort=True, err=True)


def expected_cost(settings: Settings, jobs: Sequence[Job]) -> str:
    """The calls of some jobs, and their cost at the usual length, for `confirm_run`."""
    cards = {agent: settings.card(model) for agent, model in settings.default_models.items()}
    asks = [(job, ask) for job in jobs for ask in job.asks]
    calls = f"at most {sum(ask.samples for _, ask in asks)} calls"
    if unknown := [card.name for card in cards.values() if card.price is None]:
        return f'{calls}; set [models."{unknown[0]}"] price to know what they cost: '
    if is_nominal(cards):
        return f"{calls}, "
    prices = {job.key: call_prices(cards, job.task.query.estimated_tokens)[0] for job in jobs}
    cost = sum(prices[job.key][ask.agent] * ask.samples for job, ask in asks)
    return f"{calls}, about ${cost:.4f} at the usual length, "


def with_long_timeouts(settings: Settings) -> Settings:
    """Settings with longer timeouts, for a local model: no user waits for the answers."""
    agents = {name: settings.agent(name) for name in settings.agent_names}
    longer = {name: replace(agent, timeout_s=TIMEOUT_FACTOR * agent.timeout_s) for name, agent in agents.items()}
    limits = replace(settings.limits, deadline_s=TIMEOUT_FACTOR * settings.limits.deadline_s)
    return replace(settings.with_agents(longer), limits=limits)


# --- where a run takes place -------------------------------------------------------------------------------------


def on_engine(run: RunOptions, work: OpenWork) -> OpenWork:
    """The work in this process, or on the Ray cluster that the options name."""
    if run.engine == "local":
        return work
    from odar.lab.runs.cluster import on_ray

    return on_ray(work, run.ray_address or os.environ.get("RAY_ADDRESS"), run.workers)


def copy_count(settings: Settings) -> int:
    """The number of copies of the local models: one for each core, if the memory suffices.

    Copies with one thread each are faster than one copy with many threads, and give the same answers.
    """
    from odar.providers.llamacpp import usable_cores

    available = available_memory_mb()
    needed = memory_mb(settings)
    fitting = MAX_COPIES if available is None or not needed else available // needed
    return max(1, min(usable_cores() // (settings.local.threads or 1), MAX_COPIES, fitting))


# --- progress and failures ---------------------------------------------------------------------------------------


@contextmanager
def progress_bar(total: int, done: int = 0, *, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Show a bar on standard error, with the cost so far and to go; yield a function that updates it."""
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    times = TimeElapsedColumn(), TimeRemainingColumn()
    columns = BarColumn(), MofNCompleteColumn(), *times, TextColumn("{task.description}")
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda progress: bar.update(task, completed=progress.done, description=describe_costs(progress))


def describe_costs(progress: Progress) -> str:
    """The description of the progress bar.

    >>> describe_costs(Progress(total=4, done=2, failed=0, cost_usd=0.5))
    '$0.5000 so far, about $0.5000 to go'
    """
    text = format_known(progress.cost_usd, "${:.4f} so far", "cost unknown")
    text += format_known(progress.cost_to_go_usd, ", about ${:.4f} to go", "")
    return text + (f", {progress.failed} failed" if progress.failed else "")


def report_failures(failed: Mapping[str, Mapping[str, Any]], done: Progress) -> None:
    """Print a line for every type of error, with the first of its messages."""
    kinds = Counter(error["type"] for error in failed.values())
    for kind, count in kinds.most_common():
        name, error = next((name, error) for name, error in failed.items() if error["type"] == kind)
        first = f"the first ({name}): {error['message']}"
        notice(f"{count} failed with {kind}, {first}; the same command tries again")
    if done.stopped:
        notice(f"stopped: {done.stopped}")


def exit_code(failed: Mapping[str, Mapping[str, Any]], stopped: str | None) -> int:
    """The most important code: a provider that failed, then a limit, then the input."""
    codes = {exit_code_of(getattr(errors, error["type"], Exception)) for error in failed.values()}
    if stopped:
        codes.add(4)
    return next((code for code in (3, 4, 2, *sorted(codes)) if code in codes), 0)


# --- chat bodies in files ----------------------------------------------------------------------------------------


def read_chat_body(body: Mapping[str, Any]) -> Query:
    """Read a chat body in the form of OpenAI's clients; ValueError if it is invalid."""
    from odar.serving.errors import ApiError
    from odar.serving.protocols.chat import read_chat

    try:
        return read_chat({"model": "odar", **body}).query
    except ApiError as error:
        raise ValueError(error.message) from None
