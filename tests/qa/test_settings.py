"""Any TOML file, environment or argument gives valid settings or a one-line error that names the key."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from fuzz.strategies import EVIL_NUMBERS, examples, json_values, texts
from hypothesis import given
from hypothesis import strategies as st

from odar.config import environment_name, iter_settings, load_settings
from odar.errors import SettingsError, UsageError
from odar.settings import Settings

LEAVES = [path for path, _, _ in iter_settings()]
TABLES = [("providers", "p", "kind"), ("providers", "p", "base_url"), ("providers", "p", "api_key_env")]
TABLES += [("models", "m", name) for name in ("provider", "price", "context", "drop", "extra", "scores", "n")]
keys = st.sampled_from([*LEAVES, *TABLES]) | st.lists(texts, min_size=1, max_size=3).map(tuple)
words = st.sampled_from(["inf", "nan", "-inf", "true", "1_000", "[", "[1", '"a"', "{a=1}", "1979-05-27", "1\nb=2"])


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value


def loads(*arguments: Any, **options: Any) -> Settings | UsageError:
    """Return settings or an OdarError."""
    try:
        settings = load_settings(*arguments, **options)
    except UsageError as error:
        assert str(error)
        assert "\n" not in str(error), str(error)
        assert len(str(error)) < 20_000
        return error
    settings.check()
    return settings


def in_toml(value: Any) -> str:
    """Return a JSON value as TOML; null becomes an empty table."""
    match value:
        case None:
            return "{}"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return quoted(value)
        case list():
            return f"[{', '.join(map(in_toml, value))}]"
    return f"{{{', '.join(f'{quoted(key)} = {in_toml(each)}' for key, each in value.items())}}}"


def quoted(text: str) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{escaped}"'


@examples(60)
@given(st.lists(st.tuples(keys, json_values), max_size=3))
def test_any_arguments_load_or_are_rejected(pairs):
    tree: dict[str, Any] = {}
    for path, value in pairs:
        tree |= nested(path, value)
    tree = {name: value for name, value in tree.items() if name not in ("profile", "config", "environ")}
    loads("tiny", config="/dev/null", environ={}, **tree)


@examples(60)
@given(st.lists(st.tuples(keys, json_values), max_size=3))
def test_any_toml_file_loads_or_is_rejected(tmp_path_factory, pairs):
    file = tmp_path_factory.getbasetemp() / "fuzz.toml"
    lines = [f"{'.'.join(map(quoted, path))} = {in_toml(value)}" for path, value in pairs]
    file.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    loads("tiny", config=file, environ={})


@examples(60)
@given(st.binary(max_size=200) | st.text(st.sampled_from(string.printable), max_size=100).map(str.encode))
def test_any_bytes_in_a_file_load_or_are_rejected(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fuzz-bytes.toml"
    file.write_bytes(data)
    loads("tiny", config=file, environ={})


@examples(60)
@given(st.sampled_from(LEAVES), texts | words | st.sampled_from(EVIL_NUMBERS).map(str))
def test_any_text_in_a_variable_loads_or_is_rejected(path, text):
    loads(config="/dev/null", environ={environment_name(path): text})


@examples(60)
@given(st.text(st.sampled_from(string.ascii_uppercase + "_"), max_size=20), texts)
def test_any_variable_loads_or_is_rejected(name, text):
    loads("tiny", config="/dev/null", environ={f"ODAR_{name}": text})


# ── what was found ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_huge_number_is_rejected(tmp_path, digits):
    file = tmp_path / "odar.toml"
    file.write_text(f"[routing]\ntau1 = {'9' * digits}")
    with pytest.raises(SettingsError):
        load_settings("tiny", config=file, environ={})
    with pytest.raises(SettingsError, match=r"routing\.tau1"):
        load_settings("tiny", config="/dev/null", environ={"ODAR_ROUTING_TAU1": "9" * digits})


@pytest.mark.parametrize("setting", ["profile", "calibration", "prompts"])
@pytest.mark.parametrize(
    "text", ["a\0b", "a\0.toml", "~nobody-of-this-name/x.toml", "\ud800.toml", "x" * 5_000 + ".toml", "a\nb.toml"]
)
def test_an_invalid_path_is_rejected_or_unused(setting, text):
    assert isinstance(loads(config="/dev/null", environ={}, **{setting: text}), UsageError | Settings)


@pytest.mark.parametrize("text", ["a\0b", "~nobody-of-this-name/x", "\ud800"])
def test_an_invalid_settings_file_name_is_rejected(text):
    with pytest.raises(SettingsError):
        load_settings("tiny", config=text, environ={})
    with pytest.raises(SettingsError):
        load_settings("tiny", environ={"ODAR_CONFIG": text})


def test_unclosed_brackets_are_rejected(tmp_path: Path):
    file = tmp_path / "odar.toml"
    file.write_text("x = " + "[" * 100_000)
    with pytest.raises(SettingsError):
        load_settings("tiny", config=file, environ={})
    with pytest.raises(SettingsError):
        load_settings("tiny", config="/dev/null", environ={"ODAR_SEED": "[" * 100_000})


def test_a_huge_hexadecimal_number_is_rejected(tmp_path: Path):
    """The TOML parser rejects a huge decimal number, but not a hexadecimal one."""
    file = tmp_path / "odar.toml"
    file.write_text(f"[fast]\nmax_tokens = 0x{'f' * 8_000}")
    with pytest.raises(SettingsError, match=r"fast\.max_tokens = a int in .* must be a whole number"):
        load_settings("tiny", config=file, environ={})
