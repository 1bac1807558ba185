"""The current setup of an engine as the start of a fit, and a fit as a calibration file."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from odar import __version__
from odar.calibration.bootstrap import Interval
from odar.calibration.evidence import Evidence, fit_scores, fit_statistics
from odar.calibration.fit import Expectation, Fitted, Incumbents
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.judge_fit import JudgeTrial
from odar.calibration.parts import Part
from odar.calibration.setup import Setup
from odar.calibration_file import Calibration
from odar.difficulty.estimator import LearnedEstimator
from odar.engine import Odar
from odar.policy.alignment import Source, Statistics, StatisticsTable
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array
from odar.types import Step

STEPS = (Step.ANSWER, Step.VERIFY, Step.SOLVE)
"""The step behind each source number of the votes."""


def incumbents(odar: Odar) -> Incumbents:
    """Return the setup in use."""
    routing = odar.settings.routing
    sources, surrogate = source_list(odar), odar.settings.fusion.surrogate
    skills = [
        odar.fusion.skills.get((source.model, step), 1.0) for source, step in zip(sources, STEPS, strict=True)
    ]
    find = odar.calibration.statistics.find
    setup = Setup(
        thresholds=odar.routing.thresholds,
        fusion=FusionFit(odar.fusion.beta, 0.0, np.array(skills)),
        statistics=tuple(find(source) for source in sources),
        posterior=odar.posterior if routing.mode == "posterior" else None,
        clearly_hard=routing.clearly_hard,
        surrogate=tuple(find(source) for source in source_list(odar, surrogate)) if surrogate else None,
        rule=odar.fusion.rule,
        missing_limit=odar.fusion.missing_limit,
        similarity=odar.fusion.similarity,
        stopping=odar.sampler.stopping,
        samples=routing.samples,
        enabled=odar.routing.enabled,
        by_expert=odar.routing.by_expert,
    )
    estimator = odar.estimator if isinstance(odar.estimator, LearnedEstimator) else None
    # A mode that an earlier calibration chose may be chosen again; one that the user or a profile set may not.
    chosen_before = odar.settings.origins.get(("routing", "mode"), "").startswith("calibration")
    return Incumbents(setup, estimator, odar.posterior, routing.mode == "posterior" or chosen_before)


def statistics_alone(
    odar: Odar, evidence: Evidence, made: dict[str, Any], fitted: Fitted | None = None
) -> Calibration:
    """μ, σ and quantiles of these records, for which no label is needed; everything else as it is in use."""
    skills = incumbents(odar).setup.fusion.skills
    own, scores = fit_statistics(evidence), fit_scores(evidence)
    statistics = table(odar, _skilled(own, skills), scores and _skilled(scores, skills))
    return replace(
        odar.calibration, statistics=statistics, made=made_of(made), report=report(fitted) if fitted else {}
    )


def to_calibration(odar: Odar, fitted: Fitted, made: dict[str, Any]) -> Calibration:
    """Everything that was fitted, with its evidence, ready to be written."""
    calibration = calibration_of(odar, fitted.setup, choose_mode=fitted.looks_first)
    return replace(calibration, made=made_of(made), report=report(fitted))


def calibration_of(odar: Odar, setup: Setup, *, choose_mode: bool) -> Calibration:
    """The calibration that makes the engine decide as a setup; `choose_mode` includes `routing.mode`."""
    settings: dict[str, float | str | dict[str, float]] = {
        "routing.tau1": setup.thresholds.tau1,
        "routing.tau2": setup.thresholds.tau2,
        "fusion.beta": setup.fusion.beta,
    }
    if setup.by_expert or odar.routing.by_expert:  # an empty table replaces the one in use
        settings["routing.tau1_by_expert"] = {expert: each.tau1 for expert, each in setup.by_expert.items()}
        settings["routing.tau2_by_expert"] = {expert: each.tau2 for expert, each in setup.by_expert.items()}
    if choose_mode:
        settings["routing.mode"] = "prior" if setup.posterior is None else "posterior"
    return Calibration(
        statistics=table(
            odar,
            _skilled(setup.statistics, setup.fusion.skills),
            setup.surrogate and _skilled(setup.surrogate, setup.fusion.skills),
        ),
        settings=settings,
        posterior=posterior_document(odar, setup.posterior),
        estimator=odar.calibration.estimator if setup.estimator is None else setup.estimator.document(),
    )


def table(
    odar: Odar, statistics: tuple[Statistics | None, ...], scores: tuple[Statistics | None, ...] | None = None
) -> StatisticsTable:
    """Statistics under the sources they belong to, a surrogate's among them; those of other sources stay."""
    pairs = [*zip(source_list(odar), statistics, strict=True)]
    if scores is not None:
        pairs += zip(source_list(odar, odar.settings.fusion.surrogate), scores, strict=True)
    measured = {source: known for source, known in pairs if known is not None}
    return StatisticsTable({**odar.calibration.statistics.entries, **measured})


def source_list(odar: Odar, surrogate: str = "") -> list[Source]:
    """Where the answers of each step come from; with a surrogate, scored by it."""
    scorer = odar.settings.card(surrogate).name if surrogate else ""
    return [odar.source(odar.cards[step.role][0].name, step, scorer) for step in STEPS]


def posterior_document(odar: Odar, posterior: PosteriorDifficulty | None) -> Any:
    """What the file holds for these coefficients; None for the shipped ones."""
    if posterior is None or posterior is odar.posterior:
        return odar.calibration.posterior
    return posterior.document()


def made_of(made: dict[str, Any]) -> dict[str, Any]:
    """How a calibration came about, with date and version."""
    return {**made, "date": datetime.now(UTC).date().isoformat(), "odar": __version__}


def report(fitted: Fitted) -> dict[str, Any]:
    """The evidence as plain data."""
    return {
        "before": _expectation(fitted.before),
        "after": _expectation(fitted.after),
        "accuracy_gain": _interval(fitted.accuracy_gain),
        "calls_gain": _interval(fitted.calls_gain),
        "cost_usd_gain": None if fitted.cost_gain is None else _interval(fitted.cost_gain),
        "tolerance": fitted.tolerance,
        "moved": fitted.moved,
        "baselines": {name: _interval(interval) for name, interval in fitted.baselines.items()},
        "parts": [part_report(part) for part in fitted.parts],
    }


def judge_report(trial: JudgeTrial) -> dict[str, Any]:
    """What the judge would change, as plain data."""
    found = {field.name: getattr(trial, field.name) for field in fields(trial)}
    return {name: _interval(value) if isinstance(value, Interval) else value for name, value in found.items()}


def part_report(part: Part[Any]) -> dict[str, Any]:
    """The evidence for one part as plain data."""
    gain = None if part.gain is None else _interval(part.gain)
    return {"part": part.name, "measure": part.measure, "gain": gain, "better": part.better, "note": part.note}


def _skilled(statistics: tuple[Statistics | None, ...], skills: Array) -> tuple[Statistics | None, ...]:
    pairs = zip(statistics, skills, strict=True)
    return tuple(known and replace(known, skill=float(skill)) for known, skill in pairs)


def _expectation(expected: Expectation) -> dict[str, Any]:
    return {
        "accuracy": _interval(expected.accuracy),
        "calls": _interval(expected.calls),
        "cost_usd": None if expected.cost_usd is None else _interval(expected.cost_usd),
        "mix": dict(zip(("simple", "medium", "hard"), expected.mix, strict=True)),
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {name: round(value, 6) for name, value in interval._asdict().items()}
