from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from odar.cli.main import COMMANDS, cli
from odar.cli.options import UserPath, parse_sets
from odar.errors import SettingsError

NOBODY = "~nobody_such/x"
PLACES = {"FILE", "FILE.jsonl", "DIR", "IN.jsonl", "OUT.jsonl", "A", "B", "FILENAME", "DIRECTORY", "PATH"}
"""Metavars that stand for a file or a folder."""
NAMES = "data out file panel recording responses figures source predictions report config"
"""Parameters that name a file or a folder under another metavar."""
LINES = [
    ["batch", "in.jsonl", NOBODY],
    ["ask", "2 + 2?", "--config", NOBODY],
    ["ask", "2 + 2?", "--profile", NOBODY + ".toml"],
    ["eval", "compare", "panel.jsonl", NOBODY + "#odar"],
    ["traces", "--set", f"store.url={NOBODY}"],
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_unknown_home_is_rejected_first(odar, provider, tmp_path, line):
    before = sorted(tmp_path.iterdir())
    result = odar(*line)
    assert result.code == 2
    assert result.out == ""
    assert "no home is known for '~nobody_such'; write the whole path" in result.err
    assert len(result.err.splitlines()) == 1
    assert provider.requests == []
    assert sorted(tmp_path.iterdir()) == before


def test_an_unknown_home_is_a_json_error(odar, provider):
    result = odar("batch", "in.jsonl", NOBODY, "--json")
    assert result.code == 2
    error = json.loads(result.out)["error"]
    assert error["type"] == "InputError" and NOBODY in error["message"]


def parameters(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(group)
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            yield from parameters(group.get_command(context, name), (*path, name))
    for parameter in group.params:
        yield " ".join((*path, parameter.name)), parameter


def test_every_path_parameter_expands_the_home():
    assert set(COMMANDS) <= {name.split()[0] for name, _ in parameters(cli)}
    places = [
        (name, parameter) for name, parameter in parameters(cli)
        if isinstance(parameter.type, click.Path) or parameter.metavar in PLACES or parameter.name in NAMES.split()
    ]  # fmt: skip
    assert len(places) > 40
    assert [name for name, parameter in places if not isinstance(parameter.type, UserPath)] == []


def test_a_tilde_on_the_command_line_is_expanded(odar, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "questions.jsonl").write_text('{"query": "2 + 2?"}\n')
    listed = odar("difficulty", "--file=~/questions.jsonl", "--json", "--config", "/dev/null")
    assert listed.code == 0
    assert json.loads(listed.out)["query"] == "2 + 2?"


@pytest.mark.parametrize(
    ("given", "tree"),
    [
        ((), {}),
        (("fast.model=m",), {"fast": {"model": "m"}}),
        (("limits.cost_usd=0.5", "limits.calls=3"), {"limits": {"cost_usd": 0.5, "calls": 3}}),
        (('fast.stop=["a", "b"]',), {"fast": {"stop": ["a", "b"]}}),
        (("store.enabled=false",), {"store": {"enabled": False}}),
        (("fast.model=a=b",), {"fast": {"model": "a=b"}}),
        (("fast.model=",), {"fast": {"model": ""}}),
        (("fast.model=2026-11-16x",), {"fast": {"model": "2026-11-16x"}}),
        (("fusion.beta=inf",), {"fusion": {"beta": float("inf")}}),
        (('models."a.b".n=true',), {"models": {"a.b": {"n": True}}}),
        (("fast.model=a\nslow.model=b",), {"fast": {"model": "a\nslow.model=b"}}),
    ],
)
def test_sets_are_toml_or_plain_strings(given, tree):
    assert parse_sets(given) == tree


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("fast.model",), "'fast.model' is not KEY=VALUE"),
        (("=x",), "cannot be read"),
        (("fast model=x",), "cannot be read"),
        (("fast.model=a", "fast.model=b"), "cannot be read"),
        (("fast=a", "fast.model=b"), "cannot be read"),
        ((".".join("a" * 300) + "=1",), "nested too deeply"),
    ],
)
def test_invalid_sets_are_rejected(given, why):
    with pytest.raises(SettingsError, match=why):
        parse_sets(given)
