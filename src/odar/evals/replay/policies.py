"""ODAR and its baselines (SPEC 7.2), by name.

Policies are written as `odar`, `odar:tau1=0.2,beta=inf`, `best-of-n:n=7`, `ablations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from odar.errors import InputError, UnknownName
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.simulate import (
    NO_FUSION,
    NO_PATH,
    PolicyOutcome,
    Setting,
    candidates_of,
    fixed_route,
    fusion_of,
    price_simulation,
    route,
    simulate_odar,
    simulate_one_path,
    simulate_paths,
)
from odar.policy.arrays import Bools, Ints
from odar.policy.fusion import FAST, SOLVE, VERIFY
from odar.policy.path import HARD, MEDIUM, SIMPLE
from odar.policy.rules import RULES
from odar.policy.simulation import Simulation

SEEDS = (42, 123, 456)
"""Random seeds of SPEC 7.4."""


def self_consistency(arrays: PanelArrays, setting: Setting, k: int = 5) -> PolicyOutcome:
    """Return the outcome of majority voting over k slow samples."""
    return _fuse_columns(arrays, replace(setting, rule="majority"), _sample_columns(arrays, k))


def best_of_n(arrays: PanelArrays, setting: Setting, n: int = 5) -> PolicyOutcome:
    """Return the outcome of taking the slow sample of lowest free energy among n."""
    argmin = replace(setting, rule="fep", beta=np.inf)
    return _fuse_columns(
        arrays, argmin, _sample_columns(arrays, n), "scored by free energy, without a reward model"
    )


def ensemble(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of majority voting over one fast and two slow answers."""
    return _fuse_columns(arrays, replace(setting, rule="majority"), [FAST, *_sample_columns(arrays, 2)])


def length_adaptive(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of ODAR's mix of paths, assigned by the length of the question."""
    chosen, lengths = route(arrays, setting).path, [len(text) for text in arrays.items.query]
    path = np.empty_like(chosen)
    path[np.argsort(lengths, kind="stable")] = np.sort(chosen)
    return simulate_paths(
        arrays, setting, fixed_route(path), "the longer the question, the longer the path; ODAR's mix of paths"
    )


def random_matched(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of ODAR's mix of paths, assigned at random: the mean over `SEEDS`."""
    chosen = route(arrays, setting).path
    shuffled = [fixed_route(np.random.default_rng(seed).permutation(chosen)) for seed in SEEDS]
    runs = [simulate_paths(arrays, setting, each) for each in shuffled]
    means = {
        name: np.mean([getattr(each, name) for each in runs], axis=0)
        for name in ("score", "calls", "cost", "tokens", "seconds", "best")
    }
    winner = np.full(len(arrays), -1)
    return replace(runs[0], **means, winner=winner, note=f"mean over seeds {', '.join(map(str, SEEDS))}")


def oracle_router(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of the cheapest path with the best answer, known in hindsight; fusion as set."""
    paths = (SIMPLE, MEDIUM, HARD) if arrays.verified else (SIMPLE, HARD)
    scores = np.stack([simulate_one_path(arrays, setting, path).score for path in paths])
    best = np.array(paths)[scores.argmax(axis=0)]  # the first of equals, which is the cheapest
    return simulate_paths(arrays, setting, fixed_route(best), "knows in hindsight which path is right")


def oracle(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of the best recorded answer, known in hindsight: an upper bound."""
    score = arrays.answers.score
    winner = score.argmax(axis=1)
    paid = np.zeros(score.shape, dtype=bool)
    paid[np.arange(len(arrays)), winner] = True
    paid[:, FAST] |= paid[:, VERIFY]
    return _outcome(arrays, paid, np.ones(score.shape, dtype=bool), winner, "the best answer: an upper bound")


def _sample_columns(arrays: PanelArrays, count: int) -> list[int]:
    """Return the columns of the first `count` slow samples."""
    if count < 1:
        raise InputError(f"{count} slow samples per item: at least 1 is needed")
    if count > arrays.samples:
        raise InputError(
            f"{count} slow samples per item are needed, and the recording holds {arrays.samples} slow samples; "
            f"odar eval collect … --samples {count} records more"
        )
    return list(range(SOLVE, SOLVE + count))


def _fuse_columns(arrays: PanelArrays, setting: Setting, columns: list[int], note: str = "") -> PolicyOutcome:
    """Return the outcome of fusing the answers of fixed columns."""
    mask = arrays.columns(*columns)
    winner = np.full(len(arrays), columns[0])
    if len(columns) > 1:
        winner = fusion_of(setting).choose_rows(candidates_of(arrays, setting), mask)
    return _outcome(arrays, mask, mask, winner, note)


def _outcome(arrays: PanelArrays, paid: Bools, seen: Bools, winner: Ints, note: str) -> PolicyOutcome:
    path, once = np.full(len(arrays), NO_PATH), np.ones(len(arrays), dtype=np.int64)
    run = Simulation(path, paid, seen, np.zeros_like(paid), winner, once, paid.sum(axis=1))
    return price_simulation(arrays, run, np.zeros(len(arrays), dtype=bool), note)


_COT = "the slow agent's solving prompt is a chain-of-thought prompt; one by the fast model is not in a panel"
POLICIES: dict[str, tuple[Callable[..., PolicyOutcome], str]] = {
    "single-fast": (lambda arrays, setting: _fuse_columns(arrays, setting, [FAST]), ""),
    "single-slow": (lambda arrays, setting: _fuse_columns(arrays, setting, [SOLVE]), ""),
    "cot": (lambda arrays, setting: _fuse_columns(arrays, setting, [SOLVE], _COT), ""),
    "length-adaptive": (length_adaptive, ""),
    "self-consistency": (self_consistency, "k"),
    "best-of-n": (best_of_n, "n"),
    "ensemble": (ensemble, ""),
    "always-medium": (lambda arrays, setting: simulate_one_path(arrays, setting, MEDIUM), ""),
    "always-hard": (lambda arrays, setting: simulate_one_path(arrays, setting, HARD), ""),
    "random-matched": (random_matched, ""),
    "oracle-router": (oracle_router, ""),
    "oracle": (oracle, ""),
}
"""The function of each baseline, and the name of its option, a whole number."""

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
    """Return lists of policies by name, as far as the recording supports them."""
    usual = min(5, arrays.samples)
    sizes = [n for n in SIZES if n <= arrays.samples]
    setting = Setting.from_header(arrays.header)
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
        "sweep-n": [f"{name}={n}" for name in ("odar:n", "self-consistency:k", "best-of-n:n") for n in sizes],
        "sweep-lambda": [f"odar:lambda={x:g},mode=prior,statistics=panel" for x in LAMBDAS],
        "sweep-beta": [f"odar:beta={x}" for x in BETAS],
        "sweep-tau": [f"odar:tau1={a:g},tau2={b:g}" for a, b in TAUS],
        "curve": [f"odar:tau1={a:g},tau2={b:g},clearly_hard=2" for a, b in CURVE],
    }  # fmt: skip


def expand_suites(arrays: PanelArrays, specs: Sequence[str]) -> list[str]:
    """Return the specs with suites replaced by their policies; each policy once."""
    known = suites(arrays)
    known["all"] = ["odar", *(spec for suite in known.values() for spec in suite)]
    return list(dict.fromkeys(each for spec in specs for each in known.get(spec, [spec])))


def run_policy(arrays: PanelArrays, spec: str) -> PolicyOutcome:
    """Return the outcome of one policy; InputError if the recording does not support it or an option is invalid."""
    name, _, rest = spec.partition(":")
    options = _parse_options(spec, rest)
    setting = Setting.from_header(arrays.header)
    if name == "odar":
        return replace(simulate_odar(arrays, setting.with_options(options)), name=spec)
    if name not in POLICIES:
        raise UnknownName("policy", name, {"odar", *POLICIES, *suites(arrays), "all"})
    policy, known = POLICIES[name]
    if strange := set(options) - {known}:
        raise UnknownName(f"option of {name}", strange.pop(), [known] if known else [])
    try:
        given = {option: int(value) for option, value in options.items()}
    except ValueError:
        raise InputError(f"{spec}: {known} = {options[known]!r} is not a number") from None
    return replace(policy(arrays, setting, **given), name=spec)


def run_policies(arrays: PanelArrays, specs: Sequence[str]) -> Iterator[tuple[str, PolicyOutcome | InputError]]:
    """Iterate over the policies of some specs; an InputError says why the recording does not support one."""
    for spec in expand_suites(arrays, specs):
        try:
            yield spec, run_policy(arrays, spec)
        except InputError as error:
            yield spec, error


def _parse_options(spec: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise InputError(f"{spec}: {bad[0]!r} is not option=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
