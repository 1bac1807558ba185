"""ODAR's three paths over recorded answers under any setting: candidates, paths, winners and prices (SPEC 1, 5)."""

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
"""Takes the slow agent's first answer without applying a fusion rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How ODAR routes and fuses."""

    tau1: float
    tau2: float
    n: int
    """Slow samples on the Hard path."""
    mode: str
    """prior or posterior (SPEC 5.11)."""
    clearly_hard: float
    estimator: str
    dispatch: bool = True
    """Off: only the default pair (SPEC 4.4)."""
    rule: str
    lam: float
    """λ of F = E + λ·V."""
    beta: float
    similarity: str
    """How free text is compared: as recorded, or `none` for exact comparison (SPEC 5.15)."""
    stop: float | None
    """Confidence at which sampling stops (SPEC 5.12); None takes every sample."""
    first_wave: int
    experts: Mapping[str, Thresholds] = field(default_factory=dict)
    """Thresholds of single experts (SPEC 4.3)."""
    statistics: str = "calibration"
    """μ and σ from the calibration in use, as the engine has them, or from the panel itself, for which no label
    is needed; `none` compares energies without z-scores."""

    def __post_init__(self) -> None:
        if self.tau1 > self.tau2:
            raise InputError(f"tau1 = {self.tau1:g} is above tau2 = {self.tau2:g}")
        for value, name, known in (
            (self.mode, "mode", ROUTING_MODES),
            (self.statistics, "source of statistics", ("calibration", "panel", "none")),
        ):
            if value not in known:
                raise UnknownName(name, value, known)

    @classmethod
    def of(cls, header: Header) -> Setting:
        """As the panel's engine was set."""
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

    def changed(self, options: Mapping[str, str]) -> Setting:
        """With some of it changed, as a user writes it: {"tau1": "0.2", "lambda": "0.5", "stop": "none"}."""
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
    """One policy over a recording; every array has an entry per item."""

    score: Array
    """Score by the benchmark's metric, from 0 to 1."""
    calls: Array
    cost: Array
    """US dollars; NaN if unknown."""
    tokens: Array
    """Generated tokens; NaN if unknown."""
    seconds: Array
    """Time of the slowest chain of requests when the panel was collected."""
    path: Ints
    """0 Simple, 1 Medium, 2 Hard, −1 where the policy knows no paths."""
    winner: Ints
    """The column whose answer was given; −1 for a mean over several runs."""
    best: Array
    """The score of the best answer it had to choose from."""
    name: str = ""
    note: str = ""
    """A note that explains the row to readers."""

    @property
    def mix(self) -> tuple[float, float, float]:
        """Shares of Simple, Medium and Hard; NaN if the policy knows no paths."""
        return path_shares(self.path[self.path != NO_PATH])


def simulate_odar(arrays: PanelArrays, setting: Setting) -> PolicyOutcome:
    """ODAR in one setting."""
    note = "" if setting.dispatch else _check_dispatch(arrays)
    return simulate_paths(arrays, setting, route(arrays, setting), note)


def simulate_paths(arrays: PanelArrays, setting: Setting, chosen: Route, note: str = "") -> PolicyOutcome:
    """Take the paths that were chosen, and fuse as the setting says."""
    if setting.n > arrays.samples:
        raise InputError(
            f"n = {setting.n}, but the recording holds {arrays.samples} slow samples an item; "
            f"odar eval collect … --samples {setting.n} records more"
        )
    if not arrays.verified and (chosen.path == MEDIUM).any():
        chosen = replace(chosen, path=np.where(chosen.path == MEDIUM, HARD, chosen.path))
        note = f"{note}; " * bool(note) + "no verification was recorded: Medium questions take the Hard path"
    stopping = Stopping(setting.stop, setting.first_wave)
    candidates = candidates_of(arrays, setting)
    run = simulate(candidates, chosen.path, fusion_of(setting), stopping, setting.n)
    if setting.rule == NO_FUSION:
        run = replace(run, winner=first_slow(run.read))
    return price_simulation(arrays, run, note, looked=chosen.looked)


def fusion_of(setting: Setting) -> Fusion:
    """Return the fusion policy of a setting."""
    rule = "fep" if setting.rule == NO_FUSION else setting.rule
    return Fusion(rule, setting.beta, similarity=setting.similarity)


def first_slow(present: Bools) -> Ints:
    """Return the first slow answer of each row; the fast one if it is alone."""
    slow = present.copy()
    slow[:, FAST] &= ~present[:, FAST + 1 :].any(axis=1)
    return np.asarray(slow.argmax(axis=1))


def simulate_one_path(arrays: PanelArrays, setting: Setting, path: int) -> PolicyOutcome:
    """Return the same path for every item."""
    if path == MEDIUM and not arrays.verified:
        raise InputError("the recording has no verifications; record some with odar eval collect")
    return simulate_paths(arrays, setting, fixed_route(np.full(len(arrays), path)))


def fixed_route(path: Ints) -> Route:
    """Paths that no difficulty has chosen."""
    return Route(path, np.full(len(path), np.nan), np.zeros(len(path), dtype=bool))


def _check_dispatch(arrays: PanelArrays) -> str:
    """Return whether a panel can show what the default pair would have done; raises where it cannot."""
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
    """F = E + λ·V; NaN if an answer has no log-probabilities."""
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
    """Return how answers are compared; raises InputError if the panel was loaded with another similarity."""
    recorded = Setting.of(arrays.header).similarity
    if setting.similarity not in (recorded, EXACT_ONLY):
        raise InputError(f"similarity = {setting.similarity!r}: a replay knows {recorded} and {EXACT_ONLY}")
    return arrays.answers.said if setting.similarity == recorded else arrays.answers.said.exact()


def align(arrays: PanelArrays, setting: Setting) -> Array:
    """F̃; NaN if an answer has no log-probabilities, or its source no statistics."""
    values, result = free_energies(arrays, setting), np.full(arrays.answers.score.shape, np.nan)
    if setting.statistics == "none":
        return result  # without z-scores, raw energies are compared
    for number, known in enumerate(source_statistics(arrays, setting)):
        if known is not None and known.count:
            own = arrays.answers.source == number
            result[own] = known.alignment.align(values[own])
    return result


def skills_of(arrays: PanelArrays, setting: Setting) -> Array:
    """(N, M): w_m of each answer's source (SPEC 5.10b); 1 where none was fitted, as for another λ."""
    weight = arrays.header.settings["fusion"]["varentropy_weight"] if setting.statistics == "panel" else setting.lam
    agents = {step.value: arrays.header.settings[step.role.value] for step in Step}
    limits = [agents[source["step"]]["max_tokens"] for source in arrays.header.sources]
    pairs = zip(arrays.header.sources, limits, strict=True)
    known = [_calibrated_statistics(arrays, source, weight, limit) for source, limit in pairs]
    return np.array([each.skill if each else 1.0 for each in known])[arrays.answers.source]


def source_statistics(arrays: PanelArrays, setting: Setting) -> list[Statistics | None]:
    """Return what is known of each source under a setting."""
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
    """Return what the calibration in use knows of a source.

    The engine looks μ and σ up by the length limit that fits the model's context, skills by the one that is set.
    """
    terms = {name: source[name] for name in ("model", "prompt_md5", "temperature", "top_p")}
    place = Source(**terms, max_tokens=max_tokens, varentropy_weight=weight)
    return calibration_of(arrays.header).statistics.get(place)


def _panel_statistics(arrays: PanelArrays, values: Array, number: int) -> Statistics | None:
    """Return the statistics of a source on the panel's own answers, without labels."""
    own = (arrays.answers.source == number) & np.isfinite(values)
    fast = arrays.answers.fast.rows(arrays.answers.source[:, FAST] == number)
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
    """d(x) by the setting's estimator; as recorded where it is the one that recorded it."""
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
    """Return d(x, y_fast) of each item; NaN if its fast answer shows nothing."""
    model = PosteriorDifficulty.load(calibration_of(arrays.header).posterior, "the panel's calibration")
    signals, found = replace(arrays.answers.fast, prior=prior), np.full(len(arrays), np.nan)
    for number, known in enumerate(source_statistics(arrays, setting)):
        own = arrays.answers.source[:, FAST] == number
        if own.any():
            found[own] = model.predict(signals.rows(own), known.tables if known else None)
    return found


def targets_of(arrays: PanelArrays) -> Array:
    """d* of each item (SPEC 2.5): effort, and whether the fast answer was wrong."""
    return d_star(1 - arrays.answers.score[:, FAST], arrays.items.effort)


def price_simulation(
    arrays: PanelArrays, run: Simulation, note: str = "", *, looked: Bools | None = None
) -> PolicyOutcome:
    """Price a simulation: calls, money, tokens and time; `looked`: where samples waited for the fast answer."""
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
    """Return the cost of the prompts: one per request; one request may return all slow samples of an item."""
    prompts, single = arrays.answers.prompt_usd, run.asked.copy()
    by_source = np.array([bool(arrays.header.together[source["model"]]) for source in arrays.header.sources])
    together = by_source[arrays.answers.source[:, SOLVE]] & run.asked[:, SOLVE:].any(axis=1)
    single[together, SOLVE:] = False
    return _masked_sum(prompts, single) + np.where(together, prompts[:, SOLVE] * run.waves, 0.0)


def _seconds(arrays: PanelArrays, run: Simulation, looked: Bools | None) -> Array:
    """Return the seconds of the slowest chain of requests.

    Verification follows the fast answer; slow samples run at the same time, or after it if the path depended on it.
    A request for several samples is recorded with the time all of them took: each wave counts that much at most.
    """
    seconds = np.where(run.asked, arrays.answers.seconds, 0.0)
    samples = seconds[:, SOLVE:].max(axis=1, initial=0.0) * np.maximum(run.waves, 1)
    first = seconds[:, FAST] + seconds[:, VERIFY]
    one_by_one = run.asked[:, VERIFY] if looked is None else looked | run.asked[:, VERIFY]
    return np.asarray(np.where(one_by_one, first + samples, np.maximum(first, samples)))


def _masked_sum(values: Array, mask: Bools) -> Array:
    return np.asarray(np.where(mask, values, 0.0).sum(axis=1))
