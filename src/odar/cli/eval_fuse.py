"""`odar eval fuse`: every fusion rule on the candidates of a recording."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import click

from odar.calibration.bootstrap import Interval
from odar.cli.options import UserPath, settings_options
from odar.evals.fusion_study import (
    HeldOut,
    RuleResult,
    StoppingResult,
    apply_rules,
    held_out,
    load_fusion_items,
    oracle,
    stop_early,
)
from odar.policy.fusion import Fusion
from odar.settings import Settings


@click.command("fuse")
@click.argument("recording", type=UserPath())
@click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed for the bootstrap.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def command(recording: str, split: str | None, seed: int, as_json: bool, settings: Settings) -> None:
    """Apply every fusion rule to the candidates of a RECORDING and compare their accuracy.

    Candidates are the fast answer and the slow samples of each item. The rule `fep` is shown twice: as configured,
    and with β and skills fitted to other items of the recording.

    \b
    odar eval fuse runs/mine.jsonl
    odar eval fuse runs/mine.jsonl.gz --set fusion.beta=0.5 --json
    """
    fusion = settings.fusion
    questions = load_fusion_items(recording, fusion.varentropy_weight, split or "")
    fitted = held_out(questions, fusion.missing_limit, seed)
    results = apply_rules(
        questions, fusion.beta, fusion.missing_limit, seed, None if fitted is None else fitted.right
    )
    best = Fusion(fusion.rule, fusion.beta, fusion.missing_limit)
    sizes = sum(len(question.candidates) for question in questions) / len(questions)
    levels = ((1.0, 1), (0.9, 1), (0.8, fusion.first_wave), (0.8, 1))
    stops = [stop_early(questions, best, level, first, seed) for level, first in levels]
    ceiling = oracle(questions)
    if as_json:
        body = {
            "questions": len(questions),
            "candidates": sizes,
            "oracle": ceiling,
            "rules": [_plain(result) for result in results],
            "stopping": [_plain(result) for result in stops],
            "fitted": None if fitted is None else {"beta": _portable(fitted.beta), "skills": fitted.skills},
        }
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    click.echo(f"{len(questions)} questions, {sizes:.1f} candidates each; oracle {ceiling:.3f}; 95% intervals\n")
    _show(results, fitted, stops)


def _show(results: list[RuleResult], fitted: HeldOut | None, stops: list[StoppingResult]) -> None:
    click.echo(f"{'rule':19}{'accuracy':9}{'against majority':25} {'against argmin'}")
    for result in sorted(results, key=lambda result: -result.accuracy.value):
        against = f"{result.against_majority.signed():25} {result.against_argmin.signed()}"
        click.echo(f"{result.rule:19}{result.accuracy.value:<9.3f}{against}")
    if fitted is not None:
        skills = ", ".join(f"{name} {skill:.2f}" for name, skill in sorted(fitted.skills.items()))
        click.echo(
            f"\nfitted on four folds, judged on the fifth; on all questions β = {fitted.beta:g}, w: {skills}"
        )
    click.echo(f"\n{'stopping early':19}{'accuracy':9}{'against all samples':25} slow samples (saved)")
    for stop in stops:
        name = "arithmetic only" if stop.confidence == 1.0 else f"confidence {stop.confidence:g}"
        if stop.first_look > 1:
            name = f"{stop.confidence:g}, looks from {stop.first_look}"
        figures = f"{stop.accuracy:<9.3f}{stop.against_all.signed():25} {stop.slow_calls:.2f} ({stop.saved:.0%})"
        click.echo(f"{name:19}{figures}")


def _portable(value: float) -> float | str:
    """JSON has no ∞."""
    return value if math.isfinite(value) else str(value)


def _plain(result: RuleResult | StoppingResult) -> dict[str, Any]:
    """A result as plain data, intervals by name."""
    found = {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: value._asdict() if isinstance(value, Interval) else value for name, value in found.items()}
