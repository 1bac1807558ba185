"""`odar sample`: record one fast and several slow answers to each question, for `odar fuse`."""

from __future__ import annotations

from pathlib import Path

import click

from odar.calibration.collect import work_items
from odar.calibration.items import Item, load_items
from odar.calibration.provenance import provenance
from odar.cli.collecting import collect, confirm
from odar.cli.local import fetch_weights
from odar.cli.options import Finite, UserPath, announce_profile, settings_options
from odar.engine import Odar
from odar.evals.samples import FORMAT, sample
from odar.recording.journal import Journal
from odar.settings import Settings
from odar.types import Step


@click.command("sample")
@click.argument("data", type=UserPath())
@click.option(
    "--out",
    type=UserPath(),
    metavar="FILE",
    default="samples.jsonl",
    show_default=True,
    help="Where the answers are written.",
)
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Items at a time.")
@click.option("--budget", type=Finite(min=0), metavar="USD", help="Stop before this is spent.")
@click.option("--yes", is_flag=True, help="Do not ask before spending money.")
@settings_options
def command(data: str, out: str, concurrency: int, budget: float | None, yes: bool, settings: Settings) -> None:
    """Record the candidates of the Hard path for every question in DATA, all samples, with their log-probabilities.

    DATA is a JSONL file with query and answer on each line, as for `odar calibrate`. The same command goes on where
    it was interrupted. The local model runs once on each core; for it --concurrency does not count.

    \b
    odar sample questions.jsonl --out samples.jsonl
    odar fuse samples.jsonl
    """
    items = load_items(data)  # before a profile is announced or weights are fetched for nothing
    announce_profile(settings)
    fetch_weights(settings, quiet=False)
    count = _run(settings, items, Path(out), concurrency, budget, yes)
    click.echo(f"{count} questions in {out}; compare the rules with: odar fuse {out}")


def _run(settings: Settings, data: list[Item], out: Path, concurrency: int, budget: float | None, yes: bool) -> int:
    samples = settings.routing.samples
    odar = Odar(settings)  # opens nothing: only to see what each question may take
    made_by = provenance(odar)
    items = work_items(odar, data, ((Step.ANSWER, 1), (Step.SOLVE, samples)))
    with Journal(out, made_by.header(FORMAT), made_by.since) as journal:
        confirm(
            settings, journal.missing(items), len(items), "items", f"{1 + samples} calls each, ", budget, yes=yes
        )
        collect(settings, sample, items, journal, concurrency, budget, quiet=False)
        return sum(not entry.failed for entry in journal.entries.values())
