"""ODAR, the paper's policy and the baselines (SPEC 7.2) by name, each a walk over the table of a recording.

Policies are written as `odar` (of the settings), `cascade:dial=economy`, `paper:tau1=0.2`, `self-consistency:k=5`,
or as the stages of a fixed choice: `slow*2`, `fast,slow:verify`. Some names are lists: `fixed`, `ablations`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
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
from odar.lab.training import SEEDS
from odar.policy.arrays import Array, Ints
from odar.policy.base import FixedPolicy
from odar.policy.fusion_rules import RULES
from odar.policy.paper import PaperPolicy
from odar.settings import Settings
from odar.types import CHEAP_AGENTS, FAST, SLOW, Query, Route, Stage, State, Step, Verdict

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


def run_policies(table: ReplayTable, specs: Sequence[str]) -> tuple[dict[str, Outcomes], dict[str, str]]:
    """The outcome of each policy, and for those that the recording does not support the reason.

    A name of `suites` stands for its policies.
    """
    outcomes = {}
    left_out = {}
    known = suites(table)
    for spec in chain.from_iterable(known.get(given, [given]) for given in specs):
        try:
            outcomes[spec] = run_policy(table, spec)
        except (InputError, SettingsError) as error:
            left_out[spec] = str(error)
    return outcomes, left_out


def _run_policy(table: ReplayTable, spec: str) -> Outcomes:
    name, _, rest = spec.partition(":")
    if name in ("odar", "cascade", "paper"):
        return _run_settings(table, _parse_options(spec, rest), name)
    if name in FIXED and (not rest or "N" in FIXED[name][0]):
        stages, rule, note = FIXED[name]
        if "N" in stages:
            stages = stages.replace("N", str(_parse_samples(table, spec, rest)))
        return _run_fixed(table, stages, rule, note)
    if name in BASELINES and not rest:
        return BASELINES[name](table)
    if re.split(r"[*+,]", name)[0] in table.settings.agent_names:
        return _run_fixed(table, spec)
    names = {"odar", "cascade", "paper", *FIXED, *BASELINES, *table.settings.agent_names, *suites(table)}
    raise UnknownName("policy", name, names)


def _parse_options(spec: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if bad := [name for name, equals, _ in pairs if not equals]:
        raise InputError(f"{spec}: {bad[0]!r} is not option=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse_samples(table: ReplayTable, spec: str, text: str) -> int:
    """The number of slow samples of a fixed choice, by default up to five."""
    name = spec.partition(":")[0]
    option = "k" if name == "self-consistency" else "n"
    options = _parse_options(spec, text)
    if strange := options.keys() - {option}:
        raise UnknownName(f"option of {name}", strange.pop(), [option])
    given = options.get(option, str(min(5, table.samples(SLOW))))
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"{spec}: {option} = {given!r} is not a number of samples, at least 1")
    return int(given)


# --- ODAR and the paper ------------------------------------------------------------------------------------------


def _run_settings(table: ReplayTable, options: Mapping[str, str], name: str) -> Outcomes:
    """The policy of the recording's settings, the cascade, or the paper's; the options change some of them.

    The paper's policy has τ 0.3 and 0.7, 1, 2 or 6 calls, argmin of F̃, and no skills.
    """
    samples = str(min(5, table.samples(SLOW)))
    paper = {"policy": "paper", "rule": "fep", "tau1": "0.3", "tau2": "0.7", "n": samples, "beta": "inf"}
    options = {**{"odar": {}, "cascade": {"policy": "cascade"}, "paper": paper}[name], **options}
    if strange := options.keys() - OPTIONS.keys() - {"statistics", "dispatch"}:
        raise UnknownName(f"option of {name}", strange.pop(), {*OPTIONS, "statistics", "dispatch"})
    values = {OPTIONS[key]: value for key, value in options.items() if key in OPTIONS}
    verdict = None
    if values.get("fusion.rule") == NO_FUSION:
        del values["fusion.rule"]
        verdict = _first_slow_answer
    settings = with_values(table.settings, values, name)
    note = _check_dispatch(table, settings) if options.get("dispatch") == "off" else ""
    if note or {"tau1", "tau2"} & options.keys():  # common thresholds replace those of single experts
        settings = replace(settings, routing=replace(settings.routing, tau1_by_expert={}, tau2_by_expert={}))
    if {"lambda", "estimator", "statistics"} & options.keys():
        table = _measured_again(table, settings, options.get("statistics", "calibration"))
    policy = table.policy_of(settings)
    if isinstance(policy, PaperPolicy):
        policy, note = _supported_paper(table, policy, note)
    dial = settings.dial(options.get("dial"))  # the named one, also if dollars or a target are set
    return replace(table.walk(policy, dial=dial, fusion=table.fusion_of(settings), verdict=verdict), note=note)


def _first_slow_answer(state: State) -> Verdict:
    slow = [i for i, candidate in enumerate(state.candidates) if candidate.agent not in CHEAP_AGENTS]
    return Verdict(slow[0] if slow else 0, "first", "the first slow answer")


def _check_dispatch(table: ReplayTable, settings: Settings) -> str:
    """A note for readers; InputError if alternative models answered items, or if there is nothing to switch off."""
    defaults = table.settings.default_models.values()
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


def _measured_again(table: ReplayTable, settings: Settings, statistics: str) -> ReplayTable:
    """The table with the λ and the estimator of these settings, and another origin of the statistics."""
    if statistics not in STATISTICS:
        raise UnknownName("source of statistics", statistics, STATISTICS)
    difficulty = None
    if settings.routing.estimator != table.settings.routing.estimator:
        estimator = ESTIMATORS[settings.routing.estimator]()
        if isinstance(estimator, LearnedEstimator):
            difficulty = estimator.predict(np.array(table.column("features")))
        else:
            difficulty = np.array([estimator.estimate(Query(text)).difficulty for text in table.column("query")])
    table = table.replaced(settings=settings, difficulty=difficulty)
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


def _run_fixed(
    table: ReplayTable, stages: str, rule: Mapping[str, Setting] | None = None, note: str = ""
) -> Outcomes:
    """A fixed choice, with a fusion rule in place of the settings'.

    A single call to an agent is the mean over its samples.
    """
    policy = FixedPolicy.parse(*stages.split(","))
    for agent in chain.from_iterable(stage.agents for stage in policy.stages):
        table.settings.agent(agent)
    if stages in table.settings.agent_names:
        runs = _single_calls(table, stages)
        return runs[0] if len(runs) == 1 else mean_outcomes(runs, f"mean over {len(runs)} samples")
    fusion = table.fusion_of(with_values(table.settings, rule or {}))
    return replace(table.walk(policy, fusion=fusion), note=note)


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
    mixed = best_mixture(alone, run_policy(table, "odar").mean_usd)
    return replace(mixed, note=f"fast or slow at random, at the cost of odar: {mixed.note}")


def oracle(table: ReplayTable) -> Outcomes:
    """The best recorded answer to each item: an upper bound."""
    runs = []
    for agent in table.settings.agent_names:
        runs += _single_calls(table, agent) if table.samples(agent) else []
    if table.samples(SLOW, Step.VERIFY):
        runs.append(table.walk(FixedPolicy.parse(FAST, f"{SLOW}:verify")))
    return _cheapest_best(runs, "the best answer: an upper bound")


def oracle_router(table: ReplayTable) -> Outcomes:
    fixed = [run_policy(table, spec) for spec in suites(table)["fixed"]]
    return _cheapest_best(fixed, "knows in hindsight which fixed choice is right")


def _cheapest_best(outcomes: Sequence[Outcomes], note: str) -> Outcomes:
    scores = np.stack([each.score for each in outcomes])
    costs = np.stack([each.cost_usd for each in outcomes])
    # policies × items
    pick = np.where(scores >= scores.max(axis=0), costs, np.inf).argmin(axis=0)
    return pick_outcomes(outcomes, pick, note=note)


MAJORITY: Mapping[str, Setting] = {"fusion.rule": "majority"}
ARGMIN: Mapping[str, Setting] = {"fusion.rule": "fep", "fusion.beta": math.inf}
FIXED: Mapping[str, tuple[str, Mapping[str, Setting], str]] = {
    "single-fast": (FAST, {}, ""),
    "single-slow": (SLOW, {}, ""),
    "always-medium": (f"{FAST},{SLOW}:verify", {}, ""),
    "always-hard": (f"{FAST}+{SLOW}*N", {}, ""),
    "ensemble": (f"{FAST}+{SLOW}*2", MAJORITY, "majority vote"),
    "self-consistency": (f"{SLOW}*N", MAJORITY, "majority vote of slow samples"),
    "best-of-n": (f"{SLOW}*N", ARGMIN, "the slow sample of lowest free energy, without a reward model"),
}
"""Fixed choices by name: stages, with N samples by option n or k; the fusion rule; a note."""
BASELINES = {
    "length-adaptive": length_adaptive,
    "random-matched": random_matched,
    "random-mixture": random_mixture,
    "oracle-router": oracle_router,
    "oracle": oracle,
}
"""Baselines made of the outcomes of other policies."""


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
