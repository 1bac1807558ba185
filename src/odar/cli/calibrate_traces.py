"""`odar calibrate --from-traces`: the parts that recorded traffic with feedback can teach."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from odar.calibration.install import incumbents, made_of, part_report, posterior_document, table
from odar.calibration.traffic import FEWEST_ENERGIES, Traffic, TrafficFit, fit_traffic, read_traffic
from odar.calibration_file import Calibration
from odar.cli.calibrate import part_line, write_calibration
from odar.cli.options import command_line
from odar.difficulty.estimator import LearnedEstimator
from odar.engine import Odar
from odar.errors import InputError
from odar.settings import Settings
from odar.types import Step


def calibrate_from_traces(settings: Settings, out: str, *, as_json: bool) -> int:
    """Read the store, fit, say what came of it, and write it where anything changed."""
    with Odar(settings) as odar:
        today = incumbents(odar)
        sources = {step: (odar.cards[step.role][0].name, odar.prompts[step].md5) for step in Step}
        traffic = _read(odar, sources, today.estimator)
        fitted = fit_traffic(traffic, today)
        if as_json:
            written = out if fitted.changed else None
            click.echo(json.dumps({**_report(traffic, fitted), "written": written}, ensure_ascii=False))
        else:
            _show(odar, traffic, fitted)
        if not fitted.changed:
            click.echo("odar: not written: nothing that could be fitted is better than what is in use", err=True)
            return 1
        made = {"command": command_line(), "data": "traces", "items": len(traffic.fast)}
        calibration = Calibration(
            statistics=table(odar, fitted.setup.statistics),
            settings={**odar.calibration.settings, **_thresholds(odar, fitted)},
            posterior=posterior_document(odar, fitted.setup.posterior),
            estimator=fitted.setup.estimator.document() if fitted.setup.estimator else odar.calibration.estimator,
            made=made_of(made),
            report=_report(traffic, fitted),
        )
    write_calibration(calibration, out, quiet=as_json)
    return 0


def _read(odar: Odar, sources: Mapping[Step, tuple[str, str]], estimator: LearnedEstimator | None) -> Traffic:
    from odar.store.archive import Archive
    from odar.store.database import Database
    from odar.store.record import Filter

    if not odar.settings.store.enabled:
        raise InputError("store.enabled is false: there are no traces to fit to")
    with Database(odar.settings.store) as database:
        rows = Archive(database).export(Filter(status="ok"))
        traffic = read_traffic(rows, sources, estimator, odar.settings.fusion.varentropy_weight)
    if not traffic.traces:
        models = " and ".join(sorted({model for model, _ in sources.values()}))
        raise InputError(f"the store holds no trace of {models} with the prompts in use")
    return traffic


def _show(odar: Odar, traffic: Traffic, fitted: TrafficFit) -> None:
    fast = traffic.fast
    click.echo(f"{traffic.traces} traces of these models and prompts, {traffic.marked} with feedback;")
    click.echo(f"of {len(fast)} it is known whether the fast answer was wrong ({int(fast.wrong.sum())} were)\n")
    for step in Step:
        count = fitted.measured.get(step)
        word = f"measured on {count} candidates" if count else f"kept: {_few(traffic, step)}"
        click.echo(f"{f'μ, σ {step}':11} {word}")
    click.echo(part_line(fitted.estimator, taken=fitted.estimator.better))
    posterior = part_line(fitted.posterior, taken=fitted.posterior.better)
    if fitted.setup.posterior is None:
        posterior += f"\n{'':11} not in use: routing.mode = {odar.settings.routing.mode}"
    click.echo(posterior)
    now, then = odar.settings.routing, fitted.setup.thresholds
    click.echo(f"{'τ1, τ2':11} {now.tau1:g}, {now.tau2:g} → {then.tau1:.3g}, {then.tau2:.3g}")
    click.echo(f"{'':11} as many take each path as before: traffic does not say what")
    click.echo(f"{'':11} another path would have answered")
    click.echo(f"{'fusion':11} kept: feedback is on the chosen answer, not on every candidate")
    click.echo(f"{'':11} (`odar calibrate DATA` fits both)\n")
    if len(fast):
        mixes = [" / ".join(f"{share:.0%}" for share in mix) for mix in (fitted.before, fitted.after)]
        click.echo(f"simple / medium / hard of these {len(fast)}: {mixes[0]} → {mixes[1]}")


def _thresholds(odar: Odar, fitted: TrafficFit) -> dict[str, float]:
    """τ1 and τ2 as settings, where they moved."""
    then = fitted.setup.thresholds
    moved = (then.tau1, then.tau2) != (odar.settings.routing.tau1, odar.settings.routing.tau2)
    return {"routing.tau1": then.tau1, "routing.tau2": then.tau2} if moved else {}


def _few(traffic: Traffic, step: Step) -> str:
    count = int(np.isfinite(traffic.energies.get(step, np.zeros(0))).sum())
    return f"{FEWEST_ENERGIES} candidates with log-probs are needed, {FEWEST_ENERGIES - count} more"


def _report(traffic: Traffic, fitted: TrafficFit) -> dict[str, Any]:
    return {
        "traces": traffic.traces,
        "with_feedback": traffic.marked,
        "fast_answers": len(traffic.fast),
        "fast_wrong": int(traffic.fast.wrong.sum()),
        "measured": {step.value: count for step, count in fitted.measured.items()},
        "parts": [part_report(fitted.estimator), part_report(fitted.posterior)],
        "mix": {"before": fitted.before, "after": fitted.after},
        "thresholds": [fitted.setup.thresholds.tau1, fitted.setup.thresholds.tau2],
        "kept": ["fusion.beta", "skills"],
    }
