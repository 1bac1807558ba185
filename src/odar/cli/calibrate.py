"""`odar calibrate`: fit ODAR to your own models and questions."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click

from odar.calibration.collect import Progress, collect, fingerprint, worst_cost
from odar.calibration.fit import Expectation, Fitted, fit
from odar.calibration.install import current_fusion, current_thresholds, report, to_calibration
from odar.calibration.items import Item, load_items, starter_items
from odar.calibration.records import Record, RecordFile
from odar.cli.embedded import fetch_if_embedded, uses_embedded
from odar.cli.options import announce_profile, settings_options
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError, OdarError
from odar.settings import Settings

FEWEST = 30
"""Fewer items than this say nothing about thresholds."""


@click.command("calibrate")
@click.argument("data", required=False)
@click.option("--out", default="calibration.json", show_default=True, help="Where the result is written.")
@click.option("--records", metavar="FILE", help="Where answers are kept. Default: in ODAR's cache.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=160, show_default=True, help="Starter questions to use."
)
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Stop before this is spent.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option("--force", is_flag=True, help="Write the result even if it is worse.")
@click.option("--statistics-only", is_flag=True, help="Fit μ, σ and skills; leave thresholds and β as they are.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@settings_options
def command(
    data: str | None,
    out: str,
    records: str | None,
    limit: int,
    concurrency: int,
    budget: float | None,
    yes: bool,
    force: bool,
    statistics_only: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Run both agents on questions with known answers, and fit fusion and thresholds to them.

    DATA is a JSONL file with query and answer on each line (optionally id, accept, time, reasoning, image);
    without it, ODAR's own starter questions are used. Interrupt it whenever you like: what is finished is
    kept, and the same command goes on from there.

    \b
    odar calibrate questions.jsonl --budget 5
    odar calibrate                       # the embedded model, for nothing
    """
    if not as_json:
        announce_profile(settings)
    fetch_if_embedded(settings, quiet=as_json)
    if uses_embedded(settings):
        concurrency = 1  # it takes one request at a time, and waiting for others counts against an agent's time
    items = load_items(data) if data else starter_items(limit)
    fitted, kept = asyncio.run(_run(settings, items, records, concurrency, budget, yes, quiet=as_json))
    refused = fitted.worse and not force
    if as_json:
        click.echo(json.dumps({**report(fitted), "written": None if refused else out}, ensure_ascii=False))
    else:
        _show(fitted, len(kept))
    if refused:
        click.echo("odar: not written: it would be worse than what is in use (--force writes it anyway)", err=True)
        return 1
    arguments = shlex.join(["odar", *sys.argv[1:]])
    calibration = to_calibration(Odar(settings), kept, fitted, arguments, data or "starter")
    if statistics_only:
        calibration = replace(calibration, settings={})
    _write(Path(out), calibration.to_json())
    if not as_json:
        click.echo(f'\nwritten to {out}; use it with: calibration = "{out}" in odar.toml')
    return 0


async def _run(
    settings: Settings,
    items: list[Item],
    records: str | None,
    concurrency: int,
    budget: float | None,
    yes: bool,
    *,
    quiet: bool,
) -> tuple[Fitted, list[Record]]:
    async with Odar(settings) as odar:
        file = RecordFile(_records_path(records, fingerprint(odar)), fingerprint(odar))
        todo = file.missing(items)
        _confirm(odar, todo, len(items), budget, yes)
        failures = await _collect(odar, items, file, concurrency, budget, quiet=quiet)
        wanted = {item.id for item in items}
        estimate = odar.estimator.estimate
        kept = [
            replace(record, difficulty=estimate(item.query).difficulty)
            for record in file.records
            for item in items
            if record.id == item.id and record.id in wanted
        ]
        if failures:
            first, why = failures[0]
            click.echo(f"odar: {len(failures)} items failed, the first ({first}): {why}", err=True)
        if len(kept) < FEWEST:
            raise InputError(f"{len(kept)} items have answers; at least {FEWEST} are needed to fit anything")
        weight = settings.fusion.varentropy_weight
        return fit(kept, current_thresholds(odar), current_fusion(odar), weight), kept


def _confirm(odar: Odar, todo: list[Item], total: int, budget: float | None, yes: bool) -> None:
    """Say what it may cost, and ask where it is not nothing."""
    cost = worst_cost(odar, todo)
    calls = len(todo) * (2 + odar.settings.routing.samples)
    price = "an unknown amount: a price is missing" if cost is None else f"at most ${cost:.2f}"
    if todo:
        click.echo(f"odar: {len(todo)} of {total} items to answer, {calls} calls, {price}", err=True)
    if cost is None and budget is not None:
        raise BudgetExceeded("--budget cannot be kept while a price is unknown; add it to odar.toml")
    if cost != 0 and todo and not yes:
        if not sys.stdin.isatty():
            raise InputError("this costs money; add --yes to go on")
        click.confirm("go on?", abort=True, err=True)


async def _collect(
    odar: Odar, items: list[Item], file: RecordFile, concurrency: int, budget: float | None, *, quiet: bool
) -> list[tuple[str, OdarError]]:
    if quiet:
        return await collect(odar, items, file, concurrency=concurrency, budget_usd=budget)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bar(*columns, console=Console(stderr=True)) as bar:
        done = len(items) - len(file.missing(items))
        task = bar.add_task("answering", total=len(items), completed=done)

        def show(progress: Progress) -> None:
            spent = "" if not progress.cost_usd else f", ${progress.cost_usd:.4f}"
            failed = "" if not progress.failed else f", {progress.failed} failed"
            bar.update(task, completed=progress.done, description=f"answering{spent}{failed}")

        return await collect(odar, items, file, concurrency=concurrency, budget_usd=budget, on_progress=show)


def _records_path(named: str | None, made_by: str) -> Path:
    if named:
        return Path(named).expanduser()
    from odar.providers.weights import weights_path

    return weights_path().parent.parent / "calibration" / f"{made_by}.jsonl"


def _show(fitted: Fitted, count: int) -> None:
    click.echo(f"\n{count} items, held-out folds, 95% intervals\n")
    click.echo(f"{'':8} {'accuracy':>22} {'calls':>7} {'cost, $':>10}  simple/medium/hard")
    for name, expected in (("before", fitted.before), ("after", fitted.after)):
        figures = f"{expected.accuracy!s:>22} {expected.calls.mean:>7.2f} {_cost(expected):>10}"
        click.echo(f"{name:8} {figures}  {_mix(expected)}")
    difference = fitted.difference
    click.echo(f"\nafter − before: {difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]")
    for name, interval in fitted.baselines.items():
        click.echo(f"{name}: {interval}")
    skills = ", ".join(
        f"{name} {fitted.fusion.skills[column]:.2f}" for column, name in enumerate(("fast", "verify", "solve"))
    )
    click.echo(
        f"\nfitted: τ1 = {fitted.thresholds.tau1:g}, τ2 = {fitted.thresholds.tau2:g}, β = {fitted.fusion.beta:g}"
    )
    click.echo(f"skills: {skills}")


def _cost(expected: Expectation) -> str:
    return "unknown" if expected.cost_usd is None else f"{expected.cost_usd.mean:.6f}"


def _mix(expected: Expectation) -> str:
    return " / ".join(f"{share:.0%}" for share in expected.mix)


def _write(path: Path, text: str) -> None:
    try:
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
