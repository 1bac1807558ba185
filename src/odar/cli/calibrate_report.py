"""Reports of `odar calibrate`: a fit, a certificate, a judge, traffic, and prompt sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
import numpy as np

from odar.calibration.fit import Fitted
from odar.calibration.guarantee import Certificate
from odar.calibration.judge_fit import JudgeTrial
from odar.calibration.parts import FittedPart
from odar.calibration.traffic import MIN_ENERGIES, Traffic, TrafficFit
from odar.cli.terminal import plain_table, print_facts, print_table
from odar.engine import Odar
from odar.policy.path import Thresholds
from odar.recording.schema import RecordedItem
from odar.settings import Settings
from odar.types import Step


def _print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and texts in the columns of every report."""
    print_facts(facts, gap=1, labels=11)


def print_fit(odar: Odar, fitted: Fitted, count: int) -> None:
    """Print accuracy and cost before and after, and the fitted parts."""
    click.echo(f"\n{count} items; everything fitted is judged on held-out folds; 95% intervals\n")
    click.echo(f"{'':7} {'accuracy':22} {'calls':>6} {'cost, $':>10}  simple / medium / hard")
    for name, expected in (("before", fitted.before), ("after", fitted.after)):
        cost = "unknown" if expected.cost_usd is None else f"{expected.cost_usd.value:.6f}"
        figures = f"{expected.accuracy!s:22} {expected.calls.value:>6.2f} {cost:>10}"
        click.echo(f"{name:7} {figures}  {_mix_text(expected.mix.values())}")
    click.echo(f"{'gain':7} {fitted.accuracy_gain.signed()}; calls {fitted.calls_gain.signed(2)}")
    if fitted.price_gain is fitted.cost_usd_gain:
        click.echo(f"{'':7} cost, $ {fitted.cost_usd_gain.signed(6)}")
    click.echo(f"{'':7} {fitted.moved:.0%} of the items take another path\n")
    for name, interval in fitted.baselines.items():
        click.echo(f"{name:15} {interval}")
    click.echo()
    _print_facts(_fit_facts(odar, fitted))


def _fit_facts(odar: Odar, fitted: Fitted) -> Iterator[tuple[str, str]]:
    setup, settings = fitted.setup, odar.settings
    for part in fitted.parts:
        yield part.name, _part_text(part, taken=part.model in (setup.estimator, setup.posterior))
    yield "τ1, τ2", f"{settings.routing.tau1:g}, {settings.routing.tau2:g} → {_thresholds_text(setup.thresholds)}"
    for expert, own in setup.by_expert.items():
        yield "", f"{expert}: {_thresholds_text(own)}"
    names = ("fast", "verify", "solve")
    skills = ", ".join(f"{name} {skill:.2f}" for name, skill in zip(names, setup.fusion.skills, strict=True))
    yield "fusion", f"β {settings.fusion.beta:g} → {setup.fusion.beta:g}; skills {skills}"
    if fitted.may_use_posterior:
        yield "mode", f"{settings.routing.mode} → {'prior' if setup.posterior is None else 'posterior'}"
    if setup.posterior is None:
        return
    for kind, weights in setup.posterior.weights.items():
        before, after = _weights_text(odar.posterior.weights[kind]), _weights_text(weights)
        yield "posterior", f"{kind}: {after}"
        if after != before:
            yield "", f"before: {before}"


def _weights_text(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{term} {weight:.2f}" for term, weight in weights.items())


def _part_text(part: FittedPart[Any], *, taken: bool) -> str:
    """Return whether a part was fitted or kept, and its gain."""
    if part.gain is None:
        return f"kept: {part.note}"
    if not part.better:
        verdict = "kept: not significantly better"
    else:
        verdict = "fitted" if taken else "kept: better by itself, but not for routing"
    return f"{verdict}; {part.measure}, gain {part.gain.signed()}"


def _mix_text(shares: Iterable[float]) -> str:
    """Return the shares of Simple, Medium and Hard."""
    return " / ".join(f"{share:.0%}" for share in shares)


def _thresholds_text(thresholds: Thresholds) -> str:
    return f"{thresholds.tau1:g}, {thresholds.tau2:g}"


def print_judge(trial: JudgeTrial) -> None:
    """Print the effect of the judge on accuracy and calls, and its position bias."""
    rejected = trial.rejection_reason()
    facts = [("judge", f"off: {rejected}" if rejected else 'fusion.judge = "slow"')]
    if trial.items:
        bias = f"{trial.first_place:.0%} ({trial.expected_first:.0%} without bias)"
        facts += [
            ("", f"{trial.items} items with several free-text answers, each in two opposite orders"),
            ("", f"accuracy {trial.accuracy_gain.signed()}; calls {trial.calls_gain.signed(2)}"),
            ("", f"another choice in the other order: {trial.order_dependent:.0%}; the first shown: {bias}"),
            ("", f"replies that named no answer: {trial.unreadable}"),
        ]
    _print_facts(facts)


def print_certificate(certificate: Certificate) -> None:
    """Print the certified thresholds, the test items, and the items needed to certify more."""
    bound, thresholds = certificate.bound, certificate.thresholds
    certified = f"nothing cheaper than {bound.against}; thresholds stay as they are"
    if certificate.cheaper:
        certified = f"τ1, τ2 = {thresholds.tau1:.3g}, {thresholds.tau2:.3g} (t = {certificate.t:.2f})"
    loss = f"at most {bound.at_most_worse:g} less accurate than {bound.against}"
    facts = [
        ("certified", certified),
        ("", f"{loss}, with a confidence of {bound.confidence:.0%}, on {certificate.items} items of no fit"),
        ("on these", f"accuracy {certificate.accuracy:.3f} against {certificate.reference:.3f}"),
        ("", f"calls {certificate.calls:.2f} against {certificate.reference_calls:.2f}"),
    ]
    if (items := certificate.more_items) is not None:
        facts.append(("more", f"the next cheaper setting would take about {items} more test items"))
    elif certificate.t > 0:
        facts.append(("more", "the next cheaper setting loses too much; more items would not help"))
    stays = "models, prompts, thresholds and quantiles stay as they are"
    _print_facts([*facts, ("assumes", f"that later questions are exchangeable with these, and that {stays}")])


def print_traffic(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> None:
    """Print the result of a fit to traffic."""
    fast = traffic.fast
    click.echo(f"{traffic.traces} traces of these models and prompts, {traffic.marked} with feedback;")
    click.echo(f"of {len(fast)} it is known whether the fast answer was wrong ({int(fast.wrong.sum())} were)\n")
    _print_facts(_traffic_facts(settings, traffic, fitted))
    if len(fast):
        mixes = f"{_mix_text(fitted.before)} → {_mix_text(fitted.after)}"
        click.echo(f"\nsimple / medium / hard of these {len(fast)}: {mixes}")


def _traffic_facts(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> Iterator[tuple[str, str]]:
    for step in Step:
        known = int(np.isfinite(traffic.energies.get(step, np.zeros(0))).sum())
        lacking = f"{MIN_ENERGIES} candidates with log-probs are needed, {MIN_ENERGIES - known} more"
        yield f"μ, σ {step}", f"measured on {known} candidates" if step in fitted.measured else f"kept: {lacking}"
    for part in (fitted.estimator, fitted.posterior):
        yield part.name, _part_text(part, taken=part.better)
    if fitted.setup.posterior is None:
        yield "", f"not in use: routing.mode = {settings.routing.mode}"
    now, then = settings.routing, fitted.setup.thresholds
    yield "τ1, τ2", f"{now.tau1:g}, {now.tau2:g} → {then.tau1:.3g}, {then.tau2:.3g}"
    yield "", "as many take each path as before: traffic does not say what another path would have answered"
    yield (
        "fusion",
        "kept: feedback is on the chosen answer, not on every candidate (`odar calibrate DATA` fits both)",
    )


def traffic_report(traffic: Traffic, fitted: TrafficFit) -> dict[str, Any]:
    """Return the result of a fit to traffic as plain data."""
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


PROMPT_FIGURES = {
    "answers": ("answers", "d"),
    "accuracy": ("accuracy", ".3f"),
    "tokens": ("tokens", ".0f"),
    "cut_off": ("cut off", ".2f"),
    "unstated": ("unstated", ".2f"),
    "accuracy_per_100_tokens": ("per 100 tokens", ".2f"),
}
"""Title and format of each figure of a prompt set (SPEC 3.7)."""


def prompt_rows(prompts: str, items: Iterable[RecordedItem]) -> list[dict[str, Any]]:
    """Return the figures of a prompt set, means or shares, with a row for each step that has answers."""
    attempts = [attempt for item in items for attempt in item.attempts]
    rows = []
    for step in Step:
        if own := [attempt for attempt in attempts if attempt.step is step]:
            accuracy = sum(attempt.score or 0.0 for attempt in own) / len(own)
            tokens = sum(attempt.usage.output or len(attempt.tokens) for attempt in own) / len(own)
            row = {
                "answers": len(own),
                "accuracy": accuracy,
                "tokens": tokens,
                "cut_off": sum(attempt.finish == "length" for attempt in own) / len(own),
                "unstated": sum(not attempt.stated for attempt in own) / len(own),
                "accuracy_per_100_tokens": 100 * accuracy / tokens if tokens else 0.0,
            }
            rows.append({"prompts": prompts, "step": step.value, **row})
    return rows


def print_prompts(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of `prompt_rows`."""
    titles = ("prompts", "step", *(title for title, _ in PROMPT_FIGURES.values()))
    table = plain_table(*titles, gap=2, right=titles[2:])
    for row in rows:
        figures = (format(row[name], form) for name, (_, form) in PROMPT_FIGURES.items())
        table.add_row(row["prompts"], row["step"], *figures)
    print_table(table)
