"""What every command promises, found out from the commands themselves: exit codes, one clear line, JSON for machines."""

from __future__ import annotations

import json
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


def needed(command: click.Command) -> list[str]:
    """The arguments and options that a command cannot go without; none of them names anything that is there."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            word = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "nothing-such"
            exists = isinstance(parameter.type, click.Path) and parameter.type.exists
            word = ("." if not parameter.type.file_okay else "odar.toml") if exists else word
            words += [parameter.opts[0], word] if isinstance(parameter, click.Option) else [word]
    return words


def one_line(result) -> str:
    (line,) = result.err.strip().splitlines()
    return line


def test_there_are_as_many_as_we_think():
    assert len(COMMANDS) > 20
    assert len(WITH_SETTINGS) > 15
    assert len(WITH_JSON) > 15
    assert len(NUMBERS) > 25


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
def test_a_setting_at_fault_is_named_by_every_command(odar, provider, name, given, said):
    result = odar(*name.split(), *needed(COMMANDS[name]), *given)
    assert result.code == 2
    assert result.out == ""
    assert said in one_line(result)
    assert provider.requests == []


@pytest.mark.parametrize("name", sorted({*WITH_JSON} & {*WITH_SETTINGS}))
def test_with_json_errors_are_json(odar, provider, name):
    result = odar(*name.split(), *needed(COMMANDS[name]), "--set", "fast.tempratur=1", "--json")
    assert result.code == 2
    error = json.loads(result.out)["error"]
    assert error["type"] == "SettingsError"
    assert "fast.tempratur" in error["message"]
    assert result.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_rejected_with_a_hint_at_the_help(odar, name):
    result = odar(*name.split(), "--nothing-such")
    assert result.code == 2
    assert "No such option" in result.err and "--nothing-such" in result.err


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if needed(command)])
def test_what_is_missing_is_named(odar, provider, name):
    result = odar(*name.split())
    assert result.code == 2
    assert "Missing" in result.err


@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=[f"{name} {option.name}" for name, option in NUMBERS])
def test_a_number_out_of_bounds_is_refused_before_anything_happens(odar, provider, name, option):
    below = "-1" if option.type.min is None else str(option.type.min - 1)
    result = odar(*name.split(), *needed(COMMANDS[name]), option.opts[0], below)
    assert result.code == 2
    assert f"'{option.opts[0]}'" in result.err and "not in the range" in result.err
    words = odar(*name.split(), *needed(COMMANDS[name]), option.opts[0], "many")
    assert (words.code, "is not a valid" in words.err) == (2, True)
    assert provider.requests == []


FRACTIONS = [(name, option) for name, option in NUMBERS if isinstance(option.type, click.FloatRange)]


@pytest.mark.parametrize(("name", "option"), FRACTIONS, ids=[f"{name} {option.name}" for name, option in FRACTIONS])
@pytest.mark.parametrize("number", ["nan", "inf", "1e999"])
def test_a_limit_that_nothing_passes_is_none(odar, provider, name, option, number):
    """A budget of nan is below no cost and above none: the key or the batch would have had no limit at all."""
    result = odar(*name.split(), *needed(COMMANDS[name]), option.opts[0], number)
    assert result.code == 2
    assert f"'{option.opts[0]}'" in result.err
    assert "is not a finite number" in result.err or "not in the range" in result.err
    assert provider.requests == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_have_a_word_of_help_and_names_that_are_spoken(name):
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts}"
            assert max(option.opts, key=len).startswith("--")
