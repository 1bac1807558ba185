"""ODAR and everything it is compared with (SPEC 7.2), by name.

Users write `odar`, `odar:tau1=0.2,beta=inf`, `best-of-n:n=7`, `ablations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from odar.difficulty.features import GROUPS
from odar.errors import InputError, UnknownName
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.simulate import (
    NO_FUSION,
    NO_PATH,
    PolicyOutcome,
    Setting,
    always,
    choose,
    odar,
    price,
    route,
    simulate_paths,
)
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.path import HARD, MEDIUM, SIMPLE, Route
from odar.policy.rules import RULES, Array, Bools, Ints
from odar.policy.simulation import Simulation

SEEDS = (42, 123, 456)
"""SPEC 7.4's."""


def single_fast(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """The fast agent alone."""
    return _among(arrays, setting, "single-fast", [FAST])


def single_slow(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """The slow agent alone: its first sample."""
    return _among(arrays, setting, "single-slow", [SOLVE])


def cot(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Chain of thought, by the slow agent, whose solving prompt asks for one."""
    note = "the slow agent's solving prompt is a chain-of-thought prompt; one by the fast model is not in a panel"
    return replace(single_slow(arrays, setting), name="cot", note=note)


def self_consistency(arrays: PanelArrays, setting: Setting, k: int = 5) -> PolicyOutcome:
    """Plain voting over k slow samples."""
    return _samples(arrays, replace(setting, rule="majority"), f"self-consistency-{k}", k)


def best_of_n(arrays: PanelArrays, setting: Setting, n: int = 5) -> PolicyOutcome:
    """The slow sample of lowest free energy among n; no reward model is at hand."""
    note = "scored by free energy: no reward model is at hand"
    return _samples(arrays, replace(setting, rule="fep", beta=np.inf), f"best-of-{n}", n, note)


def ensemble(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """One fast and two slow answers, plain voting."""
    if arrays.samples < 2:
        raise InputError("the simple ensemble needs two slow samples an item; collect with --samples 2 or more")
    return _among(arrays, replace(setting, rule="majority"), "ensemble", [FAST, SOLVE, SOLVE + 1])


def always_medium(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Every item verified: the paper's "rules only"."""
    return always(arrays, setting, MEDIUM, "always-medium")


def always_hard(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Every item sampled: no difficulty estimator."""
    return always(arrays, setting, HARD, "always-hard")


def length_adaptive(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """ODAR's mix of paths, given out by the length of the question."""
    lengths = np.array([len(text) for text in arrays.items.query], dtype=np.float64)
    note = "the longer the question, the longer the path; ODAR's mix of paths"
    return simulate_paths(arrays, setting, _ranked(route(arrays, setting), lengths), "length-adaptive", note)


def random_matched(arrays: PanelArrays, setting: Setting, seed: int | None = None) -> PolicyOutcome:
    """ODAR's mix of paths, given out at random: by one seed, or the mean over SPEC 7.4's three."""
    chosen = route(arrays, setting)
    seeds = SEEDS if seed is None else (seed,)
    runs = []
    for each in seeds:
        shuffled = np.random.default_rng(each).permutation(chosen.path)
        aside = Route(shuffled, chosen.difficulty, np.zeros(len(arrays), dtype=bool))
        runs.append(simulate_paths(arrays, setting, aside, "random-matched"))
    if seed is not None:
        return runs[0]
    means = {
        name: np.mean([getattr(run, name) for run in runs], axis=0)
        for name in ("score", "calls", "cost", "tokens", "seconds", "best", "worst")
    }
    winner = np.full(len(arrays), -1)
    return replace(runs[0], **means, winner=winner, note=f"mean over seeds {', '.join(map(str, seeds))}")


def oracle_router(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """The cheapest of the three paths that answers best, known in hindsight; fusion as set."""
    paths = (SIMPLE, MEDIUM, HARD) if arrays.verified else (SIMPLE, HARD)
    runs = [always(arrays, setting, path, "oracle-router") for path in paths]
    scores = np.stack([run.score for run in runs])
    best = np.array(paths)[scores.argmax(axis=0)]  # the first of equals, which is the cheapest
    aside = Route(best, np.full(len(arrays), np.nan), np.zeros(len(arrays), dtype=bool))
    return simulate_paths(arrays, setting, aside, "oracle-router", "knows in hindsight which path is right")


def oracle(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """The best answer in the panel, known in hindsight: no policy can do better."""
    score = arrays.answers.score
    winner = score.argmax(axis=1)
    paid = np.zeros(score.shape, dtype=bool)
    paid[np.arange(len(arrays)), winner] = True
    paid[:, FAST] |= paid[:, VERIFY]
    everything = np.ones(score.shape, dtype=bool)
    return _settled(arrays, "oracle", paid, everything, winner, "the best answer in the panel: an upper bound")


def _samples(arrays: PanelArrays, setting: Setting, name: str, count: int, note: str = "") -> PolicyOutcome:
    if not 1 <= count <= arrays.samples:
        raise InputError(
            f"{name}: the recording holds {arrays.samples} slow samples an item; "
            f"odar eval collect … --samples {count} records more"
        )
    return _among(arrays, setting, name, list(range(SOLVE, SOLVE + count)), note)


def _among(arrays: PanelArrays, setting: Setting, name: str, columns: list[int], note: str = "") -> PolicyOutcome:
    """A fixed set of answers, fused."""
    mask = arrays.columns(*columns)
    winner = np.full(len(arrays), columns[0]) if len(columns) == 1 else choose(arrays, setting, mask)
    return _settled(arrays, name, mask, mask, winner, note)


def _settled(arrays: PanelArrays, name: str, paid: Bools, seen: Bools, winner: Ints, note: str) -> PolicyOutcome:
    path, once = np.full(len(arrays), NO_PATH), np.ones(len(arrays), dtype=np.int64)
    run = Simulation(path, paid, seen, np.zeros_like(paid), winner, once, paid.sum(axis=1))
    return price(arrays, name, run, note)


def _ranked(chosen: Route, score: Array) -> Route:
    """The same mix of paths, the higher scores on the longer paths."""
    path = np.empty_like(chosen.path)
    path[np.argsort(score, kind="stable")] = np.sort(chosen.path)
    return Route(path, score, np.zeros(len(path), dtype=bool))


Policy = Callable[..., PolicyOutcome]

POLICIES: dict[str, tuple[Policy, dict[str, type]]] = {
    "single-fast": (single_fast, {}),
    "single-slow": (single_slow, {}),
    "cot": (cot, {}),
    "length-adaptive": (length_adaptive, {}),
    "self-consistency": (self_consistency, {"k": int}),
    "best-of-n": (best_of_n, {"n": int}),
    "ensemble": (ensemble, {}),
    "always-medium": (always_medium, {}),
    "always-hard": (always_hard, {}),
    "random-matched": (random_matched, {"seed": int}),
    "oracle-router": (oracle_router, {}),
    "oracle": (oracle, {}),
}
"""What ODAR is compared with, and the options of each."""

SIZES = (1, 3, 5, 7, 9)
LAMBDAS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
BETAS = ("0", "0.1", "0.25", "0.5", "1", "2", "inf")
TAUS = tuple((a, b) for a in (0.2, 0.3, 0.4) for b in (0.6, 0.7, 0.8))
"""The sweeps of SPEC 7.3; the grid is SPEC 2.7's."""
CURVE = ((0, 0), (0, 0.2), (0, 0.4), (0.1, 0.5), (0.2, 0.6), (0.3, 0.7), (0.4, 0.8), (0.5, 0.9), (0.7, 1), (2, 2))
"""τ1 and τ2 from Hard for all to Simple for all: ODAR's curve in the Pareto plot."""


POSTERIOR = "odar:mode=posterior,statistics=panel"
"""Posterior routing even where the calibration in use cannot tell how long answers usually are (SPEC 5.11)."""


def suites(arrays: PanelArrays) -> dict[str, list[str]]:
    """Lists of policies under one name, as far as this panel can show them."""
    usual = min(5, arrays.samples)
    sizes = [n for n in SIZES if n <= arrays.samples]
    setting = Setting.of(arrays.header)
    other = "prior" if setting.mode == "posterior" else "posterior"
    stop = "0.8" if setting.stop is None else "none"
    rest = {"self-consistency": f"self-consistency:k={usual}", "best-of-n": f"best-of-n:n={usual}"}
    named = [rest.get(name, name) for name in POLICIES if name != "ensemble" or arrays.samples > 1]
    return {
        "baselines": [name for name in named if arrays.verified or name != "always-medium"],
        "fusion-rules": [f"odar:rule={rule}" for rule in sorted(RULES.names())],
        "ablations": [
            "always-hard", "always-medium", "single-fast", f"odar:rule={NO_FUSION}", "odar:dispatch=off",
            "odar:statistics=panel", "odar:statistics=none", f"odar:mode={other}", POSTERIOR, f"odar:stop={stop}",
            "odar:estimator=length",
        ],
        "features": [f"odar:without={group}" for group in ("none", *GROUPS)],
        "sweep-n": [f"{name}={n}" for name in ("odar:n", "self-consistency:k", "best-of-n:n") for n in sizes],
        "sweep-lambda": [f"odar:lambda={x:g},mode=prior,statistics=panel" for x in LAMBDAS],
        "sweep-beta": [f"odar:beta={x}" for x in BETAS],
        "sweep-tau": [f"odar:tau1={a:g},tau2={b:g}" for a, b in TAUS],
        "curve": [f"odar:tau1={a:g},tau2={b:g},clearly_hard=2" for a, b in CURVE],
    }  # fmt: skip


def expand(arrays: PanelArrays, specs: Sequence[str]) -> list[str]:
    """Suites replaced by what they stand for; each policy once."""
    known = suites(arrays)
    known["all"] = ["odar", *(spec for suite in known.values() for spec in suite)]
    return list(dict.fromkeys(each for spec in specs for each in known.get(spec, [spec])))


def run(arrays: PanelArrays, spec: str) -> PolicyOutcome:
    """One policy over a arrays.

    Raises:
        UnknownName: there is no such policy or option.
        InputError: an option cannot be read, or the panel cannot show this.
    """
    name, _, rest = spec.partition(":")
    options = _options(spec, rest)
    setting = Setting.of(arrays.header)
    if name == "odar":
        return odar(arrays, setting.changed(options), spec)
    if name not in POLICIES:
        raise UnknownName("policy", name, {"odar", *POLICIES, *suites(arrays), "all"})
    policy, kinds = POLICIES[name]
    given: dict[str, Any] = {}
    for option, value in options.items():
        if option not in kinds:
            raise UnknownName(f"option of {name}", option, kinds)
        try:
            given[option] = kinds[option](value)
        except ValueError:
            raise InputError(f"{spec}: {option} = {value!r} is not a number") from None
    outcome = policy(arrays, setting, **given)
    return replace(outcome, name=spec)


def run_all(arrays: PanelArrays, specs: Sequence[str]) -> Iterator[tuple[str, PolicyOutcome | InputError]]:
    """Every policy of some specs, one at a time; what this panel cannot show comes as the reason why."""
    for spec in expand(arrays, specs):
        try:
            yield spec, run(arrays, spec)
        except InputError as error:
            yield spec, error


def _options(spec: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise InputError(f"{spec}: {bad[0]!r} is not option=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
