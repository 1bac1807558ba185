"""Shared by commands that ask many questions: executors, cost confirmation, progress and failures."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import click

from odar import errors
from odar.cli.local import available_memory_mb, memory_mb, uses_local_model
from odar.cli.main import EXIT_CODES
from odar.cli.options import COUNT
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError
from odar.providers.base import Provider
from odar.recording.executor import Item, OpenWork, Progress, Work, run
from odar.recording.journal import Journal
from odar.recording.limits import check_needs, rates_of
from odar.recording.work import WithEngine
from odar.settings import Settings
from odar.types import Query

F = TypeVar("F", bound=Callable[..., Any])
MOST_COPIES = 4
"""Maximum number of copies of the local models."""
TIMEOUT_FACTOR = 10.0
"""Factor for the timeouts of the local model in batches: no user waits, and the machine may be busy."""


def engine_options(command: F) -> F:
    """Adds --engine, --ray-address and --workers."""
    where = "Address of the Ray cluster, or local to start one. Default: $RAY_ADDRESS."
    what = "Run in this process or on a Ray cluster."
    command = click.option("--workers", type=COUNT, default=2, help="Processes on Ray.")(command)
    command = click.option("--ray-address", metavar="ADDRESS", help=where)(command)
    return click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help=what)(command)


def work_on(engine: str, work: OpenWork, address: str | None, workers: int) -> OpenWork:
    """Return the work as it is done by this engine: in this process, or on a Ray cluster."""
    if engine == "local":
        return work
    from odar.recording.cluster import on_ray

    return on_ray(work, address or os.environ.get("RAY_ADDRESS"), workers)


def with_long_timeouts(settings: Settings) -> Settings:
    """Settings with longer timeouts, for answers that no user waits for."""
    fast, slow = (replace(a, timeout_s=TIMEOUT_FACTOR * a.timeout_s) for a in (settings.fast, settings.slow))
    limits = replace(settings.limits, deadline_s=TIMEOUT_FACTOR * settings.limits.deadline_s)
    return replace(settings, fast=fast, slow=slow, limits=limits)


def copies(settings: Settings) -> int:
    """Return how many copies of the local models run at once: one for each core, as far as the memory goes.

    Copies with one thread each do more than one copy with many threads, and give the same answers.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available, needed = available_memory_mb(), memory_mb(settings)
    fitting = MOST_COPIES if available is None or not needed else available // needed
    return max(1, min(usable // (settings.local.threads or 1), MOST_COPIES, fitting))


def open_copies(settings: Settings) -> Mapping[str, Provider]:
    """Return the local providers, each as several copies."""
    from odar.providers.local import LocalProvider
    from odar.providers.pool import LeastBusyProvider

    threads, count = settings.local.threads or 1, copies(settings)
    found = {}
    for name in (name for name, provider in settings.providers.items() if provider.kind == "local"):
        contexts = settings.contexts(name)
        providers = [LocalProvider(name, threads=threads, contexts=contexts, copy=i) for i in range(count)]
        found[name] = LeastBusyProvider(providers)
    return found


def confirm(
    settings: Settings, todo: Sequence[Item], total: int, what: str, calls: str, budget: float | None, *, yes: bool
) -> None:
    """Print what it may cost, ask for consent if there is no budget, and refuse rates it would exceed."""
    for item in todo:
        check_needs(item.needs, rates_of(settings))
    costs = [item.worst_cost_usd for item in todo]
    known, unknown = sum(cost for cost in costs if cost is not None), None in costs
    if todo:
        price = "an unknown amount: a price is missing" if unknown else f"at most ${known:.4f}"
        click.echo(f"odar: {len(todo)} of {total} {what} to answer, {calls}{price}", err=True)
    if unknown and budget is not None:
        raise BudgetExceeded("--budget cannot be kept while a price is unknown; add it to odar.toml")
    if (unknown or known) and budget is None and not yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --budget USD or --yes to go on")
        click.confirm("go on?", abort=True, err=True)


def record(
    settings: Settings,
    items: Sequence[Item],
    journal: Journal,
    concurrency: int,
    budget: float | None,
    *,
    quiet: bool,
    make_work: Callable[[Odar], Work] | None = None,
) -> None:
    """Record both agents on every item in this process, with a progress bar; then report what failed.

    A local model runs once on each core. `make_work` asks something else about the items.
    """
    from odar.recording.collect import collect_work

    open_providers = None
    if uses_local_model(settings):
        settings, concurrency, open_providers = with_long_timeouts(settings), copies(settings), open_copies
    work = WithEngine(settings, make_work or collect_work, open_providers)
    before = len(items) - len(journal.missing(items))
    with shown(len(items), before, quiet=quiet) as show:
        rates = rates_of(settings)
        doing = run(items, work, journal, rates=rates, concurrency=concurrency, budget_usd=budget, on_progress=show)
        done = asyncio.run(doing)
    report_failures(failures(journal, items), done)


@contextmanager
def shown(total: int, done: int = 0, *, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error with the cost so far and to go."""
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
        yield lambda progress: bar.update(task, completed=progress.done, description=costs_of(progress))


def read_conversation(messages: list[Any]) -> Query:
    """Read messages in the form of OpenAI's clients."""
    from odar.gateway.chat import read_chat
    from odar.gateway.errors import ApiError

    try:
        return read_chat({"model": "odar", "messages": messages}).query
    except ApiError as refusal:
        raise ValueError(refusal.message) from None


def costs_of(progress: Progress) -> str:
    """
    >>> costs_of(Progress(total=4, done=2, failed=0, cost_usd=0.5))
    '$0.5000 so far, about $0.5000 to go'
    """
    so_far = "cost unknown" if progress.cost_usd is None else f"${progress.cost_usd:.4f} so far"
    to_go = progress.cost_to_go_usd
    failed = f", {progress.failed} failed" if progress.failed else ""
    return so_far + ("" if to_go is None else f", about ${to_go:.4f} to go") + failed


def failures(journal: Journal, items: Sequence[Item]) -> dict[str, Mapping[str, Any]]:
    """Errors by item: type and message."""
    failed = [item.key for item in items if item.key in journal.entries and journal.entries[item.key].failed]
    return {row["id"]: row["error"] for row in map(json.loads, journal.lines(failed))}


def report_failures(failed: Mapping[str, Mapping[str, Any]], done: Progress) -> None:
    """Print a line for every kind of failure, with the first of them."""
    kinds = Counter(error["type"] for error in failed.values())
    for kind, count in kinds.most_common():
        name, error = next((name, error) for name, error in failed.items() if error["type"] == kind)
        first = f"the first ({name}): {error['message']}"
        click.echo(f"odar: {count} failed with {kind}, {first}; the same command tries again", err=True)
    if done.stopped:
        click.echo(f"odar: stopped: {done.stopped}", err=True)


def exit_code(failed: Mapping[str, Mapping[str, Any]], stopped: str | None) -> int:
    """Return the most important code: a provider that failed, then a limit, then the input."""
    codes = {
        next((code for kind, code in EXIT_CODES if issubclass(getattr(errors, name, Exception), kind)), 1)
        for name in {error["type"] for error in failed.values()}
    }
    if stopped:
        codes.add(4)
    return next((code for code in (3, 4, 2, *sorted(codes)) if code in codes), 0)
