"""Rules for every command, checked on all of them: help, exit codes, one-line errors, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import click
import pytest

from odar.cli.main import cli

SETTINGS = {"profile", "config", "sets"}


def commands(group: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), (*path, name))
        if not group.invoke_without_command:
            return
    yield " ".join(path), group


COMMANDS = dict(commands())
WITH_SETTINGS = [name for name, command in COMMANDS.items() if {p.name for p in command.params} >= SETTINGS]
WITH_JSON = [name for name, command in COMMANDS.items() if "as_json" in {p.name for p in command.params}]
NUMBERS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, click.IntRange | click.FloatRange)
]


def required_arguments(command: click.Command) -> list[str]:
    """Return values for the required arguments and options of a command; none of them exists."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            word = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "nothing-such"
            exists = isinstance(parameter.type, click.Path) and parameter.type.exists
            word = ("." if not parameter.type.file_okay else "odar.toml") if exists else word
            words += [parameter.opts[0], word] if isinstance(parameter, click.Option) else [word]
    return words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_within_80_columns(odar, name):
    *group, command = name.split()
    assert re.search(rf"^  {command} ", odar(*group, "--help").out, re.MULTILINE)
    result = odar(*group, command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: odar {name}")
    assert max(map(len, result.out.splitlines())) <= 80


def one_line(result) -> str:
    (line,) = result.err.strip().splitlines()
    return line


@pytest.mark.parametrize("name", WITH_SETTINGS)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ("--set", "fast.tempratur=1"),
            "unknown setting fast.tempratur = 1 in argument; did you mean 'temperature'",
        ),
        (("--set", "fast.temperature=hot"), "fast.temperature"),
        (("--set", "fast"), "is not KEY=VALUE"),
        (("--profile", "tinny"), "did you mean 'tiny'"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read: No such file"),
    ],
    ids=["unknown key", "bad value", "no value", "unknown profile", "no file"],
)
def test_every_command_names_an_invalid_setting(odar, provider, name, given, said):
    result = odar(*name.split(), *required_arguments(COMMANDS[name]), *given)
    assert result.code == 2
    assert result.out == ""
    assert said in one_line(result)
    assert provider.requests == []


@pytest.mark.parametrize("name", sorted({*WITH_JSON} & {*WITH_SETTINGS}))
def test_every_json_command_prints_errors_as_json(odar, provider, name):
    result = odar(*name.split(), *required_arguments(COMMANDS[name]), "--set", "fast.tempratur=1", "--json")
    assert result.code == 2
    error = json.loads(result.out)["error"]
    assert error["type"] == "SettingsError"
    assert "fast.tempratur" in error["message"]
    assert result.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_rejects_an_unknown_option(odar, name):
    result = odar(*name.split(), "--nothing-such")
    assert result.code == 2
    assert "No such option" in result.err and "--nothing-such" in result.err


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if required_arguments(command)])
def test_every_command_names_a_missing_argument(odar, provider, name):
    result = odar(*name.split())
    assert result.code == 2
    assert "Missing" in result.err


@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=[f"{name} {option.name}" for name, option in NUMBERS])
def test_every_number_out_of_bounds_is_rejected(odar, provider, name, option):
    below = "-1" if option.type.min is None else str(option.type.min - 1)
    result = odar(*name.split(), *required_arguments(COMMANDS[name]), option.opts[0], below)
    assert result.code == 2
    assert f"'{option.opts[0]}'" in result.err and "not in the range" in result.err
    words = odar(*name.split(), *required_arguments(COMMANDS[name]), option.opts[0], "many")
    assert (words.code, "is not a valid" in words.err) == (2, True)
    assert provider.requests == []


FRACTIONS = [(name, option) for name, option in NUMBERS if isinstance(option.type, click.FloatRange)]


@pytest.mark.parametrize(("name", "option"), FRACTIONS, ids=[f"{name} {option.name}" for name, option in FRACTIONS])
@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
def test_every_limit_rejects_nan_and_infinity(odar, provider, name, option, number):
    """Every comparison with nan is false, so a budget of nan would be no limit."""
    result = odar(*name.split(), *required_arguments(COMMANDS[name]), option.opts[0], number)
    assert result.code == 2
    assert f"'{option.opts[0]}'" in result.err
    assert "is not a finite number" in result.err or "not in the range" in result.err
    assert provider.requests == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_a_long_name(name):
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts}"
            assert max(option.opts, key=len).startswith("--")
