"""`odar calibrate --from-traces`: the parts that recorded traffic with feedback can teach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from odar.calibration.install import incumbents, made_of, posterior_document, table
from odar.calibration.traffic import FEWEST_ENERGIES, Traffic, TrafficFit, fit_traffic, read_traffic
from odar.calibration_file import Calibration
from odar.cli.calibrate import write_calibration
from odar.cli.calibrate_report import mix_text, part_text, show_facts
from odar.cli.options import command_line
from odar.engine import Odar
from odar.errors import InputError
from odar.settings import Settings
from odar.store.archive import Archive
from odar.store.database import Database
from odar.store.record import Filter
from odar.types import Step


def calibrate_from_traces(settings: Settings, out: str, *, as_json: bool) -> int:
    """Read the store, fit, say what came of it, and write it where anything changed."""
    if not settings.store.enabled:
        raise InputError("store.enabled is false: there are no traces to fit to")
    odar = Odar(settings)
    today = incumbents(odar)
    sources = {step: (odar.cards[step.role][0].name, odar.prompts[step].md5) for step in Step}
    with Database(settings.store) as database:
        rows = Archive(database).export(Filter(status="ok"))
        traffic = read_traffic(rows, sources, today.estimator, settings.fusion.varentropy_weight)
    if not traffic.traces:
        models = " and ".join(sorted({model for model, _ in sources.values()}))
        raise InputError(f"the store holds no trace of {models} with the prompts in use")
    fitted = fit_traffic(traffic, today)
    report, setup = _report(traffic, fitted), fitted.setup
    if as_json:
        click.echo(json.dumps({**report, "written": out if fitted.changed else None}, ensure_ascii=False))
    else:
        _show(settings, traffic, fitted)
    if not fitted.changed:
        click.echo("odar: not written: nothing that could be fitted is better than what is in use", err=True)
        return 1
    now, then = settings.routing, setup.thresholds
    moved = (then.tau1, then.tau2) != (now.tau1, now.tau2)
    thresholds = {"routing.tau1": then.tau1, "routing.tau2": then.tau2} if moved else {}
    calibration = Calibration(
        statistics=table(odar, setup.statistics),
        settings={**odar.calibration.settings, **thresholds},
        posterior=posterior_document(odar, setup.posterior),
        estimator=setup.estimator.document() if setup.estimator else odar.calibration.estimator,
        made=made_of({"command": command_line(), "data": "traces", "items": len(traffic.fast)}),
        report=report,
    )
    write_calibration(calibration, out, quiet=as_json)
    return 0


def _show(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> None:
    fast = traffic.fast
    click.echo(f"{traffic.traces} traces of these models and prompts, {traffic.marked} with feedback;")
    click.echo(f"of {len(fast)} it is known whether the fast answer was wrong ({int(fast.wrong.sum())} were)\n")
    show_facts(_facts(settings, traffic, fitted))
    if len(fast):
        mixes = f"{mix_text(fitted.before)} → {mix_text(fitted.after)}"
        click.echo(f"\nsimple / medium / hard of these {len(fast)}: {mixes}")


def _facts(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> Iterator[tuple[str, str]]:
    for step in Step:
        known = int(np.isfinite(traffic.energies.get(step, np.zeros(0))).sum())
        lacking = f"{FEWEST_ENERGIES} candidates with log-probs are needed, {FEWEST_ENERGIES - known} more"
        yield f"μ, σ {step}", f"measured on {known} candidates" if step in fitted.measured else f"kept: {lacking}"
    for part in (fitted.estimator, fitted.posterior):
        yield part.name, part_text(part, taken=part.better)
    if fitted.setup.posterior is None:
        yield "", f"not in use: routing.mode = {settings.routing.mode}"
    now, then = settings.routing, fitted.setup.thresholds
    yield "τ1, τ2", f"{now.tau1:g}, {now.tau2:g} → {then.tau1:.3g}, {then.tau2:.3g}"
    yield "", "as many take each path as before: traffic does not say what another path would have answered"
    yield (
        "fusion",
        "kept: feedback is on the chosen answer, not on every candidate (`odar calibrate DATA` fits both)",
    )


def _report(traffic: Traffic, fitted: TrafficFit) -> dict[str, Any]:
    return {
        "traces": traffic.traces,
        "with_feedback": traffic.marked,
        "fast_answers": len(traffic.fast),
        "fast_wrong": int(traffic.fast.wrong.sum()),
        "measured": {step.value: count for step, count in fitted.measured.items()},
        "parts": [fitted.estimator.report(), fitted.posterior.report()],
        "mix": {"before": fitted.before, "after": fitted.after},
        "thresholds": [fitted.setup.thresholds.tau1, fitted.setup.thresholds.tau2],
        "kept": ["fusion.beta", "skills"],
    }
