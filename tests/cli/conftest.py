from __future__ import annotations

import io
import sys
from dataclasses import dataclass

import pytest

from odar.cli.main import main
from odar.providers.pool import KINDS
from support.scripted import ScriptedProvider, completion, step_of

TOML = """
profile = "tiny"
prompts = "paper"
[providers.script]
kind = "scripted"
[models.m]
provider = "script"
logprobs = true
n = true
price = { input = 1, output = 2 }
[fast]
model = "m"
[slow]
model = "m"
"""


@dataclass
class Result:
    code: int
    out: str
    err: str


def script(request, index):
    text = {"answer": "Answer: 4", "verify": "Judgment: CORRECT\nAnswer: 4"}.get(step_of(request), "Hm.\nAnswer: 4")
    return [completion(text, -0.2)] * request.n


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """A scripted provider behind ./odar.toml."""
    provider = ScriptedProvider(script, "script")
    KINDS.add("scripted", lambda name, settings, all_settings: provider)
    (tmp_path / "odar.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    return provider


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """End fits of the difficulty estimator early, a little before they converge."""
    monkeypatch.setattr("odar.lab.training.STEPS", 2000)


@pytest.fixture
def odar(capsys, monkeypatch):
    """Return a function that runs a command line and returns exit code, output and errors."""

    def run(*arguments: str, stdin: bytes | None = None, typed: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", Stdin(stdin, typed))
        with pytest.raises(SystemExit) as exit_:
            main(list(arguments))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(int(exit_.value.code or 0), captured.out, captured.err)

    return run


class Stdin(io.TextIOWrapper):
    """Standard input with these bytes; without bytes, a terminal where `typed` is typed."""

    def __init__(self, content: bytes | None, typed: bytes = b"") -> None:
        super().__init__(io.BytesIO(typed if content is None else content))
        self._terminal = content is None

    def isatty(self) -> bool:
        return self._terminal
