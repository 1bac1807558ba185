"""Everything ODAR is compared with (SPEC 7.2), each as what a panel can honestly show of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odar.errors import InputError
from odar.evals.replay.outcome import NO_PATH, Outcome, settle
from odar.evals.replay.routing import route
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import Tape
from odar.evals.replay.walk import always, choose, walk
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.path import HARD, MEDIUM, SIMPLE, Route
from odar.policy.rules import Array, Bools, Ints
from odar.policy.simulation import Simulation

SEEDS = (42, 123, 456)
"""SPEC 7.4's."""


def single_fast(tape: Tape, setting: Setting) -> Outcome:
    """The fast agent alone."""
    return _among(tape, setting, "single-fast", [FAST])


def single_slow(tape: Tape, setting: Setting) -> Outcome:
    """The slow agent alone: its first sample."""
    return _among(tape, setting, "single-slow", [SOLVE])


def cot(tape: Tape, setting: Setting) -> Outcome:
    """Chain of thought, by the slow agent, whose solving prompt asks for one."""
    note = "the slow agent's solving prompt is a chain-of-thought prompt; one by the fast model is not in a panel"
    return replace(single_slow(tape, setting), name="cot", note=note)


def self_consistency(tape: Tape, setting: Setting, k: int = 5) -> Outcome:
    """Plain voting over k slow samples."""
    return _samples(tape, replace(setting, rule="majority"), f"self-consistency-{k}", k)


def best_of_n(tape: Tape, setting: Setting, n: int = 5) -> Outcome:
    """The slow sample of lowest free energy among n; no reward model is at hand."""
    note = "scored by free energy: no reward model is at hand"
    return _samples(tape, replace(setting, rule="fep", beta=np.inf), f"best-of-{n}", n, note)


def ensemble(tape: Tape, setting: Setting) -> Outcome:
    """One fast and two slow answers, plain voting."""
    if tape.samples < 2:
        raise InputError("the simple ensemble needs two slow samples an item; collect with --samples 2 or more")
    return _among(tape, replace(setting, rule="majority"), "ensemble", [FAST, SOLVE, SOLVE + 1])


def always_medium(tape: Tape, setting: Setting) -> Outcome:
    """Every item verified: the paper's "rules only"."""
    return always(tape, setting, MEDIUM, "always-medium")


def always_hard(tape: Tape, setting: Setting) -> Outcome:
    """Every item sampled: no difficulty estimator."""
    return always(tape, setting, HARD, "always-hard")


def length_adaptive(tape: Tape, setting: Setting) -> Outcome:
    """ODAR's mix of paths, given out by the length of the question."""
    lengths = np.array([len(text) for text in tape.items.query], dtype=np.float64)
    note = "the longer the question, the longer the path; ODAR's mix of paths"
    return walk(tape, setting, _ranked(route(tape, setting), lengths), "length-adaptive", note)


def random_matched(tape: Tape, setting: Setting, seed: int | None = None) -> Outcome:
    """ODAR's mix of paths, given out at random: by one seed, or the mean over SPEC 7.4's three."""
    chosen = route(tape, setting)
    seeds = SEEDS if seed is None else (seed,)
    runs = []
    for each in seeds:
        shuffled = np.random.default_rng(each).permutation(chosen.path)
        aside = Route(shuffled, chosen.difficulty, np.zeros(len(tape), dtype=bool))
        runs.append(walk(tape, setting, aside, "random-matched"))
    if seed is not None:
        return runs[0]
    means = {
        name: np.mean([getattr(run, name) for run in runs], axis=0)
        for name in ("score", "calls", "cost", "tokens", "seconds", "best", "worst")
    }
    winner = np.full(len(tape), -1)
    return replace(runs[0], **means, winner=winner, note=f"mean over seeds {', '.join(map(str, seeds))}")


def oracle_router(tape: Tape, setting: Setting) -> Outcome:
    """The cheapest of the three paths that answers best, known in hindsight; fusion as set."""
    runs = [always(tape, setting, path, "oracle-router") for path in (SIMPLE, MEDIUM, HARD)]
    scores = np.stack([run.score for run in runs])
    best = scores.argmax(axis=0)  # the first of equals, which is the cheapest
    aside = Route(best, np.full(len(tape), np.nan), np.zeros(len(tape), dtype=bool))
    return walk(tape, setting, aside, "oracle-router", "knows in hindsight which path is right")


def oracle(tape: Tape, setting: Setting) -> Outcome:
    """The best answer in the panel, known in hindsight: no policy can do better."""
    score = tape.answers.score
    winner = score.argmax(axis=1)
    paid = np.zeros(score.shape, dtype=bool)
    paid[np.arange(len(tape)), winner] = True
    paid[:, FAST] |= paid[:, VERIFY]
    everything = np.ones(score.shape, dtype=bool)
    return _settled(tape, "oracle", paid, everything, winner, "the best answer in the panel: an upper bound")


def _samples(tape: Tape, setting: Setting, name: str, count: int, note: str = "") -> Outcome:
    if not 1 <= count <= tape.samples:
        raise InputError(f"{name}: the panel holds {tape.samples} slow samples an item; collect with --samples")
    return _among(tape, setting, name, list(range(SOLVE, SOLVE + count)), note)


def _among(tape: Tape, setting: Setting, name: str, columns: list[int], note: str = "") -> Outcome:
    """A fixed set of answers, fused."""
    mask = tape.columns(*columns)
    winner = np.full(len(tape), columns[0]) if len(columns) == 1 else choose(tape, setting, mask)
    return _settled(tape, name, mask, mask, winner, note)


def _settled(tape: Tape, name: str, paid: Bools, seen: Bools, winner: Ints, note: str) -> Outcome:
    path, once = np.full(len(tape), NO_PATH), np.ones(len(tape), dtype=np.int64)
    run = Simulation(path, paid, seen, np.zeros_like(paid), winner, once, paid.sum(axis=1))
    return settle(tape, name, run, note)


def _ranked(chosen: Route, score: Array) -> Route:
    """The same mix of paths, the higher scores on the longer paths."""
    path = np.empty_like(chosen.path)
    path[np.argsort(score, kind="stable")] = np.sort(chosen.path)
    return Route(path, score, np.zeros(len(path), dtype=bool))
