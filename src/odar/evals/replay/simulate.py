"""Simulation of ODAR's three paths on recorded answers: candidates, paths, winners and prices (SPEC 1, 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from odar.difficulty.base import ESTIMATORS
from odar.difficulty.estimator import LearnedEstimator, calibrated_estimator
from odar.difficulty.training import d_star
from odar.errors import InputError, UnknownName
from odar.evals.replay.arrays import PanelArrays
from odar.policy.alignment import Source, Statistics
from odar.policy.arrays import Array, Bools, Ints
from odar.policy.energy import free_energy
from odar.policy.fusion import FAST, SOLVE, VERIFY, CandidateArrays, Fusion
from odar.policy.path import HARD, MEDIUM, Route, Routing, Thresholds, path_shares, thresholds_by_expert
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import QuantileTables
from odar.policy.similarity import EXACT_ONLY, AnswerRows
from odar.policy.simulation import Simulation, simulate
from odar.policy.stopping import Stopping
from odar.recording.header import Header, calibration_of
from odar.settings import ROUTING_MODES
from odar.types import Query, Step

NO_FUSION = "none"
"""The `rule` that takes the first answer of the slow agent, without fusion."""

_STATISTICS = ("calibration", "panel", "none")
_MINIMUM = {"n": 1, "first_wave": 1, **dict.fromkeys(("tau1", "tau2", "clearly_hard", "lam", "beta", "stop"), 0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings of routing and fusion in a replay."""

    tau1: float
    tau2: float
    n: int
    """Slow samples on the Hard path."""
    mode: str
    """`prior` or `posterior` (SPEC 5.11)."""
    clearly_hard: float
    estimator: str
    dispatch: bool = True
    """Whether experts choose among models; if not, only the default pair answers (SPEC 4.4)."""
    rule: str
    lam: float
    """λ of F = E + λ·V."""
    beta: float
    similarity: str
    """Similarity of free text: the recorded one, or `none` for exact comparison (SPEC 5.15)."""
    stop: float | None
    """Confidence at which sampling stops (SPEC 5.12); None for every sample."""
    first_wave: int
    experts: Mapping[str, Thresholds] = field(default_factory=dict)
    """Thresholds of single experts (SPEC 4.3)."""
    statistics: str = "calibration"
    """Source of μ and σ: the `calibration` in use, or the `panel` itself; `none` compares energies without them."""

    def __post_init__(self) -> None:
        for name, least in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= least:  # NaN too
                raise InputError(f"{'lambda' if name == 'lam' else name} = {value:g} must be at least {least}")
        if self.tau1 > self.tau2:
            raise InputError(f"tau1 = {self.tau1:g} is above tau2 = {self.tau2:g}")
        if self.mode not in ROUTING_MODES:
            raise UnknownName("mode", self.mode, ROUTING_MODES)
        if self.statistics not in _STATISTICS:
            raise UnknownName("source of statistics", self.statistics, _STATISTICS)

    @classmethod
    def from_header(cls, header: Header) -> Setting:
        """Return the settings of the engine that made a recording."""
        routing, fusion = header.settings["routing"], header.settings["fusion"]
        return cls(
            tau1=routing["tau1"],
            tau2=routing["tau2"],
            experts=thresholds_by_expert(
                Thresholds(routing["tau1"], routing["tau2"]),
                routing.get("tau1_by_expert", {}),
                routing.get("tau2_by_expert", {}),
            ),
            n=min(routing["samples"], header.samples),
            mode=routing["mode"],
            clearly_hard=routing["clearly_hard"],
            estimator=routing["estimator"],
            rule=fusion["rule"],
            lam=fusion["varentropy_weight"],
            beta=float(fusion["beta"]),
            similarity=fusion.get("similarity", "lexical"),
            stop=fusion["stop_confidence"],
            first_wave=fusion["first_wave"],
        )

    def with_options(self, options: Mapping[str, str]) -> Setting:
        """Return the setting with options as users write them: {"tau1": "0.2", "lambda": "0.5", "stop": "none"}."""
        kinds = {each.name: str(each.type) for each in fields(self) if each.name != "experts"}
        changes: dict[str, Any] = {"experts": {}} if {"tau1", "tau2"} & set(options) else {}
        for written, value in options.items():
            name = "lam" if written == "lambda" else written
            if name not in kinds:
                raise UnknownName("option of odar", written, {*kinds, "lambda"} - {"lam"})
            changes[name] = _parse_option(written, value, kinds[name])
        return replace(self, **changes)


def _parse_option(name: str, value: str, kind: str) -> Any:
    try:
        if kind == "float | None" and value in ("none", "off"):
            return None
        if kind == "bool":
            return {"on": True, "true": True, "off": False, "false": False}[value]
        return {"int": int, "str": str}.get(kind, float)(value)
    except (ValueError, KeyError):
        raise InputError(f"{name} = {value!r} is not {'on or off' if kind == 'bool' else 'a number'}") from None


NO_PATH = -1
"""Path number of policies without paths."""


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The outcome of one policy on a recording; every array has an entry per item."""

    score: Array
    """Score by the benchmark's metric, from 0 to 1."""
    calls: Array
    cost: Array
    """US dollars; NaN if unknown."""
    tokens: Array
    """Generated tokens; NaN if unknown."""
    seconds: Array
    """Duration of the slowest chain of requests, as recorded."""
    path: Ints
    """SIMPLE, MEDIUM, HARD, or NO_PATH."""
    winner: Ints
    """Column of the answer; −1 for a mean over several runs."""
    best: Array
    """Score of the best answer that the policy could choose."""
    name: str = ""
    note: str = ""
    """Explanation for readers of a table."""

    @property
    def mix(self) -> tuple[float, float, float]:
        """Shares of Simple, Medium and Hard; NaN if the policy has no paths."""
        return path_shares(self.path[self.path != NO_PATH])


def simulate_odar(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """Return the outcome of ODAR in one setting."""
    note = "" if setting.dispatch else _check_dispatch(arrays)
    return simulate_paths(arrays, setting, route(arrays, setting), note)


def simulate_paths(arrays: PanelArrays, setting: Setting, chosen: Route, note: str = "") -> PolicyOutcome:
    """Return the outcome of taking the chosen paths, with the fusion of the setting."""
    if setting.n > arrays.samples:
        raise InputError(
            f"n = {setting.n}, but the recording holds {arrays.samples} slow samples per item; "
            f"odar eval collect … --samples {setting.n} records more"
        )
    if not arrays.verified and (chosen.path == MEDIUM).any():
        chosen = replace(chosen, path=np.where(chosen.path == MEDIUM, HARD, chosen.path))
        medium = "no verification was recorded: Medium questions take the Hard path"
        note = f"{note}; {medium}" if note else medium
    stopping = Stopping(setting.stop, setting.first_wave)
    candidates = candidates_of(arrays, setting)
    run = simulate(candidates, chosen.path, fusion_of(setting), stopping, setting.n)
    if setting.rule == NO_FUSION:
        run = replace(run, winner=first_slow(run.read))
    return price_simulation(arrays, run, chosen.after_fast_answer, note)


def fusion_of(setting: Setting) -> Fusion:
    """Return the fusion policy of a setting."""
    rule = "fep" if setting.rule == NO_FUSION else setting.rule
    return Fusion(rule, setting.beta, similarity=setting.similarity)


def first_slow(present: Bools) -> Ints:
    """Return the column of the first slow answer of each row, or of the fast one if there is no other."""
    slow = present.copy()
    slow[:, FAST] &= ~present[:, FAST + 1 :].any(axis=1)
    return np.asarray(slow.argmax(axis=1))


def simulate_one_path(arrays: PanelArrays, setting: Setting, path: int) -> PolicyOutcome:
    """Return the outcome of the same path for every item."""
    if path == MEDIUM and not arrays.verified:
        raise InputError("the recording has no verifications; record some with odar eval collect")
    return simulate_paths(arrays, setting, fixed_route(np.full(len(arrays), path)))


def fixed_route(path: Ints) -> Route:
    """Return a route of given paths, without difficulties."""
    return Route(path, np.full(len(path), np.nan), np.zeros(len(path), dtype=bool))


def _check_dispatch(arrays: PanelArrays) -> str:
    """Return a note on replays without dispatch; raises InputError if alternative models answered items."""
    defaults = {names[0] for names in arrays.header.models.values()}
    others = [i for i, source in enumerate(arrays.header.sources) if source["model"] not in defaults]
    switched = int(np.isin(arrays.answers.source, others).any(axis=1).sum())
    if switched:
        raise InputError(
            f"dispatch = off cannot be replayed: {switched} items were answered by an alternative model; "
            "odar eval collect … --set dispatch.models=false records what the default pair says"
        )
    return "no item was given to an alternative model: dispatch changes nothing here"


def free_energies(arrays: PanelArrays, setting: Setting) -> Array:
    """Return F = E + λ·V of each answer; NaN without log-probabilities."""
    energy, varentropy = arrays.answers.energy, arrays.answers.varentropy
    return np.asarray(free_energy(energy, varentropy, setting.lam))  # type: ignore[arg-type]  # arrays add up alike


def candidates_of(arrays: PanelArrays, setting: Setting) -> CandidateArrays:
    """Return the recorded answers as fusion sees them under a setting."""
    answers = arrays.answers
    unknown = np.full(answers.score.shape, np.nan)
    return CandidateArrays(
        present=np.isfinite(answers.score),
        energy=free_energies(arrays, setting),
        aligned=align(arrays, setting),
        surrogate=unknown,
        surrogate_aligned=unknown,
        total=answers.total,
        missing=answers.missing,
        complete=(answers.stated > 0) & ~answers.cut_off,
        skills=skills_of(arrays, setting),
        order=answers.order,
        mean_logprob=answers.mean_logprob,
        mean_probability=answers.mean_probability,
        lowest_window=answers.lowest_window,
        answers=_comparable_answers(arrays, setting),
    )


def _comparable_answers(arrays: PanelArrays, setting: Setting) -> AnswerRows:
    """Return the answers for comparison; raises InputError if the similarity was not recorded."""
    recorded = Setting.from_header(arrays.header).similarity
    if setting.similarity not in (recorded, EXACT_ONLY):
        raise InputError(
            f"similarity = {setting.similarity!r}: this recording can be replayed with {recorded} or {EXACT_ONLY}"
        )
    return arrays.answers.comparison if setting.similarity == recorded else arrays.answers.comparison.exact()


def align(arrays: PanelArrays, setting: Setting) -> Array:
    """Return F̃ of each answer; NaN without log-probabilities, or without statistics of its source."""
    values, result = free_energies(arrays, setting), np.full(arrays.answers.score.shape, np.nan)
    if setting.statistics == "none":
        return result
    for number, known in enumerate(source_statistics(arrays, setting)):
        if known is not None and known.count:
            own = arrays.answers.source == number
            result[own] = known.alignment.align(values[own])
    return result


def skills_of(arrays: PanelArrays, setting: Setting) -> Array:
    """Return w_m of the source of each answer (SPEC 5.10b); 1 if none was fitted, as for another λ."""
    settings, skills = arrays.header.settings, []
    weight = settings["fusion"]["varentropy_weight"] if setting.statistics == "panel" else setting.lam
    for source in arrays.header.sources:
        max_tokens = settings[Step(source["step"]).role.value]["max_tokens"]
        known = _calibrated_statistics(arrays, source, weight, max_tokens)
        skills.append(known.skill if known else 1.0)
    return np.array(skills)[arrays.answers.source]


def source_statistics(arrays: PanelArrays, setting: Setting) -> list[Statistics | None]:
    """Return the statistics of each source under a setting; None if unknown."""
    if setting.statistics == "panel":
        values = free_energies(arrays, setting)
        return [_panel_statistics(arrays, values, number) for number in range(len(arrays.header.sources))]
    return [
        _calibrated_statistics(arrays, source, setting.lam, source["max_tokens"])
        for source in arrays.header.sources
    ]


def _calibrated_statistics(
    arrays: PanelArrays, source: Mapping[str, Any], weight: float, max_tokens: int
) -> Statistics | None:
    """Return the statistics of a source in the calibration in use.

    The engine looks up μ and σ by the token limit that fits the model's context, skills by the configured limit.
    """
    terms = {name: source[name] for name in ("model", "prompt_md5", "temperature", "top_p")}
    place = Source(**terms, max_tokens=max_tokens, varentropy_weight=weight)
    return calibration_of(arrays.header).statistics.get(place)


def _panel_statistics(arrays: PanelArrays, values: Array, number: int) -> Statistics | None:
    """Return the statistics of a source on the recorded answers."""
    own = (arrays.answers.source == number) & np.isfinite(values)
    fast = arrays.answers.fast_signals.rows(arrays.answers.source[:, FAST] == number)
    quantiles = QuantileTables.from_signals(fast).to_dict() or None
    if not own.any():
        return None if quantiles is None else Statistics(0.0, 1.0, 0, quantiles=quantiles)
    mean, deviation = float(values[own].mean()), float(values[own].std()) or 1.0
    return Statistics(mean, deviation, int(own.sum()), quantiles=quantiles)


def route(arrays: PanelArrays, setting: Setting, prior: Array | None = None) -> Route:
    """Choose the path of each item under a setting; `prior` replaces the estimates of the setting's estimator."""
    prior = prior_of(arrays, setting) if prior is None else prior
    thresholds, looks = Thresholds(setting.tau1, setting.tau2), setting.mode == "posterior"
    routing = Routing(thresholds, setting.n, looks, setting.clearly_hard, by_expert=setting.experts)
    posterior = posterior_of(arrays, setting, prior) if routing.uses_posterior else np.full(len(arrays), np.nan)
    return routing.route(prior, posterior, arrays.items.expert)


def prior_of(arrays: PanelArrays, setting: Setting) -> Array:
    """Return d(x) by the setting's estimator; as recorded if the recording used the same one."""
    if setting.estimator == arrays.header.settings["routing"]["estimator"]:
        fitted = calibration_of(arrays.header).estimator
        if fitted is None:
            return arrays.items.prior
        return calibrated_estimator(fitted, "the panel's calibration").predict(arrays.items.features)
    estimator = ESTIMATORS[setting.estimator]()
    if isinstance(estimator, LearnedEstimator):
        return estimator.predict(arrays.items.features)
    return np.array([estimator.estimate(Query(text)).difficulty for text in arrays.items.query])


def posterior_of(arrays: PanelArrays, setting: Setting, prior: Array) -> Array:
    """Return d(x, y_fast) of each item; NaN if its fast answer has no signals."""
    model = PosteriorDifficulty.load(calibration_of(arrays.header).posterior, "the panel's calibration")
    signals, posterior = replace(arrays.answers.fast_signals, prior=prior), np.full(len(arrays), np.nan)
    for number, known in enumerate(source_statistics(arrays, setting)):
        own = arrays.answers.source[:, FAST] == number
        if own.any():
            posterior[own] = model.predict(signals.rows(own), known.tables if known else None)
    return posterior


def targets_of(arrays: PanelArrays) -> Array:
    """Return d* of each item (SPEC 2.5), from its effort and the score of its fast answer."""
    return d_star(1 - arrays.answers.score[:, FAST], arrays.items.effort)


def price_simulation(arrays: PanelArrays, run: Simulation, looked: Bools, note: str) -> PolicyOutcome:
    """Return scores, calls, cost, tokens and time; `looked`: items whose samples waited for the fast answer."""
    answers, rows = arrays.answers, np.arange(len(arrays))
    score = answers.score
    return PolicyOutcome(
        score=score[rows, run.winner],
        calls=run.calls.astype(np.float64),
        cost=_masked_sum(answers.output_usd, run.asked) + _prompt_cost(arrays, run),
        tokens=_masked_sum(answers.output, run.asked),
        seconds=_seconds(arrays, run, looked),
        path=run.path,
        winner=run.winner,
        best=np.where(run.read, score, -np.inf).max(axis=1),
        note=note,
    )


def _prompt_cost(arrays: PanelArrays, run: Simulation) -> Array:
    """Return the cost of the prompts: one per request, which may return all slow samples of an item."""
    prompts, single = arrays.answers.prompt_usd, run.asked.copy()
    by_source = np.array([bool(arrays.header.together[source["model"]]) for source in arrays.header.sources])
    together = by_source[arrays.answers.source[:, SOLVE]] & run.asked[:, SOLVE:].any(axis=1)
    single[together, SOLVE:] = False
    return _masked_sum(prompts, single) + np.where(together, prompts[:, SOLVE] * run.waves, 0.0)


def _seconds(arrays: PanelArrays, run: Simulation, looked: Bools) -> Array:
    """Return the duration of the slowest chain of requests.

    Verification follows the fast answer; slow samples run at the same time, or after it if the path depended on it.
    A request for several samples is recorded with the time of all of them, which counts for each wave.
    """
    seconds = np.where(run.asked, arrays.answers.seconds, 0.0)
    samples = seconds[:, SOLVE:].max(axis=1, initial=0.0) * np.maximum(run.waves, 1)
    first = seconds[:, FAST] + seconds[:, VERIFY]
    return np.asarray(np.where(looked | run.asked[:, VERIFY], first + samples, np.maximum(first, samples)))


def _masked_sum(values: Array, mask: Bools) -> Array:
    return np.asarray(np.where(mask, values, 0.0).sum(axis=1))
