from __future__ import annotations

import io
import json
import os

import click
import pytest

from odar.calibration.items import Item
from odar.cli.collecting import MOST_COPIES, PATIENCE, confirm, workers
from odar.config import load_settings
from odar.engine import Odar
from odar.errors import BudgetExceeded, InputError
from odar.providers.several import Several
from odar.types import Query
from support.scripted import ScriptedProvider, completion

ITEMS = [Item(str(n), Query(f"What is {n} + 1?"), (str(n + 1),)) for n in range(3)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def engine():
    def make(price=None) -> Odar:
        settings = load_settings(
            "embedded",
            config="/dev/null",
            environ={},
            providers={"p": {"kind": "openai"}},
            models={"m": {"provider": "p", **({"price": price} if price else {})}},
            fast__model="m",
            slow__model="m",
        )
        return Odar(settings, providers={"p": ScriptedProvider(lambda request, index: [completion("4")], "p")})

    return make


def test_what_costs_nothing_needs_no_yes(engine, capsys):
    confirm(engine({"input": 0, "output": 0}), ITEMS, 5, "7", None, yes=False)
    assert capsys.readouterr().err == "odar: 3 of 5 items to answer, 7 calls each, at most $0.00\n"


def test_nothing_left_to_do_says_nothing(engine, capsys):
    confirm(engine(), [], 5, "7", 1.0, yes=False)
    assert capsys.readouterr().err == ""


def test_money_is_not_spent_unasked(engine, monkeypatch, capsys):
    dear = engine({"input": 1000, "output": 2000})
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(InputError, match="this costs money; add --yes to go on"):
        confirm(dear, ITEMS, 3, "7", None, yes=False)
    confirm(dear, ITEMS, 3, "7", None, yes=True)
    assert "at most $" in capsys.readouterr().err


@pytest.mark.parametrize("reply", ["y", "n"])
def test_somebody_at_the_terminal_is_asked(engine, monkeypatch, reply):
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: reply)
    dear = engine({"input": 1000, "output": 2000})
    if reply == "n":
        with pytest.raises(click.Abort):
            confirm(dear, ITEMS, 3, "7", None, yes=False)
    else:
        confirm(dear, ITEMS, 3, "7", None, yes=False)


def test_a_budget_needs_prices(engine, capsys):
    with pytest.raises(BudgetExceeded, match="--budget cannot be kept while a price is unknown"):
        confirm(engine(), ITEMS, 3, "7", 1.0, yes=True)
    assert "an unknown amount: a price is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cores", "threads", "copies"), [(1, 0, 1), (2, 0, 2), (16, 0, MOST_COPIES), (4, 2, 2), (2, 8, 1)]
)
def test_a_copy_for_each_core_and_patience_for_all(monkeypatch, cores, threads, copies):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    settings = load_settings("embedded", config="/dev/null", environ={}, embedded__threads=threads)
    patient, ready, count = workers(settings)
    assert count == copies
    assert [type(provider) for provider in ready.values()] == [Several]
    assert patient.fast.timeout_s == PATIENCE * settings.fast.timeout_s
    assert patient.limits.deadline_s == PATIENCE * settings.limits.deadline_s


def test_what_failed_is_said_and_the_rest_is_kept(odar, provider, tmp_path, monkeypatch):
    from odar.errors import ProviderError

    def moody(request, index):
        if "9 + 9" in request.messages[-1].text:
            raise ProviderError("script: not that one", provider="script", status=400)
        return [completion("Answer: 4", -0.1)] * request.n

    provider.script = moody
    rows = [{"id": str(n), "query": f"What is {n} + {n}?", "answer": "4"} for n in (2, 9)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = odar("sample", "q.jsonl", "--yes")
    assert result.code == 0
    assert "odar: 1 item failed, the first (9): " in result.err
    assert "1 questions in samples.jsonl" in result.out
