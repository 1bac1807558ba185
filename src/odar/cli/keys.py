"""`odar keys`: the API keys of the gateway."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from typing import Any

import click

from odar.cli.options import COUNT, POSITIVE, USD, Finite, json_option, settings_options
from odar.cli.terminal import notice, print_columns, print_json
from odar.errors import InputError
from odar.policy.dial import Dial
from odar.serving.keys import Key, Spent, all_keys, create_key, revoke_key, spent_by_keys
from odar.settings import Settings
from odar.traces.database import Database
from odar.types import Route

_UNIT_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}


def _rate_option(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """The number of requests a minute."""
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        rate = float(number) * 60 / _UNIT_SECONDS[unit.strip() or "min"]
    except (ValueError, KeyError):
        rate = math.nan
    if not 0 < rate < math.inf:
        raise InputError(f"--rate {text!r} is not a rate; write 60/min, 2/s or 30/hour")
    return rate


def _names_option(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise InputError(f"--{option.name} {text!r} names nothing; leave it out for all")
    return names or None


@click.group("keys")
def command() -> None:
    """Make, list and revoke the API keys of the gateway.

    \b
    odar keys create ann --budget-day 2 --rate 60/min
    odar keys create batch --models odar,odar-economy --max-path medium
    odar keys list
    odar keys revoke ann

    A key is shown once, when it is made; the store holds only its hash. Running servers notice a new or
    revoked key within about 1.5 seconds.
    """


@command.command("create")
@click.argument("name")
@click.option("--budget-day", "budget_day_usd", type=USD, metavar="USD", help="Budget for a UTC day.")
@click.option("--budget-month", "budget_month_usd", type=USD, metavar="USD", help="Budget for a UTC month.")
@click.option(
    "--rate",
    "rate_per_min",
    callback=_rate_option,
    metavar="N/min",
    help="Maximum rate of requests (or N/s, N/hour).",
)
@click.option("--parallel", "max_parallel", type=COUNT, metavar="N", help="Maximum number of concurrent requests.")
@click.option("--tokens", "tokens_per_min", type=Finite(min=1), metavar="N", help="Maximum tokens a minute.")
@click.option("--models", callback=_names_option, metavar="A,B", help="Allow only these models.")
@click.option(
    "--max-path",
    type=click.Choice([each.value for each in Route]),
    help="Slow calls of a question: simple allows none, medium one, hard any number.",
)
@click.option(
    "--target-calls", type=Finite(min=1), metavar="CALLS", help="Target for the mean calls of a question."
)
@click.option("--target-cost", "target_cost_usd", type=POSITIVE, metavar="USD", help="Target for its mean cost.")
@click.option("--admin", is_flag=True, help="May read every key's traces in the dashboard, not only its own.")
@json_option()
@settings_options
def create(name: str, admin: bool, as_json: bool, settings: Settings, **limits: Any) -> None:
    """Make a key called NAME and print it once.

    \b
    odar keys create ann --budget-day 2 --budget-month 20 --rate 60/min
    odar keys create batch --target-calls 1.8

    A target moves the dial of this key's questions until their mean reaches it. A request can set a lower target
    (odar.target_calls, odar.target_cost_usd), not a higher one.
    """
    # rejects both at once
    Dial.from_options(target_calls=limits["target_calls"], target_cost_usd=limits["target_cost_usd"])
    with Database(settings.store) as database:
        key, secret = create_key(database, name, admin=admin, **limits)
    if as_json:
        print_json({**_to_dict(key), "secret": secret})
        return
    click.echo(secret)
    notice(f"key {name!r} ({key.id}); it is not shown again, only its hash is stored")


@command.command("list")
@click.option("--all", "include_revoked", is_flag=True, help="Include revoked keys.")
@json_option("Print a JSON list.")
@settings_options
def list_(include_revoked: bool, as_json: bool, settings: Settings) -> None:
    """List the keys, their limits, and what they spent.

    Sums are of this UTC day and month. Requests of unknown cost are counted apart, as "+3 unknown".
    """
    day = datetime.now(UTC).date().isoformat()
    with Database(settings.store) as database, database.read() as connection:
        keys = [key for key in all_keys(connection) if include_revoked or key.revoked_at is None]
        spent = spent_by_keys(connection, day)
    if as_json:
        body = []
        for key in keys:
            row = _to_dict(key)
            for name, period in (("today", day), ("month", day[:7])):
                usd, unknown = spent.get((key.id, period), (0.0, 0))
                row[name] = {"usd": usd, "unknown": unknown}
            body.append(row)
        print_json(body)
    elif not keys:
        notice("no keys; make one with: odar keys create NAME")
    else:
        columns = {
            "name": [key.name for key in keys],
            "key": [f"{key.prefix}…" for key in keys],
            "today": [_spent_text(spent.get((key.id, day))) for key in keys],
            "month": [_spent_text(spent.get((key.id, day[:7]))) for key in keys],
            "limits": [f"revoked {key.revoked_at[:10]}" if key.revoked_at else _limits_text(key) for key in keys],
        }
        print_columns(columns, left=("key",), folds=True)


@command.command("revoke")
@click.argument("key")
@settings_options
def revoke(key: str, settings: Settings) -> None:
    """Revoke KEY permanently.

    KEY is its name, its id, or the beginning that `odar keys list` shows. Servers refuse it within about 1.5
    seconds. Its traces and its spending stay; its name is free again.
    """
    with Database(settings.store) as database:
        revoked = revoke_key(database, key.removesuffix("…"))
    click.echo(f"revoked {revoked.name} ({revoked.id})")


def _to_dict(key: Key) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(key).items() if name != "digest"}


def _spent_text(spent: Spent | None) -> str:
    if spent is None:
        return "-"
    usd, unknown = spent
    return f"${usd:.4f}" + (f" +{unknown} unknown" if unknown else "")


_LIMIT_FORMATS = {
    "budget_day_usd": "${:g}/day",
    "budget_month_usd": "${:g}/month",
    "rate_per_min": "{:g}/min",
    "max_parallel": "{} at a time",
    "tokens_per_min": "{:g} tokens/min",
    "target_calls": "target {:g} calls a question",
    "target_cost_usd": "target ${:g}",
    "max_path": "path {} at most",
}


def _limits_text(key: Key) -> str:
    limits = {name: getattr(key, name) for name in _LIMIT_FORMATS}
    parts = ["admin"] if key.admin else []
    parts += [_LIMIT_FORMATS[name].format(limit) for name, limit in limits.items() if limit is not None]
    parts += [", ".join(key.models)] if key.models is not None else []
    return "; ".join(parts) or "none"
