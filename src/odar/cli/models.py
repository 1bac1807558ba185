"""`odar models`: the catalogue, with the user's own entries."""

from __future__ import annotations

import dataclasses
import json

import click

from odar.catalogue import Price
from odar.cli.options import settings_options
from odar.settings import Settings


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--drift", is_flag=True, help="Show what each model was calibrated with and what it serves now.")
@settings_options
def command(as_json: bool, drift: bool, settings: Settings) -> None:
    """List the models ODAR knows: where they live, what they can do, what they cost.

    Prices are US dollars per million tokens, input/cached input/output. Add or override entries with
    [models."name"] in odar.toml; any other model of a provider goes by provider/model.
    """
    if drift:
        _show_drift(settings, as_json=as_json)
        return
    cards = [settings.card(name) for name in sorted(settings.models)]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(card) for card in cards], ensure_ascii=False))
        return
    from rich.console import Console

    from odar.cli.tables import plain_table

    table = plain_table("model", "provider", "can", "price", "read on", no_wrap=True)
    roles = {settings.fast.model: "fast", settings.slow.model: "slow"}
    if settings.fast.model == settings.slow.model:
        roles = {settings.fast.model: "fast, slow"}
    for card in cards:
        can = [word for word in ("logprobs", "n", "images") if getattr(card, word)]
        name = f"{card.name} ({roles[card.name]})" if card.name in roles else card.name
        table.add_row(name, card.provider, " ".join(can), _price(card.price), card.price_date or "")
    Console(highlight=False).print(table)


def _show_drift(settings: Settings, *, as_json: bool) -> None:
    """μ ± σ of free energies by model and step, calibrated and served."""
    from odar.engine import Odar
    from odar.store.alignment_file import alignment_file

    rows = Odar(settings, served=alignment_file(settings.store)).alignment_report()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], ensure_ascii=False))
        return
    if not rows:
        click.echo("nothing is calibrated (odar calibrate), and nothing with log-probabilities was served yet")
        return
    from rich.console import Console

    from odar.cli.tables import plain_table

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
    Console(highlight=False).print(table)


def _spread(mean: float | None, deviation: float | None) -> str:
    return "-" if mean is None or deviation is None else f"{mean:.3f}±{deviation:.3f}"


def _price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    return "free" if price.free else f"{price.input:g}/{price.cached:g}/{price.output:g}"
