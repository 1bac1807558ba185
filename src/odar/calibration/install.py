"""A fit → the calibration file: which statistics belong to which source, and the evidence beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from odar import __version__
from odar.calibration.fit import Fitted, Thresholds
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.records import Record
from odar.engine import Odar
from odar.fusion.calibration import Calibration
from odar.fusion.statistics import Statistics, StatisticsTable
from odar.types import Step

STEPS = (Step.ANSWER, Step.VERIFY, Step.SOLVE)
"""The step behind each source number of the votes."""


def current_thresholds(odar: Odar) -> Thresholds:
    """τ1 and τ2 as they are in use."""
    return Thresholds(odar.settings.routing.tau1, odar.settings.routing.tau2)


def current_fusion(odar: Odar) -> FusionFit:
    """The fusion rule as it is in use, for the columns fast, verify and each slow sample."""
    samples = odar.settings.routing.samples
    steps = (Step.ANSWER, Step.VERIFY, *[Step.SOLVE] * samples)
    skills = [odar.fusion.skills.get((odar.cards[step.role][0].name, step), 1.0) for step in steps]
    return FusionFit(odar.fusion.beta, 0.0, np.array(skills))


def to_calibration(odar: Odar, records: Sequence[Record], fitted: Fitted, command: str, data: str) -> Calibration:
    """Everything that was fitted, ready to be written."""
    entries = {}
    for number, step in enumerate(STEPS):
        values = [attempt.energy for record in records for attempt in _attempts(record, step)]
        if any(value is not None for value in values):
            entries[odar.source(odar.cards[step.role][0].name, step)] = Statistics(
                mean=float(fitted.means[number]),
                deviation=float(fitted.deviations[number]),
                count=sum(value is not None for value in values),
                skill=float(fitted.fusion.skills[number]),
            )
    return Calibration(
        statistics=StatisticsTable(entries),
        settings={
            "routing.tau1": fitted.thresholds.tau1,
            "routing.tau2": fitted.thresholds.tau2,
            "fusion.beta": fitted.fusion.beta,
        },
        made={
            "command": command,
            "data": data,
            "items": len(records),
            "date": datetime.now(UTC).date().isoformat(),
            "odar": __version__,
        },
        report=report(fitted),
    )


def report(fitted: Fitted) -> dict[str, Any]:
    """The evidence as plain data."""
    return {
        "before": asdict(fitted.before),
        "after": asdict(fitted.after),
        "accuracy_difference": asdict(fitted.difference),
        "baselines": {name: asdict(interval) for name, interval in fitted.baselines.items()},
    }


def _attempts(record: Record, step: Step) -> tuple[Any, ...]:
    return {Step.ANSWER: (record.fast,), Step.VERIFY: (record.verify,), Step.SOLVE: record.solves}[step]
