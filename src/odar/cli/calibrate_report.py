"""What `odar calibrate` prints about a fit, a certificate, a judge, traffic, and prompt sets."""

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


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and texts in the columns that every report of `odar calibrate` has."""
    print_facts(facts, gap=1, labels=11)


def show_fit(odar: Odar, fitted: Fitted, count: int) -> None:
    """Print accuracy and cost before and after, and what was fitted."""
    click.echo(f"\n{count} items; everything fitted is judged on held-out folds; 95% intervals\n")
    click.echo(f"{'':7} {'accuracy':22} {'calls':>6} {'cost, $':>10}  simple / medium / hard")
    for name, expected in (("before", fitted.before), ("after", fitted.after)):
        cost = "unknown" if expected.cost_usd is None else f"{expected.cost_usd.value:.6f}"
        figures = f"{expected.accuracy!s:22} {expected.calls.value:>6.2f} {cost:>10}"
        click.echo(f"{name:7} {figures}  {mix_text(expected.mix.values())}")
    click.echo(f"{'gain':7} {fitted.accuracy_gain.signed()}; calls {fitted.calls_gain.signed(2)}")
    if fitted.price_gain is fitted.cost_usd_gain:
        click.echo(f"{'':7} cost, $ {fitted.cost_usd_gain.signed(6)}")
    click.echo(f"{'':7} {fitted.moved:.0%} of the items take another path\n")
    for name, interval in fitted.baselines.items():
        click.echo(f"{name:15} {interval}")
    click.echo()
    show_facts(_fit_facts(odar, fitted))


def _fit_facts(odar: Odar, fitted: Fitted) -> Iterator[tuple[str, str]]:
    setup, settings = fitted.setup, odar.settings
    for part in fitted.parts:
        yield part.name, part_text(part, taken=part.model in (setup.estimator, setup.posterior))
    yield "τ1, τ2", f"{settings.routing.tau1:g}, {settings.routing.tau2:g} → {_taus(setup.thresholds)}"
    for expert, own in setup.by_expert.items():
        yield "", f"{expert}: {_taus(own)}"
    names = ("fast", "verify", "solve")
    skills = ", ".join(f"{name} {skill:.2f}" for name, skill in zip(names, setup.fusion.skills, strict=True))
    yield "fusion", f"β {settings.fusion.beta:g} → {setup.fusion.beta:g}; skills {skills}"
    if fitted.looks_first:
        yield "mode", f"{settings.routing.mode} → {'prior' if setup.posterior is None else 'posterior'}"
    for kind, weights in (setup.posterior.weights if setup.posterior else {}).items():
        before, after = (
            ", ".join(f"{term} {weight:.2f}" for term, weight in each.items())
            for each in (odar.posterior.weights[kind], weights)
        )
        yield "posterior", f"{kind}: {after}"
        if after != before:
            yield "", f"before: {before}"


def part_text(part: FittedPart[Any], *, taken: bool) -> str:
    """Return whether a part was fitted, and by how much it was better."""
    if part.gain is None:
        return f"kept: {part.note}"
    if not part.better:
        verdict = "kept: not significantly better"
    else:
        verdict = "fitted" if taken else "kept: better by itself, but not for routing"
    return f"{verdict}; {part.measure}, gain {part.gain.signed()}"


def mix_text(shares: Iterable[float]) -> str:
    """Shares of Simple, Medium and Hard."""
    return " / ".join(f"{share:.0%}" for share in shares)


def _taus(thresholds: Thresholds) -> str:
    return f"{thresholds.tau1:g}, {thresholds.tau2:g}"


def show_judge(trial: JudgeTrial, rejected: str | None) -> None:
    """Print what the judge would change, and its position bias."""
    facts = [("judge", f"off: {rejected}" if rejected else 'fusion.judge = "slow"')]
    if trial.items:
        bias = f"{trial.first_place:.0%} ({trial.expected_first:.0%} without bias)"
        facts += [
            ("", f"{trial.items} items with several free-text answers, each in two opposite orders"),
            ("", f"accuracy {trial.accuracy_gain.signed()}; calls {trial.calls_gain.signed(2)}"),
            ("", f"another choice in the other order: {trial.order_dependent:.0%}; the first shown: {bias}"),
            ("", f"replies that named no answer: {trial.unreadable}"),
        ]
    show_facts(facts)


def show_certificate(found: Certificate) -> None:
    """Print what was certified, by how many items, and what it takes to certify more."""
    bound, thresholds = found.bound, found.thresholds
    certified = f"nothing cheaper than {bound.against}; thresholds stay as they are"
    if found.cheaper:
        certified = f"τ1, τ2 = {thresholds.tau1:.3g}, {thresholds.tau2:.3g} (t = {found.t:.2f})"
    level = f"{bound.confidence:.0%}, on {found.items} items of no fit"
    facts = [
        ("certified", certified),
        (
            "",
            f"at most {bound.at_most_worse:g} less accurate than {bound.against}, with a confidence of {level}",
        ),
        ("on these", f"accuracy {found.accuracy:.3f} against {found.reference:.3f}"),
        ("", f"calls {found.calls:.2f} against {found.reference_calls:.2f}"),
    ]
    if found.more_items is not None:
        facts.append(("more", f"the next cheaper setting would take about {found.more_items} more test items"))
    elif found.t > 0:
        facts.append(("more", "the next cheaper setting loses too much; more items would not help"))
    stays = "models, prompts, thresholds and quantiles stay as they are"
    show_facts([*facts, ("assumes", f"that later questions are exchangeable with these, and that {stays}")])


def show_traffic(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> None:
    """Print what traffic taught."""
    fast = traffic.fast
    click.echo(f"{traffic.traces} traces of these models and prompts, {traffic.marked} with feedback;")
    click.echo(f"of {len(fast)} it is known whether the fast answer was wrong ({int(fast.wrong.sum())} were)\n")
    show_facts(_traffic_facts(settings, traffic, fitted))
    if len(fast):
        mixes = f"{mix_text(fitted.before)} → {mix_text(fitted.after)}"
        click.echo(f"\nsimple / medium / hard of these {len(fast)}: {mixes}")


def _traffic_facts(settings: Settings, traffic: Traffic, fitted: TrafficFit) -> Iterator[tuple[str, str]]:
    for step in Step:
        known = int(np.isfinite(traffic.energies.get(step, np.zeros(0))).sum())
        lacking = f"{MIN_ENERGIES} candidates with log-probs are needed, {MIN_ENERGIES - known} more"
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


def traffic_report(traffic: Traffic, fitted: TrafficFit) -> dict[str, Any]:
    """Return the same as plain data."""
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
"""Figures by which prompt sets are compared (SPEC 3.7): title and format of each."""


def prompt_rows(prompts: str, items: Iterable[RecordedItem]) -> list[dict[str, Any]]:
    """Return the figures of a prompt set: a row for each step that has answers, all of them means or shares."""
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


def show_prompts(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the rows of every prompt set."""
    titles = ("prompts", "step", *(title for title, _ in PROMPT_FIGURES.values()))
    table = plain_table(*titles, gap=2, right=titles[2:])
    for row in rows:
        figures = (format(row[name], form) for name, (_, form) in PROMPT_FIGURES.items())
        table.add_row(row["prompts"], row["step"], *figures)
    print_table(table)
