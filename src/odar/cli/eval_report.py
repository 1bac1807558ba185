"""`odar eval report`: everything a panel shows, on one page."""

from __future__ import annotations

from pathlib import Path

import click

from odar.cli.options import UserPath, command_line


@click.command("report")
@click.argument("panel", type=UserPath())
@click.option("--out", type=UserPath(), default="report.html", show_default=True, metavar="FILE", help="The page.")
@click.option("--figures", type=UserPath(), metavar="DIR", help="Write each figure there too, as PNG and CSV.")
@click.option(
    "--calibration",
    type=UserPath(),
    metavar="FILE",
    help="Replay with this one, not the one the panel was made with.",
)
def report(panel: str, out: str, figures: str | None, calibration: str | None) -> None:
    """Write one HTML file with every table and figure; it needs no network and no script.

    \b
    odar eval report runs/starter --out report.html --figures figures
    """
    from odar.evals.report.write import write_report

    place = Path(out)
    folder = Path(figures) if figures else None
    findings = write_report(panel, place, command_line(), folder, calibration)
    size = place.stat().st_size / 1000
    click.echo(f"{place}: {len(findings.tape)} items, {len(findings.outcomes)} policies, {size:.0f} kB")
