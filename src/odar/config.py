"""Loads settings from layers: arguments > `ODAR_*` environment > `odar.toml` > calibration > profile > catalogue.

Every layer is checked against the schema in `settings.py`; the error for a bad key or value names it, its origin
and the nearest valid one. A layer is flat, so that layers are merged by `|` and each value keeps its origin.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import re
import stat
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from odar.calibration_file import load_calibration
from odar.catalogue import split_effort
from odar.defaults import keys_of, models_of_keys, models_of_servers
from odar.errors import SettingsError, UnknownName, did_you_mean
from odar.files import read_errors, user_path
from odar.formats import load_toml
from odar.secrets import is_secret, mask_secrets
from odar.settings import AgentSettings, Settings

KeyPath = tuple[str, ...]
PROFILES = ("custom", "local", "open", "paper", "tiny")
_PROCESS_VARIABLES = {"ODAR_API_KEY", "ODAR_CONFIG", "ODAR_CACHE_DIR", "ODAR_OFFLINE"}
"""Environment variables that are not settings; other modules read them."""
_COMPUTED = {"origins", "profile_reason"}
"""Fields of `Settings` that this module sets, and no user."""
_INHERITED = ("temperature", "top_p", "max_tokens", "timeout_s")
"""Settings that a second agent takes from the fast one, and further agents from the slow one."""
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
    if profile is not None:
        overrides["profile"] = profile
    return load_with(overrides, config, environ)


def load_with(
    overrides: Mapping[str, Any],
    config: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The effective settings, for overrides by names that may be those of `load_settings`' own parameters."""
    servers = environ is None
    environ = os.environ if environ is None else environ
    arguments = {tuple(key.split("__")): copy.deepcopy(value) for key, value in overrides.items()}
    user = _flat(_nested(arguments), "argument")
    user = _environment_layer(environ) | user
    user = _file_layer(config, environ) | user
    catalogue = _shipped_layer("odar", "catalogue.toml", "catalogue")
    chosen: Layer = {}
    if ("profile",) in user:
        reason = f"named by {user['profile',][1]}"
    else:
        named, reason = _choose_profile(catalogue | user, environ, servers=servers)
        chosen = _flat(_nested(named), "chosen")
    above_catalogue = _profile_layer((chosen | user)["profile",][0]) | chosen
    layers = catalogue | above_catalogue | _calibration_layer(above_catalogue | user) | user
    settings = _build(layers, reason)
    settings.check()
    return settings


def with_values(settings: Settings, values: Mapping[str, Any], origin: str = "calibration") -> Settings:
    """Settings with other values by key, such as {"fusion.beta": "0.5", "policy": "paper"}.

    Raises:
        SettingsError: a value is invalid, or the settings contradict each other.
    """
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        table = getattr(settings, section) if section else settings
        kind, field = next((kind, field) for path, kind, field in iter_settings() if key == ".".join(path))
        value = parse_value(value, kind) if isinstance(value, str) else value
        changes = {name: coerce(value, kind, field, tuple(key.split(".")), origin)}
        if section:
            changes = {section: dataclasses.replace(table, **changes)}
        settings = dataclasses.replace(settings, **changes)
    settings.check_routing()
    return settings


def environment_name(path: KeyPath) -> str:
    """The environment variable of a setting.

    >>> environment_name(("fast", "max_tokens"))
    'ODAR_FAST_MAX_TOKENS'
    """
    return "ODAR_" + "_".join(path).upper()


def iter_settings(
    table: Any = Settings, prefix: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any, dataclasses.Field[Any]]]:
    """Yield path, type and field of every setting, without the tables of models and providers."""
    for name, (kind, field) in _fields(table).items():
        if dataclasses.is_dataclass(kind):
            yield from iter_settings(kind, (*prefix, name))
        elif _entry_type(kind) is None:
            yield (*prefix, name), kind, field


# ── the layers ──────────────────────────────────────────────────────────────────────────────────────────────


def _choose_profile(layers: Layer, environ: Mapping[str, str], *, servers: bool) -> tuple[dict[KeyPath, str], str]:
    """The default profile, and the models of its agents that the user does not name; and the reason for them."""
    given = [agent for agent in ("fast", "slow") if (agent, "model") in layers]
    if len(given) == 2:
        return {("profile",): "custom"}, BOTH_NAMED
    tree = _nested({path: value for path, (value, _) in layers.items()})
    providers = tree.get("providers", {})
    models = models_of_keys(providers, tree.get("models", {}), environ)
    if models is None and servers:
        models = models_of_servers(providers)
    if given:
        other = "slow" if given == ["fast"] else "fast"
        if models is None:
            missing = f"{given[0]}.model is named but {other}.model is not"
            raise SettingsError(f"{missing}; name both, or a profile to take the other from")
        return {("profile",): "custom", (other, "model"): getattr(models, other)}, models.reason
    if models is None:
        keys = keys_of(providers, environ).items()
        others = [f"{key} is set, but there is no default model: name {name}/MODEL" for name, key in keys]
        return {("profile",): "local"}, ", ".join(others) or "no API key is set and no local server answers"
    named = {("fast", "model"): models.fast, ("second", "model"): models.second, ("slow", "model"): models.slow}
    return {("profile",): "custom"} | {path: model for path, model in named.items() if model}, models.reason


@cache
def _shipped_layer(package: str, file: str, origin: str) -> Layer:
    return _toml_layer(resources.files(package).joinpath(file), origin)


def _profile_layer(name: str) -> Layer:
    if name in PROFILES:
        return _shipped_layer("odar.profiles", f"{name}.toml", f"profile {name}")
    if Path(name).suffix != ".toml":
        raise UnknownName("profile", name, PROFILES)
    return _toml_layer(user_path(name, setting="profile"), f"profile {short_repr(name)}")


def _file_layer(config: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Layer:
    if config is None:
        config = environ.get("ODAR_CONFIG") or None
    if config is not None:
        name = str(config) if str(config).isprintable() else repr(str(config))
        return _toml_layer(user_path(config, setting="config"), name)
    from platformdirs import user_config_path

    found = [Path("odar.toml")]
    with suppress(RuntimeError):  # no HOME, and no such user
        found.append(user_config_path("odar") / "odar.toml")
    for path in found:
        if os.path.isfile(path):  # noqa: PTH113 - returns False where Path raises PermissionError
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
    fitted = {tuple(key.split(".")): value for key, value in load_calibration(name).settings.items()}
    return _flat(_nested(fitted), f"calibration {name}")


def _toml_layer(source: Any, origin: str) -> Layer:
    with read_errors(origin, SettingsError):
        text = source.read_text(encoding="utf-8")
    try:
        tree = load_toml(text)
    except ValueError as error:
        raise SettingsError(f"{origin} is not valid TOML: {error}") from None
    return _flat(tree, origin)


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


# ── flat and nested ─────────────────────────────────────────────────────────────────────────────────────────


@cache
def _fields(table: Any) -> dict[str, tuple[Any, dataclasses.Field[Any]]]:
    """Type and field of each key of a table."""
    hints = typing.get_type_hints(table)
    found = {}
    for field in dataclasses.fields(table):
        kind = hints[field.name]
        # an agent that need not exist is a table like the others
        kind = next(filter(dataclasses.is_dataclass, typing.get_args(kind)), kind) if _is_optional(kind) else kind
        if field.name not in _COMPUTED:
            found[field.name] = (kind, field)
    return found


def _entry_type(kind: Any) -> Any:
    """The type of the tables in a `Mapping[str, ModelSettings]`; None for other types."""
    return next((each for each in typing.get_args(kind)[1:] if dataclasses.is_dataclass(each)), None)


def _is_optional(kind: Any) -> bool:
    return types.NoneType in typing.get_args(kind)


def _nested(values: Mapping[KeyPath, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        table = tree
        for parent in path[:-1]:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise _invalid((parent,), table, "argument", f"a table, because of {'__'.join(path)}")
        table[path[-1]] = value
    return tree


def _where_it_belongs(key: str) -> str:
    """A hint for a name that a table has, but not the top level; empty if there is none.

    >>> _where_it_belongs("dial")
    '; did you mean routing.dial?'
    """
    paths = [".".join(path) for path, _, _ in iter_settings() if len(path) > 1 and path[-1] == key]
    return f"; did you mean {' or '.join(paths)}?" if 0 < len(paths) <= 3 else ""


def _flat(tree: Any, origin: str, table: Any = Settings, prefix: KeyPath = ()) -> Layer:
    """Check a nested table against the schema and return it flat."""
    if not isinstance(tree, Mapping):
        raise _invalid(prefix, tree, origin, "a table")
    layer: Layer = {}
    known = _fields(table)
    for key, value in tree.items():
        path = (*prefix, key)
        # is it a setting, and no secret?
        if key == "api_key":
            raise SettingsError(
                f"{key_name(path)} in {origin}: keys are not written here; name a variable with api_key_env "
                "or a file with api_key_file"
            )
        if key == "api_key_env" and not (isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value)):
            raise SettingsError(
                f"{key_name(path)} in {origin} is not the name of an environment variable (hidden: is it the key?)"
            )
        if key not in known:
            hint = _where_it_belongs(key) if table is Settings else ""
            hint = hint or did_you_mean(key, known) or "; this version of odar has no such setting"
            raise SettingsError(f"unknown setting {key_name(path)} = {short_repr(value, key)} in {origin}{hint}")
        # a table, a value, or a table of tables
        kind, field = known[key]
        if table is AgentSettings and key == "model" and isinstance(value, list | tuple) and value:
            value, *fallbacks = value  # model = ["a", "b"]: b is the fallback of a
            layer |= _flat({"fallbacks": fallbacks}, origin, table, prefix)
        if dataclasses.is_dataclass(kind):
            layer |= _flat(value, origin, kind, path)
        elif (entry := _entry_type(kind)) is None:
            layer[path] = (coerce(value, kind, field, path, origin), origin)
        elif isinstance(value, Mapping):
            for name, each in value.items():
                layer |= _flat(each, origin, entry, (*path, name))
        else:
            raise _invalid(path, value, origin, "a table")
    return layer


def _build(layers: Layer, reason: str) -> Settings:
    """The settings of all layers together, after what agents inherit and the effort of their models."""
    inherited: Layer = {}
    for agent in dict.fromkeys(path[:-1] for path in layers if path[0] in ("second", "agents")):
        like = "fast" if agent == ("second",) else "slow"
        inherited |= {(*agent, name): layers[like, name] for name in _INHERITED if (like, name) in layers}
    layers = inherited | layers
    for path, (effort, origin) in list(layers.items()):
        model_path = (*path[:-1], "model")
        if path[-1] == "effort" and effort and model_path in layers:  # a model with an effort is named model@effort
            model, _ = layers[model_path]
            layers[model_path] = f"{split_effort(model)[0]}@{effort}", origin
    settings: Settings = _make(Settings, _nested({path: value for path, (value, _) in layers.items()}))
    origins = {path: origin for path, (_, origin) in layers.items()}
    return dataclasses.replace(settings, origins=origins, profile_reason=reason)


def _make(table: Any, tree: Mapping[str, Any], prefix: KeyPath = ()) -> Any:
    """A table of the schema, with values that are checked already."""
    values = {}
    for key, (kind, field) in _fields(table).items():
        path = (*prefix, key)
        if key in tree or (field.default is field.default_factory is dataclasses.MISSING):
            if dataclasses.is_dataclass(kind):
                values[key] = _make(kind, tree.get(key, {}), path)
            elif key not in tree:
                raise SettingsError(f"setting {key_name(path)} is missing and has no default")
            elif entry := _entry_type(kind):
                values[key] = {name: _make(entry, each, (*path, name)) for name, each in tree[key].items()}
            else:
                values[key] = tree[key]
    return table(**values)


# ── one value ───────────────────────────────────────────────────────────────────────────────────────────────


def parse_value(text: str, kind: Any) -> Any:
    """Parse a string from the environment or the command line as TOML; plain text if it is not valid TOML."""
    if kind is str:
        return text
    if typing.get_origin(kind) is tuple and not text.startswith("["):
        return [part for part in text.split(",") if part]
    try:
        return load_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def coerce(value: Any, kind: Any, field: dataclasses.Field[Any], path: KeyPath, origin: str) -> Any:
    """Convert the value to the field's type.

    Raises:
        SettingsError: it has another type, or is out of bounds; the message names key, value and `origin`.
    """
    if _is_optional(kind) and value in ("none", ""):
        return None
    try:
        converted = msgspec.convert(value, kind)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:  # TOML has no such numbers
            raise ValueError
    except ValueError:
        inner = typing.get_args(kind)[0] if _is_optional(kind) else kind
        expected = "a list of strings" if typing.get_origin(inner) is tuple else _TYPE_NAMES.get(inner, "a table")
        raise _invalid(path, value, origin, expected) from None
    for each in converted.values() if isinstance(converted, dict) else (converted,):
        _check_bounds(each, field, path, origin)
    if (choices := field.metadata["choices"]) and converted not in choices:
        listed = f"one of: {', '.join(map(short_repr, choices))}{did_you_mean(converted, choices)}"
        raise _invalid(path, converted, origin, listed)
    return converted


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


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


def _invalid(path: KeyPath, value: Any, origin: str, must_be: str) -> SettingsError:
    return SettingsError(f"{key_name(path)} = {short_repr(value)} in {origin} must be {must_be}")


def short_repr(value: Any, name: str = "") -> str:
    """A value for an error message: short, and hidden if its name says that it is a secret."""
    if is_secret(name):
        return "(hidden)"
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    text = mask_secrets(text)
    return text if len(text) <= 60 else text[:57] + "..."
