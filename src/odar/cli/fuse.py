"""`odar fuse`: every fusion rule on recorded candidates."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from odar.cli.options import settings_options
from odar.evals.fusion_file import apply_rules, load_questions, oracle, stop_early
from odar.fusion.choose import Fusion
from odar.fusion.stopping import Stopping
from odar.settings import Settings


@click.command("fuse")
@click.argument("file")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the bootstrap.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def command(file: str, seed: int, as_json: bool, settings: Settings) -> None:
    """Apply every fusion rule to the recorded candidates in FILE and compare their accuracy.

    FILE has one JSON object a line: gold (the right answer) and candidates, each with text or answer, and tokens
    with log-probabilities where there are any. docs/reference/file-formats.md has it in full.

    \b
    odar fuse samples.jsonl
    odar fuse samples.jsonl --set fusion.beta=0.5 --json
    """
    fusion = settings.fusion
    questions = load_questions(file, fusion.varentropy_weight)
    results = apply_rules(questions, fusion.beta, fusion.missing_limit, seed)
    best = Fusion(fusion.rule, fusion.beta, fusion.missing_limit)
    sizes = sum(len(question.candidates) for question in questions) / len(questions)
    stops = {level: stop_early(questions, best, Stopping(level)) for level in (1.0, 0.9, 0.8)}
    ceiling = oracle(questions)
    if as_json:
        body = {
            "questions": len(questions),
            "candidates": sizes,
            "oracle": ceiling,
            "rules": [asdict(result) for result in results],
            "stopping": [{"confidence": c, "candidates": n, "accuracy": a} for c, (n, a) in stops.items()],
        }
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    click.echo(f"{len(questions)} questions, {sizes:.1f} candidates each; oracle {ceiling:.3f}\n")
    click.echo(f"{'rule':20} {'accuracy [95%]':>22}  {'against majority [95%]':>25}")
    for result in sorted(results, key=lambda result: -result.accuracy.mean):
        difference = result.against_majority
        against = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        click.echo(f"{result.rule:20} {result.accuracy!s:>22}  {against:>25}")
    click.echo(f"\n{'stopping early':20} {'accuracy':>22}  {'mean candidates':>25}")
    for level, (looked, right) in stops.items():
        name = "arithmetic only" if level == 1.0 else f"confidence {level:g}"
        click.echo(f"{name:20} {right:>22.3f}  {looked:>25.2f}")
