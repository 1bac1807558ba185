"""Engine, replay and decisions without calls agree for every policy: stages, calls, cost and answers."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odar.calibration_file import Calibration
from odar.engine import Odar
from odar.lab.recording.files import open_recording
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import load_table
from odar.providers.base import Completion, Provider, Reply
from odar.providers.openai import chat_body
from odar.types import Route, Usage
from support import panels
from support.panels import MODELS, Spread, collect_panel
from support.scripted import step_of

THREE = {**MODELS, "other": {**MODELS["quick"], "provider": "second", "family": "other"}}
SETTINGS = {"models": THREE, "second__model": "other"}
SETTINGS["providers"] = {name: {"kind": "openai"} for name in ("fast", "second", "slow")}
ITEMS = 40


class Recordings(dict):
    """Recordings by name; hypothesis prints the arguments of a test, and these are large."""

    def __repr__(self):
        return f"<{len(self)} recordings>"


class RecordedAgents(Provider):
    """Answers with what was recorded for one item: the samples of an agent in order."""

    name = "recorded"

    def __init__(self, item):
        self.answers = {}
        for attempt in item.attempts:
            self.answers.setdefault((attempt.model, attempt.step.value), []).append(attempt)
        self.asked = Counter()
        self.bodies = []

    def take(self, model, step, count):
        first = self.asked[model, step]
        self.asked[model, step] += count
        said = self.answers[model, step][first : first + count]
        assert len(said) == count
        return said

    async def complete(self, request, on_delta=None):
        self.bodies.append(chat_body(request))
        said = self.take(request.model, step_of(request), request.n)
        output = sum(each.usage.output for each in said)
        completions = tuple(Completion(each.text, each.tokens, each.finish) for each in said)
        return Reply(completions, Usage(said[0].usage.input, 0, output, 0), request.model)

    async def check(self, model=""):
        return ""

    async def close(self):
        pass


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings of three agents: calibrated, without log-probabilities, and with a request for each sample."""
    alone = {**THREE, "deep": {**THREE["deep"], "n": False}}
    cases = {"calibrated": {}, "silent": {"silent": 0.7, "calibration": ""}, "alone": {"models": alone}}
    found = Recordings()
    for name, case in cases.items():
        folder = tmp_path_factory.mktemp(name)
        options = {**SETTINGS, **{key: value for key, value in case.items() if key != "silent"}}
        kept = {"items": ITEMS, "samples": 5, "seed": len(name), "silent": case.get("silent", 0.1)}
        place = asyncio.run(collect_panel(folder, **kept, **options))
        table = load_table(place)
        if options.get("calibration") == "":  # an engine without statistics compares raw energies
            table = table.replaced(calibration=Calibration())
        found[name] = (table, list(open_recording(place).items()), panels.settings(folder, **options))
    return found


async def decide_until_stop(odar, item):
    """Make every decision without a call: return the steps, and the requests that a caller would have sent."""
    agents = RecordedAgents(item)
    answers, steps, bodies = [], [], []
    while True:
        step = await odar.adecide(item.query, answers)
        steps.append(step)
        if step.stage is None:
            return steps, bodies
        for ask, body in step.requests.items():
            bodies.append(body)
            for said in agents.take(body["model"], ask.step.value, ask.samples):
                logprobs = [{"token": token.text, "logprob": token.logprob} for token in said.tokens]
                answers.append({"agent": ask.agent, "text": said.text, "finish": said.finish, "logprobs": logprobs})


async def assert_agrees(table, items, made, spec, changes):
    """Ask the engine every item, and compare it with the outcome of the replay."""
    outcome = run_policy(table, spec)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        part = dataclasses.replace(getattr(made, section), **{name: value}) if section else value
        made = dataclasses.replace(made, **{section or name: part})
    for row, item in enumerate(items):
        agents = RecordedAgents(item)
        providers = dict.fromkeys(("fast", "second", "slow"), agents)
        async with Odar(made, providers=providers, estimator=Spread()) as odar:
            steps, bodies = await decide_until_stop(odar, item)
            assert not agents.bodies, "a decision makes no call"
            trace = (await odar.aask(item.query)).trace
        what = (spec, item.key.id)
        assert (what, [step.decision for step in steps]) == (what, list(trace.decisions))
        assert (what, repr(steps[-1].verdict)) == (what, repr(trace.verdict))  # NaN is not equal to itself
        assert (what, steps[-1].candidates) == (what, trace.candidates)
        if all(card.n for card in made.models.values() if card.provider in providers):
            key = operator.itemgetter("model")
            assert sorted(bodies, key=key) == sorted(agents.bodies, key=key)
        stages = tuple(each.stage for each in trace.decisions if each.stage is not None)
        assert (what, outcome.stages[row]) == (what, stages)
        assert (what, outcome.calls[row]) == (what, trace.spend.calls)
        assert (what, list(Route)[outcome.path[row]]) == (what, trace.path)
        assert outcome.cost_usd[row] == pytest.approx(trace.spend.cost_usd), what
        winner = trace.candidates[trace.verdict.winner]
        taken = item.attempts[outcome.winner[row]]
        assert (what, taken.text, taken.agent) == (what, winner.text, winner.agent)
        assert outcome.score[row] == taken.score
    return outcome


thresholds = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
papers = st.builds(
    lambda taus, beta: (
        f"odar:policy=paper,tau1={taus[0]},tau2={taus[1]},beta={beta}",
        {"policy": "paper", "routing.tau1": taus[0], "routing.tau2": taus[1], "fusion.beta": float(beta)},
    ),
    thresholds,
    st.sampled_from(["inf", "0", "0.25"]),
)
cascades = st.builds(
    lambda points, stages: (
        f"cascade:dial={points}" + (f",stages={stages}" if stages else ""),
        {"policy": "cascade", "routing.dial": f"{points}", "routing.stages": (stages,) if stages else ()},
    ),
    st.floats(0.01, 100),
    st.sampled_from(["", "fast+second"]),
)
fixed = st.sampled_from(["fast", "slow*3", "fast+slow*5", "fast,second,slow*2", "fast,slow:verify"]).map(
    lambda spec: (spec if "," in spec or "*" in spec else f"odar:policy={spec}", {"policy": spec})
)


TIED = {"policy": "cascade", "routing.dial": "10", "routing.stages": ("fast+second",)}


@example(case="silent", policy=("cascade:dial=10,stages=fast+second", TIED), start=20)  # equally likely answers
@given(
    case=st.sampled_from(["calibrated", "silent", "alone"]),
    policy=papers | cascades | fixed,
    start=st.integers(0, ITEMS - 4),
)
@settings(max_examples=40, deadline=None)
def test_replay_does_what_the_engine_does(recordings, case, policy, start):
    table, items, made = recordings[case]
    rows = list(range(start, start + 4))
    part = table.replaced(rows=rows)
    asyncio.run(assert_agrees(part, [items[row] for row in rows], made, *policy))


@pytest.mark.parametrize("dial", ["economy", "balanced", "quality", "0.05"])
def test_the_cascade_agrees_at_every_dial_on_all_items(recordings, dial):
    changes = {"policy": "cascade", "routing.dial": dial}
    table, items, made = recordings["calibrated"]
    outcome = asyncio.run(assert_agrees(table, items, made, f"cascade:dial={dial}", changes))
    assert dial != "balanced" or len(set(outcome.stages)) > 2
