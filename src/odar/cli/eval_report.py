"""`odar eval report`: everything a recording shows, on one page."""

from __future__ import annotations

from pathlib import Path

import click

from odar.cli.options import UserPath, command_line


@click.command("report")
@click.argument("recording", type=UserPath())
@click.option("--out", type=UserPath(), default="report.html", show_default=True, metavar="FILE", help="The page.")
@click.option("--figures", type=UserPath(), metavar="DIR", help="Write each figure there too, as PNG and CSV.")
@click.option(
    "--calibration",
    type=UserPath(),
    metavar="FILE",
    help="Replay with this one, not the one the recording was made with.",
)
@click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")
def report(recording: str, out: str, figures: str | None, calibration: str | None, split: str | None) -> None:
    """Write one HTML file with every table and figure; it needs no network and no script.

    \b
    odar eval report runs/starter.jsonl --out report.html --figures figures
    """
    from odar.evals.report.write import write_report

    place = Path(out)
    folder = Path(figures) if figures else None
    findings = write_report(recording, place, command_line(), folder, calibration, split or "")
    size = place.stat().st_size / 1000
    click.echo(f"{place}: {len(findings.arrays)} items, {len(findings.outcomes)} policies, {size:.0f} kB")
