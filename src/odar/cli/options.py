"""Options and parameter types that several commands share."""

from __future__ import annotations

import functools
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from odar import __version__
from odar.calibration_file import load_calibration
from odar.catalogue import Price
from odar.cli.terminal import notice
from odar.config import BOTH_NAMED, load_with
from odar.errors import SettingsError, UsageError
from odar.files import user_path
from odar.formats import load_toml
from odar.secrets import mask_secrets
from odar.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class UserPath(click.Path):
    """A file or folder, with `~` expanded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(user_path(value)) if str(value).startswith("~") else value, param, ctx)


class Finite(click.FloatRange):
    """A finite number within bounds; click's own type accepts nan and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


FILE = UserPath()
COUNT = click.IntRange(min=1)
USD = Finite(min=0)
POSITIVE = Finite(min=0, min_open=True)


def settings_options(command: F) -> F:
    """Add --profile, --config and --set; the command receives `settings`.

    An option of the command whose parameter is called `setting_gateway__port` sets gateway.port if it is given.
    """

    @click.option("--profile", metavar="NAME", help="local, tiny, custom, open, paper, or a TOML file.")
    @click.option("--config", type=FILE, metavar="FILE", help="Settings file. Default: ./odar.toml.")
    @click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting, such as fast.model=NAME.")
    @functools.wraps(command)
    def wrapper(*args: Any, profile: str | None, config: str | None, sets: tuple[str, ...], **kwargs: Any) -> Any:
        overrides = parse_sets(sets)
        if profile is not None:
            overrides["profile"] = profile
        for name in [name for name in kwargs if name.startswith("setting_")]:
            if (value := kwargs.pop(name)) is not None:
                overrides[name.removeprefix("setting_")] = value
        return command(*args, settings=load_with(overrides, config), **kwargs)

    return wrapper  # type: ignore[return-value]  # click's decorators do not carry the signature through


def agent_options(command: F) -> F:
    """Add --fast, --second and --slow, which set the models of the agents."""
    helps = {
        "slow": "Slow agent, such as vllm/Qwen/Qwen3-32B.",
        "second": "Second opinion, of another family than fast, such as ollama/gemma3:4b.",
        "fast": "Fast agent, such as ollama/qwen3:4b.",
    }
    for agent, text in helps.items():
        command = click.option(f"--{agent}", f"setting_{agent}__model", metavar="MODEL", help=text)(command)
    return command


def dial_option(command: F) -> F:
    text = "economy, balanced, quality, or points."
    return click.option("--dial", "setting_routing__dial", metavar="DIAL", help=text)(command)


def json_option(summary: str = "Print a JSON object.") -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=summary)


def parse_sets(sets: Sequence[str]) -> dict[str, Any]:
    """The values of `--set` as a nested table.

    >>> parse_sets(("fast.model=gpt-5.1", "fast.temperature=0"))
    {'fast': {'model': 'gpt-5.1', 'temperature': 0}}
    """
    lines = []
    for each in sets:
        key, equals, value = each.partition("=")
        if not equals:
            raise SettingsError(f"--set {each!r} is not KEY=VALUE")
        try:
            load_toml(f"{key} = {value}")
        except ValueError:
            value = json.dumps(value)  # a plain word needs no quotes on the command line
        lines.append(f"{key} = {value}")
    try:
        return load_toml("\n".join(lines))
    except ValueError as error:
        raise SettingsError(f"--set {' '.join(sets)!r:.200} cannot be read: {error}") from None


def parse_column_map(pairs: Sequence[str], model: str) -> dict[str, str]:
    """The column map of a model, by its `--map` options; what names this model replaces what holds for all.

    >>> parse_column_map(["text=said", "gpt:text=said.1", "other:text=x"], "gpt")
    {'text': 'said.1'}
    """
    columns = {}
    for pair in sorted(pairs, key=lambda pair: ":" in pair.partition("=")[0]):
        field, _, column = pair.partition("=")
        if not column:
            raise UsageError(f"--map {pair}: write FIELD=COLUMN")
        name, _, field = field.strip().rpartition(":")
        if name in ("", model):
            columns[field] = column.strip()
    return columns


def parse_prices(given: Iterable[str]) -> dict[str, Price]:
    """The prices of `--price NAME=IN,OUT`."""
    prices = {}
    for each in given:
        name, _, price = each.rpartition("=")
        try:
            input_usd, output_usd = (float(part) for part in price.split(","))
            is_price = min(input_usd, output_usd) >= 0 and math.isfinite(input_usd + output_usd)
        except ValueError:
            is_price = False
        if not (name and is_price):
            raise UsageError(
                f"--price {each}: write NAME=IN,OUT in dollars per million tokens, such as mini=0.15,0.6"
            )
        prices[name] = Price(input_usd, input_usd, output_usd)
    return prices


def announce_profile(settings: Settings) -> None:
    """Print which models were chosen, why, and how to change them, unless the user named them."""
    if settings.origins["profile",] != "chosen" or settings.profile_reason == BOTH_NAMED:
        return
    models = ", ".join(f"{agent} {model}" for agent, model in settings.default_models.items())
    notice(f"{models} ({settings.profile_reason}); name others in odar.toml")


def warn_of_foreign_calibration(settings: Settings) -> None:
    """Say if a calibration decides how questions are routed that was made for other models."""
    if not any(origin.startswith("calibration ") for origin in settings.origins.values()):
        return
    known = list(dict.fromkeys(source.model for source in load_calibration(settings.calibration).statistics))
    if any(model not in known for model in settings.default_models.values()):
        made_for = ", ".join(known) or "unknown models"
        notice(
            f"calibration {settings.calibration} was made for {made_for}: name these, or run odar calibrate again"
        )


def command_line() -> str:
    """The command line, with passwords in addresses masked."""
    return shlex.join(["odar", *map(mask_secrets, sys.argv[1:])])


def provenance() -> dict[str, str]:
    """How a file is made, for the file itself: the command, the date and the version of odar."""
    return {"command": command_line(), "date": datetime.now(UTC).date().isoformat(), "odar": __version__}
