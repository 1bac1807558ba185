"""`odar feedback`: whether a recorded answer was right."""

from __future__ import annotations

import click

from odar.cli.options import settings_options
from odar.settings import Settings
from odar.store.filters import MARKS


@click.command("feedback")
@click.argument("trace")
@click.argument("verdict", type=click.Choice(MARKS))
@click.option("--note", metavar="TEXT", help="Why, in your own words; stored as it is.")
@settings_options
def command(trace: str, verdict: str, note: str | None, settings: Settings) -> None:
    """Mark the answer of TRACE right or wrong. The beginning of its id is enough; the last word counts.

    \b
    odar feedback 3f2a right
    odar feedback 3f2a wrong --note "it is 43"

    Calibration learns from it. `odar traces --feedback wrong` lists what was marked so.
    """
    from odar.store.archive import Archive
    from odar.store.database import Database

    with Database(settings.store) as database:
        full = Archive(database).mark(trace, verdict == "right", note)
    click.echo(f"{full} {verdict}")
