"""`odar models`: the catalogue, with the user's own entries."""

from __future__ import annotations

import dataclasses
import json

import click

from odar.catalogue import Price
from odar.cli.options import settings_options
from odar.cli.terminal import plain_table, print_table
from odar.engine import Odar
from odar.providers.weights import catalogue, weights_status
from odar.settings import Settings
from odar.store.alignment import alignment_file


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--local", "only_local", is_flag=True, help="Show local models and their weights.")
@click.option("--drift", is_flag=True, help="Compare calibrated and served energies of each model.")
@settings_options
def command(as_json: bool, only_local: bool, drift: bool, settings: Settings) -> None:
    """List the models ODAR knows: their providers, what they can do, what they cost.

    Prices are US dollars per million tokens, input/cached input/output. Add or override entries with
    [models."name"] in odar.toml; any other model of a provider is called provider/model, and a GGUF file of yours
    gguf:/path/file.gguf.
    """
    if only_local:
        _show_local(settings, as_json=as_json)
        return
    if drift:
        _show_drift(settings, as_json=as_json)
        return
    cards = [settings.card(name) for name in sorted(settings.models)]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(card) for card in cards], ensure_ascii=False))
        return
    table = plain_table("model", "provider", "can", "price", "read on", no_wrap=True)
    roles = _roles(settings)
    for card in cards:
        can = [word for word in ("logprobs", "n", "images") if getattr(card, word)]
        name = f"{card.name} ({roles[card.name]})" if card.name in roles else card.name
        table.add_row(name, card.provider, " ".join(can), _price(card.price), card.price_date or "")
    print_table(table)


def _show_local(settings: Settings, *, as_json: bool) -> None:
    """What `odar pull` can download, and what is there already."""
    rows = [(weights, weights_status(weights)) for weights in catalogue().values()]
    if as_json:
        body = [
            {
                "name": weights.name,
                "title": weights.title,
                "licence": weights.licence,
                "bytes": weights.size,
                "memory_mb": weights.memory_mb,
                "sha256": [file.sha256 for file in weights.files],
                "state": status.state,
                "path": str(status.path),
            }
            for weights, status in rows
        ]
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    roles = _roles(settings)
    table = plain_table("model", "disk", "memory", "licence", "state", no_wrap=True)
    for weights, status in rows:
        name = f"{weights.name} ({roles[weights.name]})" if weights.name in roles else weights.name
        state = status.state if status.state != "partial" else f"partial, {status.size / 1e6:,.0f} MB"
        table.add_row(name, f"{weights.size / 1e6:,.0f} MB", f"{weights.memory_mb:,} MB", weights.licence, state)
    print_table(table)


def _roles(settings: Settings) -> dict[str, str]:
    """The agents' models and their roles."""
    if settings.fast.model == settings.slow.model:
        return {settings.fast.model: "fast, slow"}
    return {settings.fast.model: "fast", settings.slow.model: "slow"}


def _show_drift(settings: Settings, *, as_json: bool) -> None:
    """μ ± σ of free energies by model and step, calibrated and served."""
    rows = Odar(settings, served=alignment_file(settings.store)).alignment_report()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], ensure_ascii=False))
        return
    if not rows:
        click.echo("nothing is calibrated (odar calibrate), and nothing with log-probabilities was served yet")
        return
    titles = ("model", "step", "aligned by", "served", "calibrated", "running", "drift z")
    table = plain_table(*titles, no_wrap=True)
    for row in rows:
        z = "-" if row.drift_z is None else f"{row.drift_z:+.1f}" + (" drifts" if row.drifting else "")
        name = f"{row.model} by {row.scorer}" if row.scorer else row.model
        table.add_row(
            name,
            row.step,
            row.used,
            f"{row.seen:,}",
            _spread(row.calibrated_mean, row.calibrated_deviation),
            _spread(row.running_mean, row.running_deviation),
            z,
        )
    print_table(table)


def _spread(mean: float | None, deviation: float | None) -> str:
    return "-" if mean is None or deviation is None else f"{mean:.3f}±{deviation:.3f}"


def _price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    return "free" if price.free else f"{price.input:g}/{price.cached:g}/{price.output:g}"
