from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from odar.cli import main as module
from odar.errors import BudgetExceeded, OdarError, ProviderError, StoreError, UsageError, WeightsError
from odar.types import Spend, Usage


def failing(monkeypatch, error):
    def command(*_, **__):
        raise error

    monkeypatch.setattr(module.cli, "main", command)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ProviderError("x"), 3),
        (BudgetExceeded("x"), 4),
        (WeightsError("x"), 5),
        (StoreError("x"), 6),
        (OdarError("x"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("x"), 2),
    ],
)
def test_every_kind_of_failure_has_its_exit_code(odar, monkeypatch, error, code):
    failing(monkeypatch, error)
    result = odar("ask")
    assert result.code == code
    assert len(result.err.strip().splitlines()) <= 3


def test_a_json_error_has_the_cost(odar, monkeypatch):
    error = ProviderError("p: no", provider="p", status=429, code="slow_down", retry_after=1.5, retryable=True)
    error.spend = Spend(2, Usage(), None, 0.5)
    failing(monkeypatch, error)
    assert json.loads(odar("ask", "--json").out)["error"] == {
        "type": "ProviderError",
        "message": "p: no",
        "provider": "p",
        "status": 429,
        "code": "slow_down",
        "retry_after": 1.5,
        "retryable": True,
        "calls": 2,
        "cost_usd": None,
    }


def test_an_error_message_is_one_printable_line(odar, monkeypatch):
    failing(monkeypatch, UsageError("a\nb \ud800 c"))
    assert odar("ask").err == "odar: a b c\n"


def test_a_misspelt_command_gets_a_suggestion(odar):
    result = odar("aks")
    assert (result.code, "did you mean 'ask'?" in result.err) == (2, True)


def test_an_unknown_eval_command_is_rejected(odar):
    assert odar("eval", "nonsense").code == 2


def test_a_closed_output_pipe_is_not_an_error(tmp_path):
    """As in `odar config | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "odar", "models", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(30) in (0, 1, 120, 141)  # by who notices first: nobody, click, Python, we


def test_a_broken_pipe_inside_a_command_is_not_an_error(monkeypatch):
    failing(monkeypatch, BrokenPipeError())
    monkeypatch.setattr(sys, "stderr", open("/dev/null", "w"))  # noqa: PTH123, SIM115 - it is closed by whom we test
    with pytest.raises(SystemExit) as ended:
        module.main(["ask"])
    assert ended.value.code == 141
    assert sys.stderr.closed
