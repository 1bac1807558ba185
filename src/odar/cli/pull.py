"""`odar pull`: the local model's weights, ahead of time."""

from __future__ import annotations

import json
from pathlib import Path

import click

from odar.providers.weights import ensure_weights, weights_status


@click.command("pull")
@click.option("--force", is_flag=True, help="Fetch again even if the file is there and sound.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object with the path.")
def command(force: bool, as_json: bool) -> None:
    """Fetch SmolLM2-135M-Instruct (98 MB) into the cache, check it, and repair it if it is damaged.

    `odar ask` does this by itself on first use. ODAR_CACHE_DIR says where the cache is.
    """
    path = fetch(quiet=as_json, force=force)
    click.echo(json.dumps({"path": str(path), "bytes": path.stat().st_size}) if as_json else str(path))


def fetch(*, quiet: bool = False, force: bool = False) -> Path:
    """Make sure that the weights are there, with a progress bar on standard error if it takes a download."""
    if quiet or (not force and weights_status().state == "present"):
        return ensure_weights(force=force)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fetching SmolLM2-135M-Instruct", total=None)
        return ensure_weights(lambda done, total: bar.update(task, completed=done, total=total), force=force)
