"""`odar models`: the catalogue, with the user's own entries."""

from __future__ import annotations

import dataclasses
import json

import click

from odar.cli.options import settings_options
from odar.dispatch.catalogue import FREE, Price
from odar.settings import Settings


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@settings_options
def command(as_json: bool, settings: Settings) -> None:
    """List the models ODAR knows: where they live, what they can do, what they cost.

    Prices are US dollars per million tokens, input/cached input/output. Add or override entries with
    [models."name"] in odar.toml; any other model of a provider goes by provider/model.
    """
    cards = [settings.card(name) for name in sorted(settings.models)]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(card) for card in cards], ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name in ("model", "provider", "can", "price", "read on"):
        table.add_column(name, no_wrap=True)
    roles = {settings.fast.model: "fast", settings.slow.model: "slow"}
    if settings.fast.model == settings.slow.model:
        roles = {settings.fast.model: "fast, slow"}
    for card in cards:
        can = [word for word in ("logprobs", "n", "images") if getattr(card, word)]
        name = f"{card.name} ({roles[card.name]})" if card.name in roles else card.name
        table.add_row(name, card.provider, " ".join(can), _price(card.price), card.price_date or "")
    Console(highlight=False).print(table)


def _price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    return "free" if price == FREE else f"{price.input:g}/{price.cached:g}/{price.output:g}"
