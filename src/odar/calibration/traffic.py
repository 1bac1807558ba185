"""Calibration from recorded traffic.

A trace holds the candidates of the one path that was taken, and feedback says whether the chosen answer was right.
This shows how often the fast answer is wrong, and the distribution of free energies, but not the result of another
path or of another choice among the candidates. So β and skills stay unchanged, and new thresholds send as many
questions to each path as before, though not always the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odar.calibration.evidence import FastAnswers, statistics_of
from odar.calibration.fit import CurrentParts
from odar.calibration.parts import FittedPart, fit_estimator_part, fit_posterior_part
from odar.calibration.setup import Setup
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import FEATURES
from odar.policy.arrays import Array
from odar.policy.energy import free_energy
from odar.policy.equivalence import equivalent
from odar.policy.path import Thresholds, path_shares
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import AnswerKind, AnswerSignals, SignalArrays
from odar.types import Step

MIN_ENERGIES = 30
"""Candidates of a step that are needed to measure its μ and σ again."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traces of a store, prepared for calibration."""

    traces: int
    """Number of answered traces with these models and prompts."""
    marked: int
    """Number of these traces with feedback."""
    fast: FastAnswers
    """The fast answers that are known to be right or wrong."""
    energies: Mapping[Step, Array]
    """Free energies by step, of all traces."""
    signals: SignalArrays
    """Signals of every fast answer."""


@dataclass(frozen=True, slots=True)
class TrafficFit:
    """The result of a fit to traffic."""

    setup: Setup
    measured: Mapping[Step, int]
    """Number of candidates behind each μ and σ that was measured again."""
    estimator: FittedPart[LearnedEstimator]
    posterior: FittedPart[PosteriorDifficulty]
    before: tuple[float, float, float]
    after: tuple[float, float, float]
    """Shares of Simple, Medium and Hard among the fast answers with a known outcome."""

    @property
    def changed(self) -> bool:
        """Whether anything differs from the current parts."""
        return bool(self.measured) or self.estimator.better or self.posterior.better


def read_traffic(
    rows: Iterable[Mapping[str, Any]],
    sources: Mapping[Step, tuple[str, str]],
    estimator: LearnedEstimator | None,
    varentropy_weight: float,
) -> Traffic:
    """Read traces with their documents and feedback, as the store exports them.

    Args:
        rows: the traces.
        sources: model and MD5 of the prompt at each step; answers of others are skipped.
        estimator: the learned estimator in use; None takes the difficulties as they were recorded.
        varentropy_weight: λ.
    """
    energies: dict[Step, list[float]] = defaultdict(list)
    every: list[AnswerSignals] = []
    known: list[tuple[AnswerSignals, bool, list[float]]] = []
    traces = marked = 0
    for row in rows:
        document, feedback = row["document"], row["feedback"]
        if document["verdict"] is None or not _same_agents(document, sources):
            continue
        traces += 1
        marked += feedback is not None
        for candidate in document["candidates"]:
            energies[Step(candidate["step"])].append(_free_energy(candidate, varentropy_weight))
        answered = [each for each in document["candidates"] if each["step"] == Step.ANSWER]
        if not answered:
            continue
        every.append(_signals(document["decision"], answered[0]))
        wrong = None if feedback is None else fast_is_wrong(document, feedback["correct"])
        shares = document["decision"]["estimate"]["contributions"]
        recorded = [name for name, _, _ in shares] == list(FEATURES)  # φ(x), whatever the estimator's weights were
        if wrong is not None and (recorded or estimator is None):
            known.append((every[-1], wrong, [float(value) for _, value, _ in shares]))
    signals = SignalArrays.from_answers([fast for fast, _, _ in known])
    features, prior = None, signals.prior
    if estimator is not None and known:
        features = np.array([phi for _, _, phi in known])
        prior = estimator.predict(features)
    wrong_answers = np.array([wrong for _, wrong, _ in known], dtype=bool)
    answers = FastAnswers(
        prior=prior,
        signals=replace(signals, prior=prior),
        wrong=wrong_answers,
        gain=wrong_answers.astype(np.float64),  # the slow model's answers are unknown
        effort=np.full(len(known), np.nan),
        features=features,
    )
    by_step = {step: np.array(values, dtype=np.float64) for step, values in energies.items()}
    return Traffic(traces, marked, answers, by_step, SignalArrays.from_answers(every))


def fast_is_wrong(document: Mapping[str, Any], correct: bool) -> bool | None:
    """Return whether the fast answer was wrong, given whether the chosen one was right; None if unknown.

    It is known if the fast answer was chosen, equals the chosen one, or differs from a right one.
    """
    candidates, winner = document["candidates"], document["verdict"]["winner"]
    fast = next((i for i, candidate in enumerate(candidates) if candidate["step"] == Step.ANSWER), None)
    if fast is None:
        return None
    if fast == winner:
        return not correct
    if not document["content"]:
        return None
    if equivalent(candidates[fast]["answer"], candidates[winner]["answer"]):
        return not correct
    return True if correct else None


def fit_traffic(traffic: Traffic, current: CurrentParts) -> TrafficFit:
    """Fit the parts that traffic supports; each replaces the one in use only if it is significantly better."""
    statistics, measured = list(current.setup.statistics), {}
    for number, step in enumerate(Step):
        values = traffic.energies.get(step, np.zeros(0))
        count = int(np.isfinite(values).sum())
        if count >= MIN_ENERGIES:
            before, fresh = statistics[number], statistics_of(values, traffic.signals if not number else None)
            assert fresh is not None, "there are energies"
            statistics[number] = replace(fresh, skill=before.skill if before else 1.0)
            measured[step] = count
    setup = replace(current.setup, statistics=tuple(statistics))
    estimator = fit_estimator_part(traffic.fast, current.estimator, thresholds=current.setup.thresholds)
    prior = estimator.held_out if estimator.better else None
    posterior = fit_posterior_part(traffic.fast, setup, current.posterior, prior)
    fitted = replace(
        setup,
        estimator=estimator.model if estimator.better else None,
        posterior=(posterior.model if posterior.better else current.posterior)
        if current.may_use_posterior
        else None,
    )
    if len(traffic.fast):
        fitted = replace(fitted, thresholds=thresholds_with_same_shares(current.setup, fitted, traffic.fast))
    mixes = [
        path_shares(each.route(traffic.fast).path) if len(traffic.fast) else (0.0, 0.0, 0.0)
        for each in (current.setup, fitted)
    ]
    return TrafficFit(fitted, measured, estimator, posterior, *mixes)


def thresholds_with_same_shares(before: Setup, after: Setup, fast: FastAnswers) -> Thresholds:
    """Return thresholds that send as many of these questions to each path as before."""
    old, new = before.route(fast).difficulty, np.sort(after.route(fast).difficulty)
    if np.array_equal(np.sort(old), new):
        return before.thresholds
    above = np.append(new, 1.0)  # no difficulty is above the last threshold
    paths = before.thresholds.paths(old)
    simple, easier = int((paths == 0).sum()), int((paths <= 1).sum())
    return Thresholds(round(float(above[simple]), 6), round(float(above[easier]), 6))


def _same_agents(document: Mapping[str, Any], sources: Mapping[Step, tuple[str, str]]) -> bool:
    """Return whether every candidate is of a model and prompt in use; others have other statistics."""
    prompts = document["prompts"]
    return bool(document["candidates"]) and all(
        (candidate["model"], prompts.get(candidate["step"])) == sources[Step(candidate["step"])]
        for candidate in document["candidates"]
    )


def _free_energy(candidate: Mapping[str, Any], weight: float) -> float:
    energy = candidate["energy"]
    if energy is None or energy.get("scorer"):  # a surrogate's energies are on another scale than the model's own
        return float("nan")
    own, variance = energy["energy"], energy["varentropy"]
    return float("nan") if own is None or variance is None else free_energy(float(own), float(variance), weight)


def _signals(decision: Mapping[str, Any], candidate: Mapping[str, Any]) -> AnswerSignals:
    """Return the signals that routing used, or if it used none, those of the candidate in the trace."""
    prior, look = float(decision["estimate"]["difficulty"]), decision.get("look")
    if look is not None:
        seen = {name: float(value) for name, value, _ in look["signals"] if value is not None}
        names = ("length", "mean_logprob", "answer_logprob", "agreement")
        signals = {name: seen.get(name) for name in names}
        kind = AnswerKind(look["kind"])
        return AnswerSignals(kind, prior, stated=look["stated"], finished=look["finished"], **signals)
    control = set(candidate["control"])
    logprobs = [v for i, v in enumerate(candidate["logprobs"]) if v is not None and i not in control]
    mean = sum(logprobs) / len(logprobs) if logprobs else None
    stated, length = candidate.get("stated", True), float(candidate["text_characters"])
    return AnswerSignals(AnswerKind.REASONED, prior, stated, length, mean)
