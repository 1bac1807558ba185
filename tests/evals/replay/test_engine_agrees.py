"""Replay of the odar policy equals the engine for every item: path, calls and winner."""

from __future__ import annotations

import pytest

from odar.engine import Odar
from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policy
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.providers.base import Completion, Reply
from odar.providers.pool import ProviderPool
from odar.providers.replay import RecordedReply, ReplayProvider, digest
from odar.recording.files import open_recording
from odar.types import Path, Query, Step
from support.panels import MODELS, Spread, collect_panel, settings

ONE_BY_ONE = {**MODELS, "deep": {**MODELS["deep"], "n": False}}


def recordings(odar, entry, n):
    """Return replies to every request the engine can make, from the recorded item."""
    query, fast, verify = Query(entry.query), entry.attempts[FAST], entry.attempts[VERIFY]
    prompts = odar.prompts

    def say(model, messages, *attempts):
        spoken = [Completion(a.text, a.candidate.tokens, a.finish) for a in attempts]
        return RecordedReply(model, Reply(tuple(spoken)), digest(messages))

    yield say("quick", prompts[Step.ANSWER].messages(query), fast)
    yield say("deep", prompts[Step.VERIFY].messages(query, fast.answer, fast.text.strip()), verify)
    solve, samples = prompts[Step.SOLVE].messages(query), entry.attempts[SOLVE : SOLVE + n]
    first = odar.sampler.stopping.first_size(n)
    if not odar.settings.card("deep").n:
        waves = [[sample] for sample in samples]
    else:
        waves = [samples[:first], samples[first:]]
    for wave in waves:
        yield say("deep", solve, *wave)


def column_of(trace):
    """Return the winning column of the panel."""
    winner = trace.candidates[trace.verdict.winner]
    if winner.step is Step.SOLVE:
        return SOLVE + [c for c in trace.candidates if c.step is Step.SOLVE].index(winner)
    return FAST if winner.step is Step.ANSWER else VERIFY


CASES = {
    "": {},
    "beta=inf": {"fusion__beta": float("inf")},
    "beta=0": {"fusion__beta": 0.0},
    "stop=none": {"fusion__stop_confidence": None},
    "stop=none,n=3": {"fusion__stop_confidence": None, "routing__samples": 3},
    "stop=1": {"fusion__stop_confidence": 1.0},
    "stop=0.95,first_wave=2,n=5": {"fusion__stop_confidence": 0.95, "fusion__first_wave": 2},
    "mode=prior": {"routing__mode": "prior"},
    "clearly_hard=0.5": {"routing__clearly_hard": 0.5},
    "tau1=0.2,tau2=0.6": {"routing__tau1": 0.2, "routing__tau2": 0.6},
    "tau1=0,tau2=0,mode=prior": {"routing__tau1": 0.0, "routing__tau2": 0.0, "routing__mode": "prior"},
    "tau1=0,tau2=1,mode=prior": {"routing__tau1": 0.0, "routing__tau2": 1.0, "routing__mode": "prior"},
    "lambda=0.7": {"fusion__varentropy_weight": 0.7},  # without statistics: everything is compared raw
    **{
        f"rule={rule}": {"fusion__rule": rule}
        for rule in ("majority", "max_confidence", "mean_logprob", "deepconf")
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agree")


async def compare(folder, place, options, overrides, models):
    arrays = load_arrays(place)
    outcome = run_policy(arrays, f"odar:{options}")
    made = settings(folder, models=models, **overrides)
    paths, wins = list(Path), 0
    odar = Odar(made, estimator=Spread())
    for row, entry in enumerate(open_recording(place).items()):
        tapes = list(recordings(odar, entry, made.routing.samples))
        odar.providers = ProviderPool(made, {name: ReplayProvider(name, tapes) for name in ("fast", "slow")})
        trace = (await odar.aask(entry.query)).trace
        what = (entry.key.id, options)
        assert (what, paths[outcome.path[row]]) == (what, trace.decision.path)
        assert (what, outcome.calls[row]) == (what, trace.spend.calls)
        column, winner = outcome.winner[row], column_of(trace)
        if column != winner:  # the engine cannot tell two samples apart that say the very same
            assert entry.attempts[column].candidate.tokens == entry.attempts[winner].candidate.tokens, what
            assert entry.attempts[column].text == entry.attempts[winner].text, what
        assert (what, outcome.score[row]) == (what, entry.attempts[winner].score)
        wins += column not in (FAST, VERIFY)
    return outcome, wins


@pytest.mark.parametrize("options", CASES)
async def test_replay_does_what_the_engine_does(folder, options):
    place = folder / "recording.jsonl"
    if not place.exists():
        await collect_panel(folder, items=100)
    outcome, wins = await compare(folder, place, options, CASES[options], MODELS)
    if not options.startswith("tau1=0,"):
        assert min(outcome.mix) > 0.02  # all three paths were compared
        assert wins


@pytest.mark.parametrize("options", ["", "stop=none", "rule=majority"])
async def test_replay_does_what_the_engine_does_with_separate_samples(tmp_path, options):
    place = await collect_panel(tmp_path, items=40, seed=1, models=ONE_BY_ONE)
    await compare(tmp_path, place, options, CASES[options], ONE_BY_ONE)


async def test_replay_does_what_the_engine_does_without_calibration(tmp_path):
    place = await collect_panel(tmp_path, items=60, seed=2, silent=0.6, calibration="")
    outcome, _ = await compare(tmp_path, place, "", {"calibration": ""}, MODELS)
    assert min(outcome.mix) > 0.1
