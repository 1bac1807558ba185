"""The current parts of an engine as the start of a fit, and the result of a fit as a calibration file."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from odar import __version__
from odar.calibration.bootstrap import to_plain_data
from odar.calibration.evidence import Evidence, fit_statistics, fit_surrogate_statistics
from odar.calibration.fit import CurrentParts, Fitted
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.guarantee import Certificate
from odar.calibration.routing_fit import TOLERANCE
from odar.calibration.setup import Setup
from odar.calibration_file import Calibration
from odar.difficulty.estimator import LearnedEstimator
from odar.engine import Odar
from odar.policy.alignment import Source, Statistics
from odar.policy.arrays import Array
from odar.policy.posterior import PosteriorDifficulty
from odar.types import Step


def current_parts(odar: Odar) -> CurrentParts:
    """Return the parts in use."""
    routing = odar.settings.routing
    sources, surrogate = source_list(odar), odar.settings.fusion.surrogate
    skills = [odar.fusion.skills.get((source.model, step), 1.0) for source, step in zip(sources, Step, strict=True)]
    find_statistics = odar.calibration.statistics.get
    setup = Setup(
        thresholds=odar.routing.thresholds,
        fusion=FusionFit(odar.fusion.beta, 0.0, np.array(skills)),
        statistics=tuple(map(find_statistics, sources)),
        posterior=odar.posterior if routing.mode == "posterior" else None,
        clearly_hard=routing.clearly_hard,
        surrogate=tuple(map(find_statistics, source_list(odar, surrogate))) if surrogate else None,
        rule=odar.fusion.rule,
        similarity=odar.fusion.similarity,
        stopping=odar.sampler.stopping,
        samples=routing.samples,
        enabled=odar.routing.enabled,
        by_expert=odar.routing.by_expert,
    )
    estimator = odar.estimator if isinstance(odar.estimator, LearnedEstimator) else None
    # A mode that an earlier calibration chose may be chosen again; one that the user or a profile set may not.
    chosen_before = odar.settings.origins.get(("routing", "mode"), "").startswith("calibration")
    return CurrentParts(setup, estimator, odar.posterior, routing.mode == "posterior" or chosen_before)


def statistics_calibration(
    odar: Odar, evidence: Evidence, made: dict[str, Any], fitted: Fitted | None = None
) -> Calibration:
    """Return the calibration in use with μ, σ and quantiles of these records, which need no labels."""
    skills = current_parts(odar).setup.fusion.skills
    statistics = statistics_table(odar, fit_statistics(evidence), fit_surrogate_statistics(evidence), skills)
    evidence_report = report(fitted) if fitted else {}
    return replace(odar.calibration, statistics=statistics, made=provenance(made), report=evidence_report)


def to_calibration(
    odar: Odar, fitted: Fitted, made: dict[str, Any], certificate: Certificate | None = None
) -> Calibration:
    """Return the calibration file of a fit, with its evidence."""
    calibration = calibration_of(odar, fitted.setup, choose_mode=fitted.may_use_posterior)
    made = provenance(made)
    if certificate is not None:
        sources = [asdict(source) for source in source_list(odar)]
        made["certificate"] = {**certificate.to_dict(), "sources": sources}
    return replace(calibration, made=made, report=report(fitted))


def calibration_of(odar: Odar, setup: Setup, *, choose_mode: bool) -> Calibration:
    """Return the calibration that makes the engine decide as a setup; `choose_mode` includes `routing.mode`."""
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
        statistics=statistics_table(odar, setup.statistics, setup.surrogate, setup.fusion.skills),
        settings=settings,
        posterior=posterior_document(odar, setup.posterior),
        estimator=odar.calibration.estimator if setup.estimator is None else setup.estimator.to_dict(),
    )


def statistics_table(
    odar: Odar,
    statistics: tuple[Statistics | None, ...],
    scores: tuple[Statistics | None, ...] | None = None,
    skills: Array | None = None,
) -> dict[Source, Statistics]:
    """Return statistics by source, those of a surrogate's `scores` among them; those of other sources stay.

    `skills` are those of the three steps; by default the statistics have them already.
    """
    table = dict(odar.calibration.statistics)
    for surrogate, by_step in (("", statistics), (odar.settings.fusion.surrogate, scores)):
        for number, (source, each) in enumerate(zip(source_list(odar, surrogate), by_step or (), strict=False)):
            if each is not None:
                table[source] = each if skills is None else replace(each, skill=float(skills[number]))
    return table


def source_list(odar: Odar, surrogate: str = "") -> list[Source]:
    """Return the source of the answers at each step; with a surrogate, as scored by it."""
    scorer = odar.settings.card(surrogate).name if surrogate else ""
    return [odar.source(odar.cards[step.role][0].name, step, scorer) for step in Step]


def posterior_document(odar: Odar, posterior: PosteriorDifficulty | None) -> Any:
    """Return the entry of these coefficients in the file; None for the shipped ones."""
    if posterior is None or posterior is odar.posterior:
        return odar.calibration.posterior
    return posterior.to_dict()


def provenance(made: dict[str, Any]) -> dict[str, Any]:
    """Return the origin of a calibration, with date and version."""
    return {**made, "date": datetime.now(UTC).date().isoformat(), "odar": __version__}


def report(fitted: Fitted) -> dict[str, Any]:
    """Return the evidence as plain data."""
    names = ("before", "after", "accuracy_gain", "calls_gain", "cost_usd_gain", "moved", "baselines")
    results = {name: to_plain_data(getattr(fitted, name)) for name in names}
    return {**results, "tolerance": TOLERANCE, "parts": [part.report() for part in fitted.parts]}
