"""`odar sample`: record one fast and several slow answers to each question, for `odar fuse`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from odar.cli.collecting import collect_visibly, confirm, workers
from odar.cli.embedded import fetch_if_embedded, uses_embedded
from odar.cli.options import announce_profile, settings_options
from odar.settings import Settings


@click.command("sample")
@click.argument("data")
@click.option("--out", default="samples.jsonl", show_default=True, help="Where the answers are written.")
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Stop before this is spent.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@settings_options
def command(data: str, out: str, concurrency: int, budget: float | None, yes: bool, settings: Settings) -> None:
    """Record the candidates of the Hard path for every question in DATA, all samples, with their log-probabilities.

    DATA is a JSONL file with query and answer on each line, as for `odar calibrate`. The same command goes on where
    it was interrupted. The embedded model runs once on each core; for it --concurrency does not count.

    \b
    odar sample questions.jsonl --out samples.jsonl
    odar fuse samples.jsonl
    """
    announce_profile(settings)
    fetch_if_embedded(settings, quiet=False)
    count = asyncio.run(_run(settings, data, Path(out), concurrency, budget, yes))
    click.echo(f"{count} questions in {out}; compare the rules with: odar fuse {out}")


async def _run(settings: Settings, data: str, out: Path, concurrency: int, budget: float | None, yes: bool) -> int:
    from odar.calibration.items import load_items
    from odar.calibration.provenance import provenance
    from odar.engine import Odar
    from odar.evals.samples import SampleFile, sample

    items = load_items(data)
    if uses_embedded(settings):
        settings, ready, concurrency = workers(settings)
    else:
        ready = {}
    async with Odar(settings, providers=ready) as odar:
        with SampleFile(out, provenance(odar)) as file:
            calls = str(1 + settings.routing.samples)
            confirm(odar, file.missing(items), len(items), calls, budget, yes)
            await collect_visibly(odar, items, file, sample, concurrency=concurrency, budget=budget, quiet=False)
            return len(file.entries)
