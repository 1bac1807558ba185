"""ODAR, the paper's policy and the baselines (SPEC 7.2) by name, each a walk over the table of a recording.

Policies are written as `odar` (of the settings), `cascade:dial=economy`, `paper:tau1=0.2`, `self-consistency:k=5`,
or as the stages of a fixed choice: `slow*2`, `fast,slow:verify`. Some names are lists: `fixed`, `ablations`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from odar.calibration_file import Setting
from odar.config import with_values
from odar.difficulty.base import ESTIMATORS
from odar.difficulty.estimator import LearnedEstimator
from odar.errors import InputError, SettingsError, UnknownName
from odar.lab.replay.outcomes import Outcomes, best_mixture, mean_outcomes, pick_outcomes
from odar.lab.replay.states import stacked_agent
from odar.lab.replay.table import ReplayTable
from odar.policy.arrays import Array, Ints
from odar.policy.base import FixedPolicy
from odar.policy.fusion_rules import RULES
from odar.policy.paper import PaperPolicy
from odar.settings import Settings
from odar.types import CHEAP_AGENTS, FAST, SLOW, Query, Route, Stage, State, Step, Verdict

SEEDS = (42, 123, 456)
"""Random seeds of SPEC 7.4."""
OPTIONS = {
    "policy": "policy", "dial": "routing.dial", "stages": "routing.stages", "tau1": "routing.tau1",
    "tau2": "routing.tau2", "n": "routing.samples", "estimator": "routing.estimator", "rule": "fusion.rule",
    "beta": "fusion.beta", "lambda": "fusion.varentropy_weight", "similarity": "fusion.similarity",
}  # fmt: skip
"""Options of `odar`, `cascade` and `paper`, and the settings behind them; also `statistics` and `dispatch`."""
STATISTICS = ("calibration", "recording", "none")
"""Origins of μ, σ and quantiles: the calibration in use, the recording itself, or none."""
NO_FUSION = "none"
"""The `rule` that takes the first answer of the slow agent, without fusion."""
SIZES = (1, 3, 5, 7, 9)
LAMBDAS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
BETAS = ("0", "0.1", "0.25", "0.5", "1", "2", "inf")
THRESHOLDS = tuple((tau1, tau2) for tau1 in (0.2, 0.3, 0.4) for tau2 in (0.6, 0.7, 0.8))
"""The sweeps of SPEC 7.3: sizes n, λ, β, and τ1 and τ2 on the grid of SPEC 2.7."""
CURVE_DIALS = ("50", "economy", "16", "balanced", "6", "quality", "1")
"""Points of the cascade's curve, from cheap to expensive."""


# --- a policy by its name ----------------------------------------------------------------------------------------


def run_policy(table: ReplayTable, spec: str) -> Outcomes:
    """The outcome of a policy, which the table keeps.

    Raises:
        InputError, SettingsError: the recording does not support it, or an option is invalid.
        UnknownName: there is no such policy, option or agent.
    """
    if spec not in table.outcomes:
        table.outcomes[spec] = replace(_run_policy(table, spec), name=spec)
    return table.outcomes[spec]


def run_policies(table: ReplayTable, specs: Sequence[str]) -> Iterator[tuple[str, Outcomes | Exception]]:
    """Each policy with its outcome, or with the error that says why the recording does not support it.

    A name of `suites` stands for its policies; each policy comes once.
    """
    known = suites(table)
    for spec in dict.fromkeys(each for given in specs for each in known.get(given, [given])):
        try:
            yield spec, run_policy(table, spec)
        except (InputError, SettingsError) as error:
            yield spec, error


def _run_policy(table: ReplayTable, spec: str) -> Outcomes:
    name, _, rest = spec.partition(":")
    if name in ("odar", "cascade", "paper"):
        options = _parse_options(spec, rest)
        return run_paper(table, options) if name == "paper" else run_odar(table, options, name)
    if name in BASELINES and not rest:
        return BASELINES[name](table)
    if name in COUNTED:
        option, rule, note = COUNTED[name]
        return run_fused(table, f"{SLOW}*{_parse_count(spec, rest, option)}", rule, note)
    if re.split(r"[*+,]", name)[0] in table.settings.agent_names:
        return run_fixed(table, spec)
    names = {"odar", "cascade", "paper", *BASELINES, *COUNTED, *table.settings.agent_names, *suites(table)}
    raise UnknownName("policy", name, names)


def _parse_options(spec: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise InputError(f"{spec}: {bad[0]!r} is not option=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse_count(spec: str, text: str, option: str) -> int:
    options = _parse_options(spec, text)
    if strange := options.keys() - {option}:
        raise UnknownName(f"option of {spec.partition(':')[0]}", strange.pop(), [option])
    try:
        count = int(options.get(option, "5"))
    except ValueError:
        raise InputError(f"{spec}: {option} = {options[option]!r} is not a number") from None
    if count < 1:
        raise InputError(f"{spec}: at least 1 sample is needed")
    return count


# --- ODAR and the paper ------------------------------------------------------------------------------------------


def run_odar(table: ReplayTable, options: Mapping[str, str], name: str = "odar") -> Outcomes:
    """The policy of the recording's settings; the options change some of them."""
    values = {"policy": "cascade"} if name == "cascade" else {}
    values |= {OPTIONS[key]: value for key, value in options.items() if key in OPTIONS}
    if strange := options.keys() - OPTIONS.keys() - {"statistics", "dispatch"}:
        raise UnknownName(f"option of {name}", strange.pop(), {*OPTIONS, "statistics", "dispatch"})
    no_fusion = values.get("fusion.rule") == NO_FUSION
    if no_fusion:
        del values["fusion.rule"]
    if "fusion.rule" in values:
        _ = RULES[values["fusion.rule"]]
    settings = with_values(table.settings, values, name)
    note = _check_dispatch(table, settings) if options.get("dispatch") == "off" else ""
    if note or {"tau1", "tau2"} & options.keys():  # common thresholds replace those of single experts
        settings = replace(settings, routing=replace(settings.routing, tau1_by_expert={}, tau2_by_expert={}))
    if {"lambda", "estimator"} & options.keys() or options.get("statistics", "calibration") != "calibration":
        table = _measured_again(table, options)
    policy = table.policy_of(settings)
    if isinstance(policy, PaperPolicy):
        policy, note = _supported_paper(table, policy, note)
    verdict = _first_slow_answer if no_fusion else None
    fusion = table.fusion_of(settings)
    dial = settings.dial(options.get("dial"))  # the named one, also if dollars or a target are set
    return replace(table.walk(policy, dial=dial, fusion=fusion, verdict=verdict), note=note)


def run_paper(table: ReplayTable, options: Mapping[str, str]) -> Outcomes:
    """The paper's policy: τ 0.3 and 0.7, 1, 2 or 6 calls, argmin of F̃, no skills; the options change some of it."""
    samples = min(5, table.samples(SLOW))
    chosen = {"policy": "paper", "tau1": "0.3", "tau2": "0.7", "n": str(samples), "beta": "inf", **options}
    return run_odar(table, {"rule": "fep", **chosen}, "paper")


def _first_slow_answer(state: State) -> Verdict:
    slow = [i for i, candidate in enumerate(state.candidates) if candidate.agent not in CHEAP_AGENTS]
    return Verdict(slow[0] if slow else 0, "first", "the first slow answer")


def _check_dispatch(table: ReplayTable, settings: Settings) -> str:
    """A note for readers; InputError if alternative models answered items, or if there is nothing to switch off."""
    defaults = {table.settings.agent(name).model for name in table.settings.agent_names}
    switched = sum(any(each.model not in defaults for each in item.attempts) for item in table.items)
    if switched:
        raise InputError(
            f"dispatch = off cannot be replayed: {switched} items were answered by an alternative model; "
            "odar eval collect … --set fast.alternatives=[] --set slow.alternatives=[] records what the default "
            "models say"
        )
    routing = settings.routing
    if settings.policy != "paper" or not {*routing.tau1_by_expert, *routing.tau2_by_expert}:
        raise InputError(
            "dispatch = off would change nothing: every agent has one model, no expert has thresholds of its own"
        )
    return "without the thresholds of single experts; no item was given to an alternative model"


def _measured_again(table: ReplayTable, options: Mapping[str, str]) -> ReplayTable:
    """The table with another λ, estimator or origin of the statistics."""
    statistics = options.get("statistics", "calibration")
    if statistics not in STATISTICS:
        raise UnknownName("source of statistics", statistics, STATISTICS)
    changed = with_values(table.settings, {OPTIONS[k]: options[k] for k in ("lambda", "estimator") if k in options})
    difficulty = None
    if changed.routing.estimator != table.settings.routing.estimator:
        estimator = ESTIMATORS[changed.routing.estimator]()
        if isinstance(estimator, LearnedEstimator):
            difficulty = estimator.predict(np.array(table.column("features")))
        else:
            difficulty = np.array([estimator.estimate(Query(text)).difficulty for text in table.column("query")])
    table = table.replaced(settings=changed, difficulty=difficulty)
    if statistics == "none":
        return table.replaced(calibration=replace(table.calibration, statistics={}))
    return table.replaced(calibration=table.own_calibration()) if statistics == "recording" else table


def _supported_paper(table: ReplayTable, policy: PaperPolicy, note: str) -> tuple[PaperPolicy, str]:
    """The policy without Medium questions, which take the Hard path, if no verification was recorded."""
    if table.samples(SLOW, Step.VERIFY):
        return policy, note
    medium = "no verification was recorded: Medium questions take the Hard path"
    experts = {name: (tau1, tau1) for name, (tau1, _) in policy.by_expert.items()}
    return replace(policy, tau2=policy.tau1, by_expert=experts), f"{note}; {medium}" if note else medium


# --- fixed choices -----------------------------------------------------------------------------------------------


def run_fixed(table: ReplayTable, spec: str) -> Outcomes:
    """A fixed choice by its stages; a single call to an agent is the mean over its samples."""
    stages = tuple(map(Stage.parse, spec.split(",")))
    for stage in stages:
        for agent in stage.agents:
            table.settings.agent(agent)
    policy = FixedPolicy(stages)
    if len(stages) > 1 or stages[0].calls > 1 or stages[0].asks[0].verify:
        return table.walk(policy)
    runs = _single_calls(table, stages[0].asks[0].agent)
    return runs[0] if len(runs) == 1 else mean_outcomes(runs, f"mean over {len(runs)} samples")


def _single_calls(table: ReplayTable, agent: str) -> list[Outcomes]:
    found = []
    for k in range(max(1, table.samples(agent))):
        name = f"{agent}, sample {k}"
        if name not in table.outcomes:
            table.outcomes[name] = table.walk(FixedPolicy.parse(agent), first_sample=k)
        found.append(table.outcomes[name])
    return found


def _paths(table: ReplayTable) -> list[Outcomes]:
    """The paper's three paths, or Simple and Hard without verifications."""
    samples = min(table.settings.routing.samples, table.samples(SLOW))
    paths = tuple(Route) if table.samples(SLOW, Step.VERIFY) else (Route.SIMPLE, Route.HARD)
    return [table.walk(PaperPolicy(samples=samples, forced=path)) for path in paths]


def best_paths(table: ReplayTable) -> Ints:
    """The cheapest of the paper's paths with the best answer to each item, by its number."""
    paths = _paths(table)
    pick = np.stack([each.score for each in paths]).argmax(axis=0)  # the first of equals, which is the cheapest
    return pick_outcomes(paths, pick).path


# --- baselines ---------------------------------------------------------------------------------------------------


def escalation_score(table: ReplayTable) -> Array:
    """q − p of the belief: the expected gain of asking the slow agent after the fast one."""
    evidence, _ = table.evidence_after([Stage.parse(FAST)])
    posterior = table.calibration.load_belief().posterior(evidence)
    slow = stacked_agent([table.agents[SLOW].on(kind) for kind in table.kinds])
    return np.asarray(posterior.q(slow) - posterior.p)


def length_adaptive(table: ReplayTable) -> Outcomes:
    paths, chosen = _papers_choice(table)
    pick = np.empty_like(chosen)
    pick[np.argsort([len(text) for text in table.column("query")], kind="stable")] = np.sort(chosen)
    return pick_outcomes(paths, pick, "the longer the question, the longer the path; the paper's mix of paths")


def random_matched(table: ReplayTable) -> Outcomes:
    """The paper's mix of paths, given to items at random: the mean over `SEEDS`."""
    paths, chosen = _papers_choice(table)
    runs = [pick_outcomes(paths, np.random.default_rng(seed).permutation(chosen)) for seed in SEEDS]
    return mean_outcomes(runs, f"the paper's mix of paths; mean over seeds {', '.join(map(str, SEEDS))}")


def _papers_choice(table: ReplayTable) -> tuple[list[Outcomes], Ints]:
    """The paper's paths, which may lack Medium, and the number of the one that its policy takes for each item."""
    paths = _paths(table)
    chosen = run_policy(table, "paper").path
    return paths, chosen if len(paths) == len(Route) else np.minimum(chosen, 1)


def random_mixture(table: ReplayTable) -> Outcomes:
    """Fast or slow at random, at the cost of ODAR."""
    alone = [run_policy(table, name) for name in ("single-fast", "single-slow")]
    mixed = best_mixture(alone, float(run_policy(table, "odar").cost_usd.mean()))
    return replace(mixed, note=f"fast or slow at random, at the cost of odar: {mixed.note}")


def oracle(table: ReplayTable) -> Outcomes:
    """The best recorded answer to each item: an upper bound."""
    runs = []
    for agent in table.settings.agent_names:
        runs += _single_calls(table, agent) if table.samples(agent) else []
    if table.samples(SLOW, Step.VERIFY):
        runs.append(table.walk(FixedPolicy.parse(FAST, f"{SLOW}:verify")))
    return _cheapest_best(runs, "the best answer: an upper bound")


def _cheapest_best(outcomes: Sequence[Outcomes], note: str) -> Outcomes:
    scores = np.stack([each.score for each in outcomes])
    costs = np.stack([each.cost_usd for each in outcomes])
    # policies × items
    pick = np.where(scores >= scores.max(axis=0), costs, np.inf).argmin(axis=0)
    return pick_outcomes(outcomes, pick, note=note)


def run_fused(table: ReplayTable, stage: str, rule: Mapping[str, Setting], note: str) -> Outcomes:
    """One stage for every item, and a rule that chooses among its answers."""
    fusion = table.fusion_of(with_values(table.settings, rule))
    return replace(table.walk(FixedPolicy.parse(stage), fusion=fusion), note=note)


MAJORITY: Mapping[str, Setting] = {"fusion.rule": "majority"}
ARGMIN: Mapping[str, Setting] = {"fusion.rule": "fep", "fusion.beta": math.inf}
BASELINES = {
    "single-fast": lambda table: run_fixed(table, FAST),
    "single-slow": lambda table: run_fixed(table, SLOW),
    "always-medium": lambda table: run_fixed(table, f"{FAST},{SLOW}:verify"),
    "always-hard": lambda table: run_fixed(table, f"{FAST}+{SLOW}*{min(5, table.samples(SLOW))}"),
    "ensemble": lambda table: run_fused(table, f"{FAST}+{SLOW}*2", MAJORITY, "majority vote"),
    "length-adaptive": length_adaptive,
    "random-matched": random_matched,
    "random-mixture": random_mixture,
    "oracle-router": lambda table: _cheapest_best(
        [run_policy(table, spec) for spec in suites(table)["fixed"]],
        "knows in hindsight which fixed choice is right",
    ),
    "oracle": oracle,
}
"""Baselines without options."""
COUNTED = {
    "self-consistency": ("k", MAJORITY, "majority vote of slow samples"),
    "best-of-n": ("n", ARGMIN, "the slow sample of lowest free energy, without a reward model"),
}
"""Baselines with a number of slow samples: the name of this option, the fusion rule, a note."""


# --- lists of policies -------------------------------------------------------------------------------------------


def suites(table: ReplayTable) -> dict[str, list[str]]:
    """Lists of policies by name, as far as the recording supports them; `fixed` are those that route nothing."""
    samples = table.samples(SLOW)
    sizes = [n for n in SIZES if n <= samples]
    others = [name for name in table.settings.agent_names if name not in (FAST, SLOW) and table.samples(name)]
    votes = [f"self-consistency:k={k}" for k in sorted({min(3, samples), min(5, samples)}) if k > 1]
    medium = ["always-medium"] if table.samples(SLOW, Step.VERIFY) else []
    fixed = ["single-fast", *others, "single-slow", *votes, *medium, "always-hard"]
    hindsight = ["random-mixture", "oracle-router", "oracle"]
    ensemble = ["ensemble"] if samples > 1 else []
    routed = ["length-adaptive", *ensemble, f"best-of-n:n={min(5, samples)}", "random-matched"]
    other = "paper" if table.settings.policy == "cascade" else "cascade"
    found = {
        "fixed": fixed,
        "baselines": [*dict.fromkeys(("paper", other)), *fixed, *routed, *hindsight],
        "fusion-rules": [f"paper:rule={rule}" for rule in sorted(RULES.names())],
        "ablations": [
            "single-fast", *medium, "always-hard", f"odar:rule={NO_FUSION}", f"odar:policy={other}",
            "odar:dispatch=off",
            "odar:statistics=recording", "odar:statistics=none", "odar:estimator=length",
        ],
        "sweep-n": [f"{name}={n}" for name in ("paper:n", "self-consistency:k", "best-of-n:n") for n in sizes],
        "sweep-lambda": [f"paper:lambda={x:g}" for x in LAMBDAS],
        "sweep-beta": [f"paper:beta={x}" for x in BETAS],
        "sweep-tau": [f"paper:tau1={tau1:g},tau2={tau2:g}" for tau1, tau2 in THRESHOLDS],
        "curve": [f"cascade:dial={dial}" for dial in CURVE_DIALS],
    }  # fmt: skip
    return {**found, "all": ["odar", *chain.from_iterable(found.values())]}
