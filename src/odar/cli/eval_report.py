"""`odar eval report`: everything a panel shows, on one page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click


@click.command("report")
@click.argument("panel")
@click.option("--out", default="report.html", show_default=True, metavar="FILE", help="The page.")
@click.option("--figures", metavar="DIR", help="Write each figure there too, as PNG and CSV.")
@click.option("--calibration", metavar="FILE", help="Replay with this one, not the one the panel was made with.")
def report(panel: str, out: str, figures: str | None, calibration: str | None) -> None:
    """Write one HTML file with every table and figure; it needs no network and no script.

    \b
    odar eval report runs/starter --out report.html --figures figures
    """
    from odar.evals.report.write import write_report

    place = Path(out).expanduser()
    folder = Path(figures).expanduser() if figures else None
    findings = write_report(panel, place, shlex.join(["odar", *sys.argv[1:]]), folder, calibration)
    size = place.stat().st_size / 1000
    click.echo(f"{place}: {len(findings.tape)} items, {len(findings.outcomes)} policies, {size:.0f} kB")
