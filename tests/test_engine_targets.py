"""Targets in the engine: thresholds adapt to the measured calls and cost, and the trace shows them (SPEC 5.13)."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.errors import ProviderError, SettingsError
from odar.policy.target import Target
from odar.summary import summary
from odar.types import Estimate, Path
from support.scripted import ScriptedProvider, completion, step_of

MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True},
}


class Given:
    """An estimator that reads the difficulty from the question."""

    name = "given"

    def estimate(self, query):
        found = re.findall(r"0\.\d+", query.text)
        return Estimate(float(found[-1]) if found else 0.5, self.name)


def talk(request, index):
    if step_of(request) == "solve":
        return [completion(f"Sample {i}.\nAnswer: 5", -0.3) for i in range(request.n)]
    return [completion("Judgment: CORRECT\nAnswer: 4" if step_of(request) == "verify" else "Answer: 4", -0.2)]


def engine(served=None, script=talk, **overrides):
    settings = load_settings(
        "tiny",
        environ={},
        models=MODELS,
        providers={"fast": {"kind": "openai"}, "slow": {"kind": "openai"}},
        prompts="default",
        fusion__stop_confidence=None,
        fast__model="quick",
        slow__model="deep",
        calibration="",
        **{"routing__mode": "prior", **overrides},
    )
    providers = {name: ScriptedProvider(script, name) for name in ("fast", "slow")}
    return Odar(settings, providers=providers, estimator=Given(), served=served)


async def ask_many(odar, count, seed=0, **options):
    difficulties = np.random.default_rng(seed).beta(2, 3, count)
    return [await odar.aask(f"How hard is {d:.6f}", **options) for d in difficulties]


async def test_the_mean_number_of_calls_meets_the_target():
    async with engine(routing__target_calls=1.8) as odar:
        answers = await ask_many(odar, 300)
    calls = [answer.trace.spend.calls for answer in answers]
    assert np.mean(calls[60:]) == pytest.approx(1.8, rel=0.05)
    assert {answer.path for answer in answers} == set(Path)
    use = answers[-1].trace.decision.target
    assert (use.kind, use.value) == ("calls", 1.8)
    assert use.actual == pytest.approx(np.mean(calls[:-1]))
    assert summary(answers[-1])["target"]["t"] == use.t


async def test_a_request_can_have_its_own_target():
    async with engine(routing__target_calls=1.2) as odar:
        await ask_many(odar, 40)
        own = await ask_many(odar, 150, target=Target.from_options(calls=3.0))
    assert np.mean([answer.trace.spend.calls for answer in own][40:]) == pytest.approx(3.0, rel=0.1)
    assert [(row.scope, row.target) for row in odar.targets.report()] == [("settings", 1.2), ("request", 3.0)]


async def test_questions_with_a_chosen_path_do_not_count():
    async with engine(routing__target_calls=1.5) as odar:
        answer = await odar.aask("How hard is 0.1", path="hard")
    assert answer.trace.decision.target is None
    assert odar.targets.report() == []


async def test_the_calls_of_a_failed_question_count():
    def fail(request, index):
        return ProviderError("out", provider="fast", status=503, retryable=False)

    async with engine(script=fail, routing__target_calls=1.5) as odar:
        with pytest.raises(ProviderError):
            await odar.aask("How hard is 0.1")
        assert odar.targets.choose(Target.from_options(calls=1.5)).t > 0


async def test_the_state_of_a_target_survives_a_restart(tmp_path):
    file = tmp_path / "odar.alignment.json"
    async with engine(file, routing__target_calls=1.8) as odar:
        await ask_many(odar, 60)
    body = json.loads((tmp_path / "odar.targets.json").read_text())
    assert next(iter(body["targets"].values()))["questions"] == 60
    async with engine(file, routing__target_calls=1.8) as odar:
        answer = await odar.aask("How hard is 0.5")
    assert answer.trace.decision.target.actual is not None


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"routing__target_calls": 2.0, "routing__target_cost_usd": 0.1}, "both set"),
        ({"routing__target_cost_usd": 0.1}, "needs the price of 'deep'"),
    ],
)
def test_invalid_targets_are_rejected(overrides, why):
    with pytest.raises(SettingsError, match=why):
        engine(**overrides)
