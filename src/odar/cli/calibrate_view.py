"""What `odar calibrate` prints: before and after, part by part, within 80 columns."""

from __future__ import annotations

from typing import Any

import click

from odar.calibration.fit import Expectation, Fitted
from odar.calibration.guarantee import Certificate
from odar.calibration.judge_fit import JudgeTrial
from odar.calibration.parts import Part
from odar.engine import Odar
from odar.policy.posterior import PosteriorDifficulty


def show(odar: Odar, fitted: Fitted, count: int) -> None:
    """The evidence and what came of it."""
    click.echo(f"\n{count} items; everything fitted is judged on held-out folds; 95% intervals\n")
    click.echo(f"{'':7} {'accuracy':22} {'calls':>6} {'cost, $':>10}  simple / medium / hard")
    for name, expected in (("before", fitted.before), ("after", fitted.after)):
        figures = f"{expected.accuracy!s:22} {expected.calls.value:>6.2f} {_cost(expected):>10}"
        click.echo(f"{name:7} {figures}  {_mix(expected)}")
    click.echo(f"{'gain':7} {fitted.accuracy_gain.signed()}; calls {fitted.calls_gain.signed(2)}")
    if fitted.price_gain is fitted.cost_gain:
        click.echo(f"{'':7} cost, $ {fitted.cost_gain.signed(6)}")
    click.echo(f"{'':7} {fitted.moved:.0%} of the items take another path\n")
    for name, interval in fitted.baselines.items():
        click.echo(f"{name:15} {interval}")
    click.echo()
    for part in fitted.parts:
        click.echo(part_line(part, taken=_taken(fitted, part)))
    setup, settings = fitted.setup, odar.settings
    skills = ", ".join(
        f"{name} {skill:.2f}" for name, skill in zip(("fast", "verify", "solve"), setup.fusion.skills, strict=True)
    )
    click.echo(
        f"τ1, τ2      {settings.routing.tau1:g}, {settings.routing.tau2:g} → "
        f"{setup.thresholds.tau1:g}, {setup.thresholds.tau2:g}"
    )
    click.echo(f"fusion      β {settings.fusion.beta:g} → {setup.fusion.beta:g}; skills {skills}")
    if fitted.looks_first:
        click.echo(f"mode        {settings.routing.mode} → {'prior' if setup.posterior is None else 'posterior'}")
    if setup.posterior is not None:
        for kind in setup.posterior.weights:
            before, after = (weights(each, kind) for each in (odar.posterior, setup.posterior))
            click.echo(
                f"{'posterior':11} {kind}: {after}" + ("" if after == before else f"\n{'':11} before: {before}")
            )


def show_judge(trial: JudgeTrial, rejected: str | None) -> None:
    """What the judge would change, and its position bias."""
    if trial.items:
        bias = f"{trial.first_place:.0%} ({trial.expected_first:.0%} without bias)"
        click.echo(f"judge       {trial.items} items with several free-text answers, each in two opposite orders")
        click.echo(f"{'':11} accuracy {trial.accuracy_gain.signed()}; calls {trial.calls_gain.signed(2)}")
        click.echo(
            f"{'':11} another choice in the other order: {trial.order_dependent:.0%}; the first shown: {bias}"
        )
        click.echo(f"{'':11} replies that named no answer: {trial.unreadable}")
    click.echo(f"{'judge':11} " + (f"off: {rejected}" if rejected else 'fusion.judge = "slow"'))


def part_line(part: Part[Any], *, taken: bool) -> str:
    """One part: fitted or not, and by how much it was better."""
    if part.gain is None:
        return f"{part.name:11} kept: {part.note}"
    if not part.better:
        verdict = "kept: not clearly better"
    else:
        verdict = "fitted" if taken else "kept: better by itself, but not for routing"
    return f"{part.name:11} {verdict}\n{'':11} {part.measure}, gain {part.gain.signed()}"


def weights(posterior: PosteriorDifficulty, kind: str) -> str:
    """The weights of the terms for one kind of answer."""
    return ", ".join(f"{term} {weight:.2f}" for term, weight in posterior.weights[kind].items())


def _taken(fitted: Fitted, part: Part[Any]) -> bool:
    return part.model is not None and part.model in (fitted.setup.estimator, fitted.setup.posterior)


def _cost(expected: Expectation) -> str:
    return "unknown" if expected.cost_usd is None else f"{expected.cost_usd.value:.6f}"


def _mix(expected: Expectation) -> str:
    return " / ".join(f"{share:.0%}" for share in expected.mix)


def show_certificate(found: Certificate) -> None:
    """What was certified, by how many items, and what it takes to certify more."""
    promise, thresholds = found.promise, found.thresholds
    if found.cheaper:
        click.echo(f"certified   τ1, τ2 = {thresholds.tau1:.3g}, {thresholds.tau2:.3g} (t = {found.t:.2f})")
    else:
        click.echo(f"certified   nothing cheaper than {promise.against}; thresholds stay as they are")
    click.echo(f"            at most {promise.at_most_worse:g} less accurate than {promise.against},")
    click.echo(f"            with a confidence of {promise.confidence:.0%}, on {found.items} items of no fit")
    click.echo(f"on these    accuracy {found.accuracy:.3f} against {found.reference:.3f},")
    click.echo(f"            calls {found.calls:.2f} against {found.reference_calls:.2f}")
    if found.more_items is not None:
        click.echo(f"more        the next cheaper setting would take about {found.more_items} more test items")
    elif found.t > 0:
        click.echo("more        the next cheaper setting loses too much; more items would not help")
    click.echo("assumes     that later questions are exchangeable with these, and that models,")
    click.echo("            prompts, thresholds and quantiles stay as they are")
