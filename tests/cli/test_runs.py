"""Functions shared by the commands that ask many questions."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
import pytest
from click.testing import CliRunner

from odar.cli.local import local_providers
from odar.cli.runs import (
    MAX_COPIES,
    TIMEOUT_FACTOR,
    RunOptions,
    confirm_run,
    copy_count,
    exit_code,
    on_engine,
    run_options,
    with_long_timeouts,
)
from odar.config import load_settings
from odar.errors import InputError, SettingsError
from odar.lab.runs.journal import WorkItem
from odar.lab.runs.limits import REQUESTS


def settings(**more):
    return load_settings("tiny", environ={}, **more)


def items(*costs):
    return [WorkItem(str(i), None, worst_cost_usd=cost, needs={("p", REQUESTS): 6}) for i, cost in enumerate(costs)]


class TestConfirm:
    def ask(self, *costs, budget=None, yes=False, given=None, **more):
        """Run the confirmation in a terminal, or without one if `given` is None."""

        @click.command()
        def command():
            run = RunOptions(4, budget, yes)
            confirm_run(run, given or settings(**more), items(*costs), 9, "6 calls each, ")

        return CliRunner().invoke(command, catch_exceptions=True)

    def test_free_calls_need_no_consent(self):
        result = self.ask(0.0, 0.0)
        assert result.exit_code == 0
        assert "odar: 2 of 9 questions to answer, 6 calls each, at most $0.0000" in result.output

    def test_no_items_print_nothing(self):
        assert self.ask().output == ""

    def test_a_cost_needs_consent(self):
        result = self.ask(0.5, 0.25)
        assert isinstance(result.exception, InputError)
        assert "at most $0.7500" in result.output

    @pytest.mark.parametrize("consent", [{"yes": True}, {"budget": 1.0}, {"budget": 0.0}])
    def test_yes_or_a_budget_is_consent(self, consent):
        assert self.ask(0.5, **consent).exit_code == 0

    def test_an_unknown_price_is_shown(self):
        result = self.ask(0.5, None)
        assert "an unknown amount: a price is missing" in result.output
        assert isinstance(result.exception, InputError)
        assert self.ask(None, yes=True).exit_code == 0

    def test_a_rate_limit_below_one_item_is_rejected_first(self):
        limited = settings(providers={"p": {"kind": "openai", "requests_per_min": 5}})
        result = self.ask(0.0, given=limited)
        assert isinstance(result.exception, SettingsError)
        assert "one item may take 6 requests" in str(result.exception)


class TestEngine:
    def test_the_address_comes_from_the_option_or_the_environment(self, monkeypatch):
        asked = []
        monkeypatch.setattr("odar.lab.runs.cluster.on_ray", lambda *given: asked.append(given))
        monkeypatch.setenv("RAY_ADDRESS", "here:1")
        on_engine(RunOptions(4, engine="ray", workers=2), None)
        on_engine(RunOptions(4, engine="ray", ray_address="there:2", workers=8), None)
        assert asked == [(None, "here:1", 2), (None, "there:2", 8)]

    def test_the_options_of_the_engine(self):
        @click.command()
        @run_options(concurrency=4)
        def command(run):
            click.echo(json.dumps(asdict(run)))

        run = CliRunner().invoke
        usual = {
            "concurrency": 4,
            "budget": None,
            "yes": False,
            "engine": "local",
            "ray_address": None,
            "workers": 2,
            "quiet": False,
        }
        assert json.loads(run(command, []).output) == usual
        given = ["--engine", "ray", "--ray-address", "local", "--workers", "5", "--budget", "2", "--yes"]
        chosen = {"engine": "ray", "ray_address": "local", "workers": 5, "budget": 2.0, "yes": True}
        assert json.loads(run(command, given).output) == usual | chosen
        assert run(command, ["--workers", "0"]).exit_code == 2
        assert run(command, ["--engine", "spark"]).exit_code == 2


def test_long_timeouts_change_only_times():
    usual = settings(second__model="smollm2-135m", agents={"expert": {"model": "smollm2-135m"}})
    found = with_long_timeouts(usual)
    assert found.agent_names == usual.agent_names == ("fast", "second", "slow", "expert")
    for name in usual.agent_names:
        assert found.agent(name).timeout_s == TIMEOUT_FACTOR * usual.agent(name).timeout_s
    assert found.limits.deadline_s == TIMEOUT_FACTOR * usual.limits.deadline_s
    assert (found.fast.model, found.routing, found.fusion) == (usual.fast.model, usual.routing, usual.fusion)


@pytest.mark.parametrize(("cores", "threads", "expected"), [(1, 0, 1), (2, 0, 2), (8, 2, MAX_COPIES), (4, 8, 1)])
def test_one_copy_per_core_up_to_a_limit(monkeypatch, cores, threads, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(cores), raising=False)
    assert copy_count(settings(local__threads=threads) if threads else settings()) == expected


def failed(*kinds):
    return {f"q{i}": {"type": kind, "message": f"why {i}"} for i, kind in enumerate(kinds)}


@pytest.mark.parametrize(
    ("kinds", "stopped", "code"),
    [
        ((), None, 0),
        ((), "the budget", 4),
        (("InputError",), None, 2),
        (("BudgetExceeded",), None, 4),
        (("InputError", "ProviderTimeout", "BudgetExceeded"), "the budget", 3),
        (("AllAgentsFailed",), None, 3),
        (("SomethingNobodyKnows",), None, 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_failure(kinds, stopped, code):
    assert exit_code(failed(*kinds), stopped) == code


async def test_the_local_model_is_opened_once_for_each_copy():
    opened = local_providers(
        settings(local__threads=1, providers={"p": {"kind": "openai", "base_url": "http://h/v1"}}), copies=3
    )
    assert set(opened) == {"local"}  # the others stay as they are
    assert opened["local"]._copies == 3
    await opened["local"].close()  # nothing was loaded
