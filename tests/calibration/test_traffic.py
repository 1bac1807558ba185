from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.calibration.traffic import (
    MIN_ENERGIES,
    _free_energy,
    fast_is_wrong,
    fit_traffic,
    read_traffic,
    thresholds_with_same_shares,
)
from odar.difficulty.estimator import shipped_estimator
from odar.difficulty.features import FEATURES
from odar.policy.alignment import Statistics
from odar.policy.path import Route, Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import AnswerKind
from odar.types import Step
from support.population import current_parts, evidence, setup


def document(winner, *answers, content=True, steps=("answer", "solve", "solve")):
    candidates = [
        {"step": step, **({"answer": answer} if content else {})}
        for step, answer in zip(steps, answers, strict=False)
    ]
    return {"candidates": candidates, "verdict": {"winner": winner}, "content": content}


@pytest.mark.parametrize(
    ("trace", "correct", "wrong"),
    [
        (document(0, "4", "5"), True, False),  # it was chosen
        (document(0, "4", "5"), False, True),
        (document(1, "4", "4.0"), True, False),  # it is the same as the chosen one
        (document(1, "4", "4.0"), False, True),
        (document(1, "4", "5"), True, True),  # another one is right
        (document(1, "4", "5"), False, None),  # both may be wrong
        (document(0, "4", "5", content=False), False, True),
        (document(1, "4", "4", content=False), True, None),  # nobody knows what they said
        (document(0, "4", steps=("solve",)), True, None),  # the fast agent was down
    ],
)
def test_feedback_on_the_chosen_answer_labels_the_fast_one(trace, correct, wrong):
    assert fast_is_wrong(trace, correct) is wrong


@given(seed=st.integers(0, 1000), tau1=st.floats(0, 1), tau2=st.floats(0, 1))
def test_new_thresholds_keep_the_share_of_each_path(seed, tau1, tau2):
    fast = evidence(size=30, seed=seed).fast
    before = setup(posterior=None, thresholds=Thresholds(min(tau1, tau2), max(tau1, tau2)))
    moved = replace(fast, prior=np.round(fast.prior[::-1] ** 3, 5))

    class After:
        def route(self, _):
            return Route(np.zeros(30), moved.prior, np.zeros(30))

    found = thresholds_with_same_shares(before, After(), fast)
    counts = [
        np.bincount(t.paths(d), minlength=3) for t, d in ((before.thresholds, fast.prior), (found, moved.prior))
    ]
    ties = 30 - len(np.unique(moved.prior))
    assert abs(counts[0] - counts[1]).max() <= ties
    assert found.tau1 <= found.tau2


def test_unchanged_difficulties_keep_the_thresholds():
    fast = evidence(size=30).fast
    now = setup(posterior=None)
    assert thresholds_with_same_shares(now, now, fast) == now.thresholds


# ── what is read of traces, written down by hand ────────────────────────────────────────────────────────────

SOURCES = {Step.ANSWER: ("quick", "a1"), Step.VERIFY: ("deep", "v1"), Step.SOLVE: ("deep", "s1")}
PROMPTS = {"answer": "a1", "verify": "v1", "solve": "s1"}


def candidate(step="answer", model="quick", energy=(0.3, 0.5), tokens=10, logprob=-0.1, **more):
    known = None if energy is None else {"energy": energy[0], "varentropy": energy[1], "scorer": ""}
    return {
        "step": step, "model": model, "energy": known, "logprobs": [logprob] * (tokens + 1), "control": [tokens],
        "answer": "4", "text_characters": 4 * tokens, **more,
    }  # fmt: skip


def trace(*candidates, feedback=None, winner=0, difficulty=0.4, features=True, prompts=PROMPTS, verdict=True):
    shares = [(name, float(i), 0.0) for i, name in enumerate(FEATURES)] if features else [("length", 1.0, 0.2)]
    return {
        "document": {
            "candidates": list(candidates),
            "prompts": prompts,
            "verdict": {"winner": winner} if verdict else None,
            "content": True,
            "decision": {"estimate": {"difficulty": difficulty, "contributions": shares}},
        },
        "feedback": None if feedback is None else {"correct": feedback},
    }


def read(*rows, estimator=None):
    return read_traffic(rows, SOURCES, estimator, varentropy_weight=0.1)


def test_a_trace_gives_energies_and_a_label_of_the_fast_answer():
    found = read(
        trace(candidate(), feedback=True),
        trace(candidate(energy=(0.5, 1.0), tokens=20, stated=False), feedback=False, difficulty=0.6),
        trace(candidate(), candidate("verify", "deep", (0.1, 0.0)), winner=1),
    )
    assert (found.traces, found.marked, len(found.fast)) == (3, 2, 2)
    assert found.energies[Step.ANSWER].tolist() == pytest.approx([0.35, 0.6, 0.35])  # E + λ·V
    assert found.energies[Step.VERIFY].tolist() == pytest.approx([0.1])
    assert found.signals.length.tolist() == [40, 80, 40]
    assert found.signals.mean_logprob == pytest.approx([-0.1] * 3)
    assert found.fast.prior.tolist() == [0.4, 0.6]
    assert found.fast.wrong.tolist() == [False, True]
    assert found.fast.signals.stated.tolist() == [True, False]
    assert np.isnan(found.fast.effort).all()


def test_recorded_signals_are_taken_from_the_trace():
    look = {
        "kind": "direct",
        "stated": True,
        "finished": True,
        "signals": [["answer_logprob", -0.7, 0.2], ["agreement", 1.0, None]],
    }
    row = trace(candidate(), feedback=True)
    row["document"]["decision"]["look"] = look
    found = read(row).signals
    assert (found.kind[0], found.answer_logprob[0], found.agreement[0]) == ("direct", -0.7, 1.0)
    assert np.isnan(found.mean_logprob[0])


@pytest.mark.parametrize(
    "row",
    [
        trace(candidate(model="another"), feedback=True),
        trace(candidate(), feedback=True, prompts={**PROMPTS, "answer": "older"}),
        trace(candidate(), feedback=True, verdict=False),
        trace(feedback=True),
    ],
    ids=["another model", "another prompt", "no verdict", "no candidates"],
)
def test_unusable_traces_are_skipped(row):
    found = read(row)
    assert (found.traces, found.marked, len(found.fast), dict(found.energies)) == (0, 0, 0, {})


def test_unknown_energies_and_signals_are_nan():
    found = read(trace(candidate(energy=None, tokens=0), feedback=True))
    assert np.isnan(found.energies[Step.ANSWER]).all()
    assert np.isnan(found.fast.signals.mean_logprob).all()


def test_a_trace_without_a_label_of_the_fast_answer_is_counted():
    other = candidate("verify", "deep", answer="5")
    found = read(trace(candidate(), other, winner=1, feedback=False), trace(candidate(), features=True))
    assert (found.traces, found.marked, len(found.fast)) == (2, 1, 0)


def test_priors_are_estimated_again_from_recorded_features():
    estimator = shipped_estimator()
    rows = (trace(candidate(), feedback=True), trace(candidate(), feedback=True, features=False))
    found = read(*rows, estimator=estimator)
    assert len(found.fast) == 1  # the other was estimated by another kind, from other features
    expected = estimator.predict(np.arange(len(FEATURES), dtype=float)[None])
    assert found.fast.prior == pytest.approx(expected)
    assert read(*rows).fast.prior.tolist() == [0.4, 0.4]


def many(count, *, gap):
    """Return traces in which every third fast answer is wrong and has an energy higher by `gap`."""
    rng = np.random.default_rng(3)
    rows = []
    for i in range(count):
        wrong = i % 3 == 0
        energy = (float(rng.normal(0.3 + gap * wrong, 0.05)), 0.0)
        tokens = int(rng.integers(8, 20)) + 15 * wrong * (gap > 0)
        rows.append(
            trace(
                candidate(energy=energy, tokens=tokens, logprob=-energy[0]),
                feedback=not wrong,
                difficulty=float(rng.random()),
            )
        )
    return rows


def test_few_energies_keep_the_statistics():
    today = current_parts()
    found = fit_traffic(read(*many(MIN_ENERGIES - 1, gap=0.2)), today)
    assert found.measured == {}
    assert found.setup.statistics == today.setup.statistics


def test_enough_traffic_measures_mu_and_sigma_and_keeps_the_skill():
    before = Statistics(9.0, 9.0, 5, 0.7)
    today = current_parts(statistics=(before, None, None))
    traffic = read(*many(200, gap=0.2))
    found = fit_traffic(traffic, today)
    assert found.measured == {Step.ANSWER: 200}
    fresh = found.setup.statistics[0]
    assert (fresh.mean, fresh.skill) == (pytest.approx(traffic.energies[Step.ANSWER].mean(), abs=0.001), 0.7)
    assert found.setup.statistics[1:] == (None, None)
    assert found.changed
    assert sum(found.before) == pytest.approx(1)
    assert sum(found.after) == pytest.approx(1)


def test_an_informative_energy_improves_the_posterior_and_keeps_the_mix():
    by_prior = PosteriorDifficulty.load().with_weights(AnswerKind.REASONED, {"looks_hard": 1.0, "long": 0.1})
    today = replace(current_parts(posterior=by_prior), posterior=by_prior)
    found = fit_traffic(read(*many(600, gap=0.3)), today)
    assert found.posterior.better
    assert found.after == pytest.approx(found.before, abs=0.02)
    assert found.setup.fusion is today.setup.fusion  # which traffic cannot teach


def test_no_traffic_changes_nothing():
    today = current_parts()
    found = fit_traffic(read(), today)
    assert (found.measured, found.before, found.after) == ({}, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert not found.changed


def test_energies_of_a_surrogate_are_ignored():
    own = {"energy": {"energy": 0.2, "varentropy": 0.1, "scorer": ""}}
    assert _free_energy(own, 0.1) == pytest.approx(0.21)
    assert math.isnan(_free_energy({"energy": {**own["energy"], "scorer": "judge"}}, 0.1))
    assert math.isnan(_free_energy({"energy": None}, 0.1))


@pytest.mark.parametrize("energy", [(None, 0.1), (0.1, None)])
def test_an_infinite_recorded_energy_is_unknown(energy):
    """JSON has no infinity: the store writes null."""
    found = read(trace(candidate(energy=energy), feedback=True))
    assert np.isnan(found.energies[Step.ANSWER]).all()
    assert len(found.fast) == 1
