"""The result of a comparison or of a guarantee as a calibration file, and in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from odar import __version__
from odar.calibration_file import Calibration, Setting, Source
from odar.lab.calibration.compare import Comparison, Goal, cascades
from odar.lab.calibration.fit import fit_calibration
from odar.lab.calibration.guarantee import Certificate
from odar.lab.calibration.items import ScoredItems
from odar.lab.replay.table import ReplayTable
from odar.types import SLOW

MIN_CHOICE = 100
"""Minimum number of items for choosing a policy; with fewer, only statistics are written."""


def statistics_calibration(table: ReplayTable, made: Mapping[str, Any]) -> Calibration:
    """Statistics and skills of all items, without a policy."""
    fitted = fit_calibration(table, np.ones(len(table), dtype=bool), belief=False)
    return replace(fitted, made=provenance(made))


def chosen_calibration(table: ReplayTable, comparison: Comparison, made: Mapping[str, Any]) -> Calibration:
    """The best choice as settings, with statistics, skills and belief fitted to all items.

    With a fixed choice the stages of the cascade are kept too: a caller who names a dial gets the cascade.
    """
    every = np.ones(len(table), dtype=bool)
    fitted = fit_calibration(table, every, belief=comparison.fits_belief)
    settings = dict(comparison.best.settings)
    if not comparison.best.is_cascade and settings["policy"] != "paper":
        settings = {**cascades(table)[-1], **settings}
    return replace(fitted, settings=settings, made=provenance(made))


def certified_calibration(
    fitted: Calibration,
    certificate: Certificate,
    settings: Mapping[str, Setting],
    sources: Iterable[Source],
    made: Mapping[str, Any],
) -> Calibration:
    """The certified dial as settings, with the certificate.

    `sources` are the model, prompt and sampling of each agent; others remove the certificate.
    """
    document = {**certificate.to_dict(), "sources": [asdict(source) for source in sources]}
    return replace(fitted, settings=dict(settings), made={**provenance(made), "certificate": document})


def without_prompts(calibration: Calibration) -> Calibration:
    """For answers to other prompts: energies and signals do not hold, accuracies are kept."""
    kept = {
        source: replace(each, mean=0.0, deviation=1.0, count=0, prompt_tokens=None, quantiles=None)
        for source, each in calibration.statistics.items()
    }
    return replace(calibration, statistics=kept)


def provenance(made: Mapping[str, Any]) -> dict[str, Any]:
    return {**made, "date": datetime.now(UTC).date().isoformat(), "odar": __version__}


def recommendation(items: ScoredItems, comparison: Comparison, goal: Goal) -> str:
    """The best choice in one sentence, with the nearest cascade if that is a fixed choice."""
    best = comparison.best
    if best.is_cascade:
        stages = best.settings.get("routing.stages")
        order = f", stages {', '.join(stages)}" if isinstance(stages, list) else ""
        choice = f"Use the cascade at dial {best.settings['routing.dial']}{order}"
    elif best.settings["policy"] == "paper":
        choice = "Use the paper's policy"
    else:
        choice = f"No cascade pays here, use {best.name} " + (
            "alone" if best.name == SLOW else "for every question"
        )
    sentence = f"{choice}: {items.score_name} in {best.score.mean():.1%}"
    if best.name != SLOW:
        gain = comparison.gain(best).signed()
        sentence += f", {gain} against one slow call, at {comparison.cost(best):.2f} of its cost"
    cascades = [each for each in comparison.choices if each.is_cascade and goal.allows(each)]
    if best.is_cascade or not cascades:
        return f"{sentence}."
    nearest = max(cascades, key=lambda each: float(goal.worth(each).mean()))
    cost = comparison.cost(nearest)
    return f"{sentence}; the best cascade for this dial has {nearest.score.mean():.1%} at {cost:.2f}."
