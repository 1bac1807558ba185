"""Policies by name, as users write them: `odar`, `odar:tau1=0.2,beta=inf`, `best-of-n:n=7`, `ablations`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from odar.difficulty.features import GROUPS
from odar.errors import InputError, UnknownName
from odar.evals.replay import baselines
from odar.evals.replay.outcome import Outcome
from odar.evals.replay.setting import NO_FUSION, Setting
from odar.evals.replay.tape import Tape
from odar.evals.replay.walk import odar
from odar.policy.rules import RULES

Policy = Callable[..., Outcome]

POLICIES: dict[str, tuple[Policy, dict[str, type]]] = {
    "single-fast": (baselines.single_fast, {}),
    "single-slow": (baselines.single_slow, {}),
    "cot": (baselines.cot, {}),
    "length-adaptive": (baselines.length_adaptive, {}),
    "self-consistency": (baselines.self_consistency, {"k": int}),
    "best-of-n": (baselines.best_of_n, {"n": int}),
    "ensemble": (baselines.ensemble, {}),
    "always-medium": (baselines.always_medium, {}),
    "always-hard": (baselines.always_hard, {}),
    "random-matched": (baselines.random_matched, {"seed": int}),
    "oracle-router": (baselines.oracle_router, {}),
    "oracle": (baselines.oracle, {}),
}
"""What ODAR is compared with, and the options of each."""

SIZES = (1, 3, 5, 7, 9)
LAMBDAS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
BETAS = ("0", "0.1", "0.25", "0.5", "1", "2", "inf")
TAUS = tuple((a, b) for a in (0.2, 0.3, 0.4) for b in (0.6, 0.7, 0.8))
"""The sweeps of SPEC 7.3; the grid is SPEC 2.7's."""


POSTERIOR = "odar:mode=posterior,statistics=panel"
"""Posterior routing even where the calibration in use cannot tell how long answers usually are (SPEC 5.11)."""


def suites(tape: Tape) -> dict[str, list[str]]:
    """Lists of policies under one name, as far as this panel can show them."""
    usual = min(5, tape.samples)
    sizes = [n for n in SIZES if n <= tape.samples]
    setting = Setting.of(tape.header)
    other = "prior" if setting.mode == "posterior" else "posterior"
    stop = "0.8" if setting.stop is None else "none"
    rest = {"self-consistency": f"self-consistency:k={usual}", "best-of-n": f"best-of-n:n={usual}"}
    named = [rest.get(name, name) for name in POLICIES if name != "ensemble" or tape.samples > 1]
    return {
        "baselines": named,
        "fusion-rules": [f"odar:rule={rule}" for rule in sorted(RULES.names())],
        "ablations": [
            "always-hard", "always-medium", "single-fast", f"odar:rule={NO_FUSION}", "odar:dispatch=off",
            f"odar:mode={other}", POSTERIOR, f"odar:stop={stop}", "odar:estimator=length",
            *(f"odar:without={group}" for group in GROUPS),
        ],
        "sweep-n": [f"{name}={n}" for name in ("odar:n", "self-consistency:k", "best-of-n:n") for n in sizes],
        "sweep-lambda": [f"odar:lambda={x:g},mode=prior,statistics=panel" for x in LAMBDAS],
        "sweep-beta": [f"odar:beta={x}" for x in BETAS],
        "sweep-tau": [f"odar:tau1={a:g},tau2={b:g}" for a, b in TAUS],
    }  # fmt: skip


def expand(tape: Tape, specs: Sequence[str]) -> list[str]:
    """Suites replaced by what they stand for; each policy once."""
    known = suites(tape)
    known["all"] = ["odar", *(spec for suite in known.values() for spec in suite)]
    return list(dict.fromkeys(each for spec in specs for each in known.get(spec, [spec])))


def run(tape: Tape, spec: str) -> Outcome:
    """One policy over a tape.

    Raises:
        UnknownName: there is no such policy or option.
        InputError: an option cannot be read, or the panel cannot show this.
    """
    name, _, rest = spec.partition(":")
    options = _options(spec, rest)
    setting = Setting.of(tape.header)
    if name == "odar":
        return odar(tape, setting.changed(options), spec)
    if name not in POLICIES:
        raise UnknownName("policy", name, {"odar", *POLICIES, *suites(tape), "all"})
    policy, kinds = POLICIES[name]
    given: dict[str, Any] = {}
    for option, value in options.items():
        if option not in kinds:
            raise UnknownName(f"option of {name}", option, kinds)
        try:
            given[option] = kinds[option](value)
        except ValueError:
            raise InputError(f"{spec}: {option} = {value!r} is not a number") from None
    outcome = policy(tape, setting, **given)
    return replace(outcome, name=spec)


def run_all(tape: Tape, specs: Sequence[str]) -> Iterator[tuple[str, Outcome | InputError]]:
    """Every policy of some specs, one at a time; what this panel cannot show comes as the reason why."""
    for spec in expand(tape, specs):
        try:
            yield spec, run(tape, spec)
        except InputError as error:
            yield spec, error


def _options(spec: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise InputError(f"{spec}: {bad[0]!r} is not option=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
