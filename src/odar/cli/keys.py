"""`odar keys`: the API keys of the gateway."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime
from typing import Any

import click

from odar.cli.options import Finite, settings_options
from odar.cli.terminal import plain_table, print_table
from odar.errors import InputError
from odar.policy.target import Target
from odar.settings import Settings
from odar.store.database import Database
from odar.store.keys import Key, KeyLimits, Spent, Totals, all_keys, create_key, revoke_key, spent_by_keys
from odar.types import Path

_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}


@click.group("keys")
def command() -> None:
    """Make, list and revoke the API keys of the gateway.

    \b
    odar keys create ann --budget-day 2 --rate 60/min
    odar keys create batch --models odar,odar-simple --paths simple,medium
    odar keys list
    odar keys revoke ann

    A key is shown once, when it is made; the store holds only its hash. Running servers notice a new or
    revoked key within about 1.5 seconds.
    """


@command.command("create")
@click.argument("name")
@click.option("--budget-day", type=Finite(min=0), metavar="USD", help="Budget for a UTC day.")
@click.option("--budget-month", type=Finite(min=0), metavar="USD", help="Budget for a UTC month.")
@click.option("--rate", metavar="N/min", help="Maximum rate of requests (or N/s, N/hour).")
@click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="Maximum number of concurrent requests.")
@click.option(
    "--tokens", type=Finite(min=1), metavar="N", help="Maximum tokens a minute, prompts and answers together."
)
@click.option("--models", metavar="A,B", help="Allow only these models.")
@click.option("--paths", metavar="A,B", help="Allow only these paths: simple, medium, hard.")
@click.option(
    "--target-calls", type=Finite(min=1), metavar="CALLS", help="Target for the mean calls of its questions."
)
@click.option("--target-cost", type=Finite(min=0, min_open=True), metavar="USD", help="Target for their mean cost.")
@click.option("--admin", is_flag=True, help="May read every key's traces in the dashboard, not only its own.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@settings_options
def create(
    name: str,
    budget_day: float | None,
    budget_month: float | None,
    rate: str | None,
    parallel: int | None,
    tokens: float | None,
    models: str | None,
    paths: str | None,
    target_calls: float | None,
    target_cost: float | None,
    admin: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Make a key called NAME and print it once.

    \b
    odar keys create ann --budget-day 2 --budget-month 20 --rate 60/min
    odar keys create batch --target-calls 1.8

    A target moves the thresholds of this key's questions until their mean reaches it. A request can set a lower
    target (odar.target), not a higher one.
    """
    limits = KeyLimits(
        budget_day,
        budget_month,
        None if rate is None else parse_rate(rate),
        _names(models, "--models"),
        _paths(paths),
        parallel,
        tokens,
        target_calls,
        target_cost,
    )
    _ = Target.of(calls=target_calls, cost_usd=target_cost)  # refuses both at once
    with Database(settings.store) as database:
        key, secret = create_key(database, name, limits, admin=admin)
    if as_json:
        click.echo(json.dumps({**_figures(key), "secret": secret}))
        return
    click.echo(secret)
    click.echo(f"odar: key {name!r} ({key.id}); it is not shown again, only its hash is stored", err=True)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include revoked keys.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@settings_options
def list_(everything: bool, as_json: bool, settings: Settings) -> None:
    """List the keys, their limits, and what they spent.

    Sums are of this UTC day and month. Requests of unknown cost are counted apart, as "+3 unknown".
    """
    day = datetime.now(UTC).date().isoformat()
    with Database(settings.store) as database, database.read() as connection:
        keys = [key for key in all_keys(connection) if everything or key.revoked_at is None]
        spent = spent_by_keys(connection, day)
    if as_json:
        click.echo(json.dumps([_figures(key) | _spent(key, spent, day) for key in keys], ensure_ascii=False))
        return
    if not keys:
        click.echo("odar: no keys; make one with: odar keys create NAME", err=True)
        return
    from rich.markup import escape

    table = plain_table("name", "key", "today", "month", "limits", overflow="fold")
    for key in keys:
        figures = [_money(spent.get((key.id, period))) for period in (day, day[:7])]
        limits = _limits(key) if key.revoked_at is None else f"revoked {key.revoked_at[:10]}"
        table.add_row(escape(key.name), f"{key.prefix}…", *figures, escape(limits))
    print_table(table)


@command.command("revoke")
@click.argument("key")
@settings_options
def revoke(key: str, settings: Settings) -> None:
    """Revoke KEY permanently.

    KEY is its name, its id, or the beginning that `odar keys list` shows. Servers refuse it within about 1.5
    seconds. Its traces and its spending stay; its name is free again.
    """
    with Database(settings.store) as database:
        gone = revoke_key(database, key.removesuffix("…"))
    click.echo(f"revoked {gone.name} ({gone.id})")


def parse_rate(text: str) -> float:
    """Requests a minute.

    >>> parse_rate("60/min"), parse_rate("60"), parse_rate("2/s"), parse_rate("30/hour")
    (60.0, 60.0, 120.0, 0.5)
    """
    number, _, unit = text.partition("/")
    try:
        rate = float(number) * 60 / _SECONDS[unit.strip() or "min"]
    except (ValueError, KeyError):
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InputError(f"--rate {text!r} is not a rate; write 60/min, 2/s or 30/hour")
    return rate


def _names(text: str | None, option: str) -> tuple[str, ...] | None:
    """The names in a comma-separated list."""
    if text is None:
        return None
    if not (names := tuple(part.strip() for part in text.split(",") if part.strip())):
        raise InputError(f"{option} {text!r} names nothing; leave it out for all")
    return names


def _paths(text: str | None) -> tuple[str, ...] | None:
    names = _names(text, "--paths")
    for name in names or ():
        if name not in list(Path):
            raise InputError(f"--paths: {name!r} is not one of: {', '.join(Path)}")
    return names


def _figures(key: Key) -> dict[str, Any]:
    shown = {"id": key.id, "name": key.name, "prefix": key.prefix, "created_at": key.created_at}
    return {**shown, "revoked_at": key.revoked_at, "admin": key.admin, **dataclasses.asdict(key.limits)}


def _spent(key: Key, totals: Totals, day: str) -> dict[str, Any]:
    periods = {"today": day, "month": day[:7]}
    return {name: totals.get((key.id, period), Spent())._asdict() for name, period in periods.items()}


def _money(spent: Spent | None) -> str:
    if spent is None:
        return "-"
    return f"${spent.usd:.4f}" + (f" +{spent.unknown} unknown" if spent.unknown else "")


_LIMITS = {
    "budget_day_usd": "${:g}/day",
    "budget_month_usd": "${:g}/month",
    "rate_per_min": "{:g}/min",
    "max_parallel": "{} at a time",
    "tokens_per_min": "{:g} tokens/min",
    "target_calls": "target {:g} calls",
    "target_cost_usd": "target ${:g}",
}


def _limits(key: Key) -> str:
    values = {name: getattr(key.limits, name) for name in _LIMITS}
    parts = [_LIMITS[name].format(value) for name, value in values.items() if value is not None]
    lists = [", ".join(names) for names in (key.limits.models, key.limits.paths) if names is not None]
    return "; ".join([*(["admin"] if key.admin else []), *parts, *lists]) or "none"
