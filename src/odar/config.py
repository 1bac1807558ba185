"""Loads settings from layers: arguments > `ODAR_*` environment > `odar.toml` > profile > catalogue.

Every layer is checked against the schema in `settings.py`; the error for a bad key or value names it, its origin
and the nearest valid one.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
import stat
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from odar.calibration_file import load_calibration
from odar.catalogue import split_effort
from odar.defaults import keys_of, models_of_keys, models_of_servers
from odar.errors import SettingsError, UnknownName, did_you_mean
from odar.files import user_path
from odar.formats import MAX_DEPTH, deeper_than
from odar.secrets import is_secret, masked
from odar.settings import Settings

KeyPath = tuple[str, ...]
PROFILES = ("custom", "local", "open", "paper", "tiny")
_PROCESS_VARIABLES = {"ODAR_API_KEY", "ODAR_CONFIG", "ODAR_CACHE_DIR", "ODAR_OFFLINE"}
"""Environment variables that are not settings; other modules read them."""
_COMPUTED = {"origins", "profile_reason"}
"""Fields of `Settings` that this module sets, and no user."""
_AGENT_MODELS = {("fast", "model"), ("second", "model"), ("slow", "model"), ("agents", "*", "model")}
"""Settings that may be a list: a model and its fallbacks."""
BOTH_NAMED = "the models of both agents are named"
"""The `Settings.profile_reason` if the user names fast and slow."""
Layer = dict[KeyPath, tuple[Any, str]]
"""Values and their origins, by key path."""


def key_name(path: KeyPath) -> str:
    """A key as a user writes it in odar.toml.

    >>> key_name(("models", "gpt-4.1", "images"))
    'models."gpt-4.1".images'
    """
    plain = re.compile(r"[A-Za-z0-9_-]+")
    return ".".join(p if plain.fullmatch(p) else json.dumps(p, ensure_ascii=False) for p in path)


def load_settings(
    profile: str | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **overrides: Any,
) -> Settings:
    """Load the effective settings.

    Args:
        profile: a shipped profile or a path to a TOML file; None chooses one by the other settings, by the API keys
            that are set, and by local servers that answer.
        config: the settings file; None looks at `ODAR_CONFIG`, `./odar.toml`, then the user's config folder.
        environ: the environment, in place of that of the process; with it, no local server is looked for.
        **overrides: any setting, nested with `__` or as a dict: `fast__model="..."`, `limits={"max_calls": 3}`.

    >>> settings = load_settings("paper", environ={}, routing__samples=3)
    >>> settings.slow.temperature, settings.routing.samples
    (0.3, 3)
    """
    looks_for_servers = environ is None
    environ = os.environ if environ is None else environ
    arguments = dict(_flatten(_nest(overrides), "argument"))
    variables = _environment_layer(environ)
    file = dict(_file_layer(config, environ))
    user = {**file, **variables, **arguments}
    if profile is not None:
        user["profile",] = (profile, "argument")
    catalogue = _shipped_layer("odar", "catalogue.toml", "catalogue")
    models: Layer = {}
    if ("profile",) in user:
        name, origin = user["profile",]
        reason = f"named by {origin}"
    else:
        name, reason, models = _choose_profile({**catalogue, **user}, environ, servers=looks_for_servers)
        user["profile",] = (name, "chosen")
    profile_layer = {**_profile_layer(name), **models}
    layers: Layer = {
        **catalogue,
        **profile_layer,
        **_calibration_layer({**profile_layer, **user}),
        **user,
    }
    settings = _build(layers, reason)
    settings.check()
    return settings


def with_values(settings: Settings, values: Mapping[str, Any], origin: str = "calibration") -> Settings:
    """Settings with other values by key, such as {"fusion.beta": "0.5", "policy": "paper"}.

    Raises:
        SettingsError: a value is invalid, or the settings contradict each other.
    """
    for key, value in values.items():
        path = tuple(key.split("."))
        kind, field = _schema()[path]
        value = coerce(parse_value(value, kind) if isinstance(value, str) else value, kind, field, path, origin)
        section, _, name = key.rpartition(".")
        changes = {name: value}
        if section:
            changes = {section: dataclasses.replace(getattr(settings, section), **changes)}
        settings = dataclasses.replace(settings, **changes)
    settings.check_routing()
    return settings


def environment_name(path: KeyPath) -> str:
    """The environment variable of a setting.

    >>> environment_name(("fast", "max_tokens"))
    'ODAR_FAST_MAX_TOKENS'
    """
    return "ODAR_" + "_".join(path).upper()


def iter_settings() -> Iterator[tuple[KeyPath, Any, dataclasses.Field[Any]]]:
    """Yield path, type and field of every setting, without the tables of models and providers."""
    for path, (kind, field) in _schema().items():
        if "*" not in path:
            yield path, kind, field


# ── the layers ──────────────────────────────────────────────────────────────────────────────────────────────


def _choose_profile(layers: Layer, environ: Mapping[str, str], *, servers: bool) -> tuple[str, str, Layer]:
    """The default profile, the reason for it, and the models of both agents if the profile names none."""
    agents = [role for role in ("fast", "slow") if (role, "model") in layers]
    if len(agents) == 2:
        return "custom", BOTH_NAMED, {}
    if agents:
        other = "slow" if agents == ["fast"] else "fast"
        raise SettingsError(
            f"{agents[0]}.model is named but {other}.model is not; name both, or a profile to take the other from"
        )
    tree: dict[str, Any] = {}
    for path, (value, _) in layers.items():
        _set_path(tree, path, value)
    providers = tree.get("providers", {})
    chosen = models_of_keys(providers, tree.get("models", {}), environ)
    if chosen is None and servers:
        chosen = models_of_servers(providers)
    if chosen is None:
        keys = keys_of(providers, environ).items()
        others = [f"{key} is set, but there is no default model: name {name}/MODEL" for name, key in keys]
        return "local", ", ".join(others) or "no API key is set and no local server answers", {}
    named = {"fast": chosen.fast, "second": chosen.second, "slow": chosen.slow}
    models: Layer = {(agent, "model"): (model, "chosen") for agent, model in named.items() if model}
    return "custom", chosen.reason, models


@cache
def _shipped_layer(package: str, file: str, origin: str) -> Layer:
    """A file of the package, parsed once."""
    return _toml_layer(resources.files(package).joinpath(file), origin)


def _profile_layer(name: str) -> Layer:
    if name in PROFILES:
        return _shipped_layer("odar.profiles", f"{name}.toml", f"profile {name}")
    if Path(name).suffix != ".toml":
        raise UnknownName("profile", name, PROFILES)
    return _toml_layer(user_path(name, setting="profile"), f"profile {short_repr(name)}")


def _file_layer(config: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Layer:
    if config is None and (named := environ.get("ODAR_CONFIG")):
        config = named
    if config is not None:
        name = str(config) if str(config).isprintable() else repr(str(config))
        return _toml_layer(user_path(config, setting="config"), name)
    for path in (Path("odar.toml"), _user_config()):
        if path is not None and os.path.isfile(path):  # noqa: PTH113 - returns False where Path raises PermissionError
            _check_owner(path)
            return _toml_layer(path, str(path))
    return {}


def _check_owner(path: Path) -> None:
    """Raise SettingsError if another user could have written a file that the user did not name.

    The file decides where keys are sent.
    """
    if os.name != "posix":
        return
    status = path.stat()
    if status.st_mode & stat.S_IWOTH:
        problem = "can be written by every user"
    elif status.st_uid not in (0, os.geteuid()):
        problem = "belongs to another user"
    else:
        return
    raise SettingsError(f"{path} {problem}; look at it, then name it: --config {path}, or ODAR_CONFIG")


def _calibration_layer(layers: Layer) -> Layer:
    """Fitted settings, which override the profile, and which the user's settings override."""
    name, _ = layers.get(("calibration",), ("", ""))
    fitted = {key.replace(".", "__"): value for key, value in load_calibration(name).settings.items()}
    return dict(_flatten(_nest(fitted), f"calibration {name}"))


def _user_config() -> Path | None:
    from platformdirs import user_config_path

    try:
        return user_config_path("odar") / "odar.toml"
    except RuntimeError:  # no HOME, and no such user
        return None


def _toml_layer(source: Any, origin: str) -> Layer:
    try:
        tree = tomllib.loads(source.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise SettingsError(f"{origin} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise SettingsError(f"{origin} is not valid TOML: {why}") from None
    except OSError as error:
        raise SettingsError(f"{origin} cannot be read: {error.strerror or error}") from None
    if deeper_than(MAX_DEPTH, tree):  # a.a.a.a… parses, but recursive functions fail on it
        raise SettingsError(f"{origin} is not valid TOML: nested too deeply")
    return dict(_flatten(tree, origin))


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    known = {environment_name(path): (path, kind, field) for path, kind, field in iter_settings()}
    layer: Layer = {}
    for variable, text in environ.items():
        if not variable.startswith("ODAR_") or variable in _PROCESS_VARIABLES:
            continue
        if variable not in known:
            hint = did_you_mean(variable, known)
            raise SettingsError(f"unknown environment variable {variable} = {short_repr(text, variable)}{hint}")
        path, kind, field = known[variable]
        layer[path] = (coerce(parse_value(text, kind), kind, field, path, variable), variable)
    return layer


def _nest(overrides: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in overrides.items():
        # Tables are copied, so that a later `table__key` does not change the caller's table.
        _set_path(tree, key.split("__"), copy.deepcopy(value))
    return tree


def _set_path(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise _invalid((parent,), tree, "argument", f"a table, because of {'__'.join(path)}")
    tree[last] = value


# ── the schema ──────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _schema() -> dict[KeyPath, tuple[Any, dataclasses.Field[Any]]]:
    """Type and field of every setting by its path; `*` stands for the name of a model or provider."""

    def walk(table: Any, prefix: KeyPath) -> Iterator[tuple[KeyPath, tuple[Any, dataclasses.Field[Any]]]]:
        hints = typing.get_type_hints(table)
        for field in dataclasses.fields(table):
            kind = hints[field.name]
            path = (*prefix, field.name)
            optional = [part for part in typing.get_args(kind) if dataclasses.is_dataclass(part)]
            if types.NoneType in typing.get_args(kind) and optional:  # an agent that need not exist
                kind = optional[0]
            entries = typing.get_args(kind)[1:]  # of a Mapping[str, ModelSettings]
            if dataclasses.is_dataclass(kind):
                yield from walk(kind, path)
            elif entries and dataclasses.is_dataclass(entries[0]):
                yield from walk(entries[0], (*path, "*"))
            elif field.name not in _COMPUTED:
                yield path, (kind, field)

    return dict(walk(Settings, ()))


@cache
def _table_keys(table: KeyPath) -> dict[str, None]:
    return dict.fromkeys(path[len(table)] for path in _schema() if path[: len(table)] == table)


def _flatten(
    tree: Mapping[str, Any], origin: str, prefix: KeyPath = (), table: KeyPath = ()
) -> Iterator[tuple[KeyPath, tuple[Any, str]]]:
    """Check a nested table against the schema and yield it flat; `table` is its place in the schema."""
    known = _table_keys(table)
    for key, value in tree.items():
        path = (*prefix, key)
        place = (*table, "*" if "*" in known else key)
        if key == "api_key":
            raise SettingsError(
                f"{key_name(path)} in {origin}: keys are not written here; name a variable with api_key_env "
                "or a file with api_key_file"
            )
        if key == "api_key_env" and not (isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value)):
            raise SettingsError(
                f"{key_name(path)} in {origin} is not the name of an environment variable (hidden: is it the key?)"
            )
        if place in _AGENT_MODELS and isinstance(value, list | tuple) and value:
            value, *fallbacks = value  # model = ["a", "b"]: b is the fallback of a
            yield from _flatten({"fallbacks": fallbacks}, origin, prefix, table)
        if place[-1] not in known:
            hint = did_you_mean(key, known) or "; this version of odar has no such setting"
            raise SettingsError(f"unknown setting {key_name(path)} = {short_repr(value, key)} in {origin}{hint}")
        if place in _schema():
            yield path, (coerce(value, *_schema()[place], path, origin), origin)
        elif isinstance(value, Mapping):
            yield from _flatten(value, origin, path, place)
        else:
            raise _invalid(path, value, origin, "a table")


def _build(layers: Layer, reason: str) -> Settings:
    layers = {**_inherited(layers), **layers}
    for (*agent, name), (effort, origin) in list(layers.items()):
        if name == "effort" and effort:  # a model with an effort is named model@effort
            model, _ = layers[*agent, "model"]
            layers[*agent, "model"] = f"{split_effort(model)[0]}@{effort}", origin
    for path in _required_paths(layers):
        if path not in layers:
            raise SettingsError(f"setting {key_name(path)} is missing and has no default")
    tree: dict[str, Any] = {}
    for path, (value, _) in layers.items():
        _set_path(tree, path, value)
    origins = {path: origin for path, (_, origin) in layers.items()}
    return dataclasses.replace(msgspec.convert(tree, Settings), origins=origins, profile_reason=reason)


def _inherited(layers: Layer) -> Layer:
    """The sampling of a second agent is that of the fast one, of further agents that of the slow one."""
    inherited: Layer = {}
    for agent in dict.fromkeys(path[:-1] for path in layers if path[0] in ("second", "agents")):
        like = "fast" if agent == ("second",) else "slow"
        for name in ("temperature", "top_p", "max_tokens", "timeout_s"):
            if (like, name) in layers:
                inherited[*agent, name] = layers[like, name]
    return inherited


def _required_paths(layers: Layer) -> Iterator[KeyPath]:
    """Yield the settings without a default, those of every agent, model and provider in the layers included."""
    for place, (_, field) in _schema().items():
        if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING:
            continue
        if "*" in place:
            table, _, key = place
            yield from {(table, path[1], key): None for path in layers if path[0] == table}
        elif place[0] != "second" or any(path[0] == "second" for path in layers):
            yield place


# ── one value ───────────────────────────────────────────────────────────────────────────────────────────────


def parse_value(text: str, kind: Any) -> Any:
    """Parse a string from the environment or the command line as TOML; plain text if it is not valid TOML."""
    if kind is str:
        return text
    if typing.get_origin(kind) is tuple and not text.startswith("["):
        return [part for part in text.split(",") if part]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def coerce(value: Any, kind: Any, field: dataclasses.Field[Any], path: KeyPath, origin: str) -> Any:
    """Convert the value to the field's type.

    Raises:
        SettingsError: it has another type, or is out of bounds; the message names key, value and `origin`.
    """
    optional = types.NoneType in typing.get_args(kind)
    if optional and value in ("none", ""):
        return None
    try:
        converted = msgspec.convert(value, kind)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:  # TOML has no such numbers
            raise ValueError
    except ValueError:
        inner = typing.get_args(kind)[0] if optional else kind
        raise _invalid(path, value, origin, _describe(inner)) from None
    for each in converted.values() if isinstance(converted, dict) else (converted,):
        _check_bounds(each, field, path, origin)
    if (choices := field.metadata["choices"]) and converted not in choices:
        listed = f"one of: {', '.join(map(short_repr, choices))}{did_you_mean(converted, choices)}"
        raise _invalid(path, converted, origin, listed)
    return converted


def _invalid(path: KeyPath, value: Any, origin: str, must_be: str) -> SettingsError:
    return SettingsError(f"{key_name(path)} = {short_repr(value)} in {origin} must be {must_be}")


def _check_bounds(value: Any, field: dataclasses.Field[Any], path: KeyPath, origin: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    ge, gt, le = (field.metadata[name] for name in ("ge", "gt", "le"))
    # Written so that NaN, which compares false with everything, is refused.
    if not (ge <= value <= le and (value > gt or gt == -math.inf)):
        low = f"above {gt:g}" if gt > -math.inf else f"at least {ge:g}"
        bounds = low if le == math.inf else f"{low} and at most {le:g}"
        hint = ""
        if value > le or value < ge:
            hint = f"; the nearest valid value is {le if value > le else ge:g}"
        raise SettingsError(f"{key_name(path)} = {value} in {origin} must be {bounds}{hint}")


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return "a list of strings"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return names.get(kind, "a table")


def short_repr(value: Any, name: str = "") -> str:
    """A value for an error message: short, and hidden if its name says that it is a secret."""
    if is_secret(name):
        return "(hidden)"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    text = masked(text)
    return text if len(text) <= 60 else text[:57] + "..."
