"""The reference of settings, from the settings model itself."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from odar.config import environment_name, iter_settings, load_settings
from odar.settings import ModelSettings, PriceSettings, ProviderSettings, Settings

PROFILES = ("local", "tiny", "custom", "open", "paper")
_HEAD = """# Settings

Every setting, its default, its bounds and its environment variable. `odar config` shows the values in effect, and where each
came from.

A value is taken from the first of these that has one: arguments (`--set fast.model=…`, `load_settings(fast__model=…)`) ·
`ODAR_*` variables · `odar.toml` (in this folder, or `odar/odar.toml` in your configuration folder, or where `--config` or
`ODAR_CONFIG` says) · the calibration · the profile · the catalogue. An unknown name is refused, with the nearest known one.

A profile is a full set of values for one kind of model. `local`, `tiny`, `open` and `paper` name their models; `custom` is chosen
when you name them. Where the default below is *profile*, the values are in [the last table](#values-by-profile).

"""
_AGENT = "The settings are those of `[fast]`; what is not set is as for"
_ABOUT = {
    "second": "A cheap model of another family, asked for a second opinion (SPEC 9.1). Optional. "
    f"{_AGENT} `[fast]`.",
    "agents": f"Further agents, as `[agents.NAME]` (SPEC 9.1). {_AGENT} `[slow]`.",
}


def settings_page() -> str:
    """The page."""
    sections = [_section("", "Top level", Settings, ())]
    for field, kind in _fields(Settings):
        if field.name in _ABOUT:
            names = [f"`{environment_name(path)}`" for path, _, _ in iter_settings() if path[0] == field.name]
            variables = f"\n\nVariables: {', '.join(names)}." if names else ""
            sections.append(f"## `[{field.name}]`\n\n{_ABOUT[field.name]}{variables}\n")
        elif dataclasses.is_dataclass(kind):
            sections.append(_section(f"[{field.name}]", _summary(kind), typing.cast(type, kind), (field.name,)))
    tables = [
        ("[providers.NAME]", ProviderSettings),
        ("[models.NAME]", ModelSettings),
        ("[models.NAME.price]", PriceSettings),
    ]
    sections += [_section(title, _summary(kind), kind, None) for title, kind in tables]
    return _HEAD + "\n".join(sections) + "\n" + _by_profile()


def _section(title: str, summary: str, schema: type, prefix: tuple[str, ...] | None) -> str:
    """A table of a section's own settings; with a prefix, each has an environment variable."""
    rows = []
    for field, kind in _fields(schema):
        if dataclasses.is_dataclass(kind) or _is_table(kind) or field.name in _ABOUT:
            continue
        variable = f" | `{environment_name((*prefix, field.name))}`" if prefix is not None else ""
        rows.append(
            f"| `{field.name}` | {_type(kind)}{_bounds(field)} | {_default(field)} | {_help(field)}{variable} |"
        )
    head = "| setting | value | default | meaning |" + (" variable |" if prefix is not None else "")
    line = "|---|---|---|---|" + ("---|" if prefix is not None else "")
    name = f"## `{title}`\n\n{summary}" if title else f"## {summary}"
    return f"{name}\n\n{head}\n{line}\n" + "\n".join(rows) + "\n"


def _by_profile() -> str:
    named = {"custom": {"fast__model": "gpt-5.1", "slow__model": "gpt-5.1"}}
    settings = {name: load_settings(name, environ={}, **named.get(name, {})) for name in PROFILES}
    rows = []
    for path, _, field in iter_settings():
        if path[0] == "second":  # no profile has one
            continue
        values = [_value_at(settings[name], path) for name in PROFILES]
        if _has_no_default(field) or len({repr(value) for value in values}) > 1:
            shown = [
                "*yours*" if p == "custom" and path[-1] == "model" else _show(v)
                for p, v in zip(PROFILES, values, strict=True)
            ]
            rows.append(f"| `{'.'.join(path)}` | {' | '.join(shown)} |")
    head = f"| setting | {' | '.join(PROFILES)} |\n|---|{'---|' * len(PROFILES)}\n"
    return (
        "## Values by profile\n\nSettings that profiles set, or set differently.\n\n"
        + head
        + "\n".join(rows)
        + "\n"
    )


def _fields(schema: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(schema)
    hidden = ("origins", "profile_reason")
    return ((field, hints[field.name]) for field in dataclasses.fields(schema) if field.name not in hidden)


def _value_at(settings: Settings, path: tuple[str, ...]) -> Any:
    value: Any = settings
    for name in path:
        value = getattr(value, name)
    return value


def _is_table(kind: Any) -> bool:
    arguments = typing.get_args(kind)
    return len(arguments) == 2 and dataclasses.is_dataclass(arguments[1])


def _summary(kind: Any) -> str:
    return (kind.__doc__ or "").strip().replace("\n", " ")


def _help(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("doc", "")).replace("|", "\\|")


def _type(kind: Any) -> str:
    if typing.get_origin(kind) is types.UnionType:
        return _type(next(k for k in typing.get_args(kind) if k is not types.NoneType)) + " or none"
    if typing.get_origin(kind) is tuple:
        return "list of strings"
    if typing.get_origin(kind) is not None and issubclass(typing.get_origin(kind), Mapping):
        return "table"
    return {bool: "true, false", int: "whole number", float: "number", str: "text"}[kind]


def _bounds(field: dataclasses.Field[Any]) -> str:
    ge, gt, le = (
        field.metadata.get(name, limit) for name, limit in (("ge", -math.inf), ("gt", -math.inf), ("le", math.inf))
    )
    low = f"> {gt:g}" if gt > -math.inf else f"≥ {ge:g}" if ge > -math.inf else ""
    high = f"≤ {le:g}" if le < math.inf else ""
    return "".join(f", {bound}" for bound in (low, high) if bound)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any]) -> str:
    if _has_no_default(field):
        return (
            "*profile*"
            if field.name not in ("kind", "provider", "profile")
            else "*required*"
            if field.name != "profile"
            else "*chosen*"
        )
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return _show(default)


def _show(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{each}"' for each in value).replace("\n", "\\n") + "]`"
    if isinstance(value, Mapping):
        return "`{}`"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
