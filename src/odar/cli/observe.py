"""`odar observe`: what observed questions say about the cascade, and how to resume it after a fallback to slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from odar.cli.options import json_option, settings_options
from odar.cli.terminal import format_known, notice, print_columns, print_json
from odar.cli.traces import open_archive
from odar.settings import Settings
from odar.traces.observations import agreement_lines, interval_text


@click.command("observe")
@click.option("--since", metavar="TIME", help="Observed at or after: 2026-11-15, 24h, 7d.")
@click.option("--resume", is_flag=True, help="Let the cascade answer again after a fallback, and count from 0.")
@json_option()
@settings_options
def command(since: str | None, resume: bool, as_json: bool, settings: Settings) -> None:
    """Show what the cascade would have saved, and how often it gives the slow model's answer.

    \b
    odar serve --observe      # requests go to slow, and the cascade watches
    odar observe --since 24h
    odar observe --resume     # after a fallback to slow

    Same answer as slow is not right: compare it with how often slow gives its own answer again.
    """
    with open_archive(settings) as archive:
        observations = archive.observations(settings)
        if resume:
            resumed = observations.resume()
            text = "the cascade answers again" if resumed else "the cascade had not fallen back to slow"
            print_json({"resumed": resumed}) if as_json else click.echo(text)
            return
        report = observations.report(since)
    if as_json:
        print_json(report)
    elif not report["total"]["questions"]:
        notice("nothing is observed yet; try: odar serve --observe")
    else:
        _print(report)


def _print(report: Mapping[str, Any]) -> None:
    rows = {"all": report["total"]} | {row["name"]: row for row in report["kinds"]}
    rows |= {f"key {row['name'] or '(none)'}": row for row in report["keys"] if len(report["keys"]) > 1}
    columns = {
        "": list(rows),
        "questions": [f"{row['questions']:,}" for row in rows.values()],
        "saved": [format_known(row["saved"], "{:.0%}", "-") for row in rows.values()],
        "same as slow": [interval_text(row["agreement"]) for row in rows.values()],
        "slow again": [interval_text(row["slow_agreement"]) for row in rows.values()],
    }
    print_columns(columns, left=("same as slow", "slow again"))
    click.echo("\n".join(["", *agreement_lines(report)]))
    total = report["total"]
    click.echo(f"observing cost ${total['spent_usd']:.4f}, today ${report['spent_today_usd']:.4f}")
