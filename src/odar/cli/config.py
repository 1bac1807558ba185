"""`odar config`: the effective settings and their origins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from odar.cli.options import json_option, settings_options
from odar.cli.terminal import print_columns, print_json
from odar.config import KeyPath, environment_name, iter_settings, key_name
from odar.engine import Odar
from odar.errors import OdarError, UnknownName
from odar.secrets import is_secret, mask_secrets
from odar.settings import Settings
from odar.types import SECOND


@click.command("config")
@click.argument("key", required=False)
@json_option()
@settings_options
def command(key: str | None, as_json: bool, settings: Settings) -> None:
    """Show the effective settings and where each came from. KEY shows one of them, or one table.

    \b
    odar config fast
    odar config providers.openai

    Arguments override ODAR_* variables, which override odar.toml, which overrides the profile.
    The variable of a setting is its name in capitals: fast.max_tokens is ODAR_FAST_MAX_TOKENS.
    """
    # which settings
    documented: dict[KeyPath, str] = {
        path: field.metadata["doc"]
        for path, _, field in iter_settings()
        if path[0] != SECOND or settings.second is not None
    }
    paths = [*documented, *(path for path in settings.origins if path not in documented)]
    origins = {path: settings.origins.get(path, "default") for path in paths}
    if key is None:  # the shipped catalogue is long, and `odar models` shows it better
        paths = [path for path in paths if origins[path] != "catalogue"]
    else:
        paths = [path for path in paths if f"{key_name(path)}.".startswith(f"{key}.")]
        if not paths:
            raise UnknownName("setting", key, map(key_name, documented), "`odar config` lists all")
    # their values and origins
    values = {path: _without_secrets(_value(settings, path)) for path in paths}
    if as_json:
        tree = {
            key_name(path): {
                "value": value,
                "origin": origins[path],
                "variable": environment_name(path) if path in documented else None,
                "meaning": documented.get(path, ""),
            }
            for path, value in values.items()
        }
        print_json(tree, indent=2)
        return
    columns = {
        "setting": list(map(key_name, values)),
        "from": [origins[path] for path in values],
        "value": list(map(_to_text, values.values())),
    }
    print_columns(columns, left=("from",), gap=2, folds=True)
    # when the policy stops or goes on
    if key in (None, "routing"):
        with suppress(OdarError), Odar(settings) as odar:
            if thresholds := odar.decide("What is the capital of France?").thresholds:
                click.echo("\n  ".join(["\nfor a short question:", *thresholds]))
    click.echo(f"\nprofile {settings.profile}: {settings.profile_reason}", err=True)


def _value(settings: Settings, path: KeyPath) -> Any:
    node: Any = settings
    for name in path:
        node = node[name] if isinstance(node, dict) else getattr(node, name)
    return node


def _to_text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _without_secrets(value: Any) -> Any:
    """A value without passwords and keys, so that it can be pasted into a bug report."""
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, Mapping):
        secrets = {name for name, each in value.items() if is_secret(name) and isinstance(each, str)}
        return {name: "***" if name in secrets else _without_secrets(each) for name, each in value.items()}
    return [_without_secrets(each) for each in value] if isinstance(value, tuple | list) else value
