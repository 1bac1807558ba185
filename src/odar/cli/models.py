"""`odar models`: the catalogue, with the user's own entries."""

from __future__ import annotations

import dataclasses

import click

from odar.catalogue import Price
from odar.cli.options import json_option, settings_options
from odar.cli.terminal import notice, print_columns, print_json
from odar.providers.weights import known_weights, weights_status
from odar.settings import Settings


@click.command("models")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option("Print a JSON list.")
@click.option("--local", "only_local", is_flag=True, help="Show local models and their weights.")
@settings_options
def command(names: tuple[str, ...], as_json: bool, only_local: bool, settings: Settings) -> None:
    """List the models of the catalogue, or those you name: their family, context length, abilities and price.

    Prices are US dollars per million tokens, input/cached input/output, with the day they were read. They come from
    the public table of genai-prices; your own in [models."name"] in odar.toml take precedence. Any other model of
    a provider is called provider/model, and a GGUF file of yours gguf:/path/file.gguf.
    """
    if only_local:
        _list_local(settings, as_json=as_json)
        return
    known = {*settings.models, *settings.default_models.values()}
    cards = [settings.card(name) for name in names or sorted(known)]
    if as_json:
        print_json([dataclasses.asdict(card) for card in cards])
        return
    columns = {
        "model": [_with_agents(card.name, settings) for card in cards],
        "price": [_price_text(card.price) for card in cards],
        "provider": [card.provider for card in cards],
        "context": [f"{card.context:,}" if card.context else "" for card in cards],
        "can": [" ".join(name for name in ("logprobs", "n", "images") if getattr(card, name)) for card in cards],
        "family": [card.model_family for card in cards],
        "price read": [card.price_date or "" for card in cards],
    }
    print_columns(columns, left=columns.keys() - {"context"})
    notice("price: US dollars per million tokens, input/cached input/output")


def _list_local(settings: Settings, *, as_json: bool) -> None:
    """List the models that `odar pull` can download, and their state."""
    found = {weights: weights_status(weights) for weights in known_weights().values()}
    if as_json:
        names = ("name", "title", "licence", "memory_mb")
        rows = [
            {name: getattr(weights, name) for name in names}
            | {"bytes": weights.size, "sha256": [weights.sha256], "state": state, "path": str(weights.path)}
            for weights, (state, _) in found.items()
        ]
        print_json(rows)
        return
    columns = {
        "model": [_with_agents(weights.name, settings) for weights in found],
        "disk": [f"{weights.size / 1e6:,.0f} MB" for weights in found],
        "memory": [f"{weights.memory_mb:,} MB" for weights in found],
        "licence": [weights.licence for weights in found],
        "state": [f"{s}, {size / 1e6:,.0f} MB" if s == "partial" else s for s, size in found.values()],
    }
    print_columns(columns, left=("licence", "state"))


def _with_agents(model: str, settings: Settings) -> str:
    agents = ", ".join(agent for agent, own in settings.default_models.items() if own == model)
    return f"{model} ({agents})" if agents else model


def _price_text(price: Price | None) -> str:
    if price is None:
        return "unknown"
    return "free" if price.free else f"{price.input:g}/{price.cached:g}/{price.output:g}"
