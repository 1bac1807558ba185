"""`odar eval judge`: which of two recorded answers a model prefers."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from odar.cli.local import fetch_model, local_models
from odar.cli.options import UserPath, settings_options
from odar.engine import Odar
from odar.errors import InputError, UsageError
from odar.evals.preference import SIDES, PreferenceResult, judge_pairs, pairs_of
from odar.recording.files import open_recording
from odar.settings import Settings


@click.command("judge")
@click.argument("recording", type=UserPath())
@click.option(
    "--first", type=click.Choice(SIDES), default="hard", show_default=True, help="One of the two answers."
)
@click.option("--second", type=click.Choice(SIDES), default="slow", show_default=True, help="The other.")
@click.option("--only", "set_name", metavar="SET", help="Only items of this set.")
@click.option("--model", metavar="NAME", help="The model that judges. Default: slow.model.")
@click.option("--rubric", type=UserPath(), metavar="FILE", help="Text that says what a good answer is.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Maximum number of items."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Number of concurrent calls."
)
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def command(
    recording: str,
    first: str,
    second: str,
    set_name: str | None,
    model: str | None,
    rubric: str | None,
    limit: int,
    concurrency: int,
    yes: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Ask a model which of two answers in a RECORDING is better: by default the one chosen on the Hard path, or the
    first slow sample.

    Each pair is shown in both orders, two calls; answers that are the same are ties and cost nothing. Position bias
    is reported: how often a verdict changes with the order. A judge that wrote one of the answers tends to prefer
    it; choose another model if you can.

    \b
    odar eval judge runs/mine.jsonl --model gpt-5.1 --rubric rubric.txt
    odar eval judge runs/mine.jsonl --first slow --second fast --only truthfulqa_text
    """
    if first == second:
        raise UsageError(f"--first and --second are both {first}: choose two different answers")
    name = model or settings.slow.model
    items = [item for item in open_recording(recording).items() if set_name in (None, item.key.set)][:limit]
    if not items:
        raise InputError(
            f"{recording} holds no items of the set {set_name!r}" if set_name else f"{recording} is empty"
        )
    price = settings.card(name).price
    if not yes and (price is None or price.input or price.output):
        if not sys.stdin.isatty():
            raise InputError(f"up to {2 * len(items)} calls to {name} cost money; add --yes to go on")
        click.confirm(f"up to {2 * len(items)} calls to {name}; go on?", abort=True, err=True)
    for local in local_models(settings, name):
        fetch_model(local, quiet=as_json)
    odar = Odar(settings)
    pairs = pairs_of(items, first, second, odar.fusion, settings.fusion.varentropy_weight)

    def progress(done: int) -> None:
        if sys.stderr.isatty() and not as_json:
            click.echo(f"\r{done} calls", nl=False, err=True)

    text = Path(rubric).read_text("utf-8") if rubric else ""

    async def run() -> PreferenceResult:
        async with odar:
            return await judge_pairs(odar, name, pairs, text, concurrency=concurrency, on_progress=progress)

    found = asyncio.run(run())
    if as_json:
        body = {**asdict(found), "preference": found.preference._asdict(), "first": first, "second": second}
        click.echo(json.dumps({**body, "judge": name}))
        return
    click.echo(f"{found.pairs} pairs, {found.different} of them with different answers, judged by {name}")
    click.echo(f"preference for {first} over {second}: {found.preference} (0.5 is a tie)")
    click.echo(f"verdicts that change with the order: {found.order_dependent:.0%}")
    click.echo(f"verdicts for the answer shown first: {found.first_place:.0%} (50% is no position bias)")
    if found.failed:
        click.echo(f"{found.failed} pairs had no readable verdict and are left out")
    cost = "unknown" if found.cost_usd is None else f"${found.cost_usd:.4f}"
    click.echo(f"{found.calls} calls, cost {cost}")
