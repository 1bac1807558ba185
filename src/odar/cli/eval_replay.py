"""`odar eval replay`, `compare`, `fuse` and `report`: evaluations of recordings, without further calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.cli.options import FILE, command_line, json_option, settings_options
from odar.cli.terminal import format_known, plain_table, print_json, print_table
from odar.errors import InputError
from odar.evals.fusion_study import apply_rules, cross_validate, load_fusion_items, oracle_accuracy
from odar.evals.replay.arrays import load_arrays, load_panels, shared_rows
from odar.evals.replay.policies import run_policies, run_policy
from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.router_quality import arena_score, path_robustness
from odar.evals.statistics import PolicySummary, paired_difference, summarize_policies
from odar.settings import Settings

_calibration_option = click.option(
    "--calibration", type=FILE, metavar="FILE", help="Replay with this one, not the recording's own."
)
_split_option = click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")


@click.command("replay")
@click.argument("recording", type=FILE)
@click.option("--policy", "policies", multiple=True, metavar="POLICY", help="Default: odar and baselines.")
@click.option("--against", default="odar", metavar="POLICY", help="Gains are against this one.")
@_calibration_option
@_split_option
@json_option("Print a JSON list.")
def replay_command(
    recording: str,
    policies: tuple[str, ...],
    against: str,
    calibration: str | None,
    split: str | None,
    as_json: bool,
) -> None:
    """Replay policies on a RECORDING, with no further call.

    POLICY is odar, a baseline, or a list of them: baselines, fusion-rules, ablations, sweep-n, sweep-lambda,
    sweep-beta, sweep-tau, curve, all. Options follow a colon.

    \b
    odar eval replay runs/starter.jsonl
    odar eval replay runs/starter.jsonl --policy odar:tau1=0.2,tau2=0.6 \\
      --policy best-of-n:n=3
    odar eval replay runs/starter.jsonl --policy ablations \\
      --policy odar:mode=prior,rule=majority,stop=none
    """
    arrays = load_arrays(recording, calibration, split or "")
    reference = run_policy(arrays, against)
    results = list(run_policies(arrays, policies or ("odar", "baselines")))
    outcomes = [reference if spec == against else each for spec, each in results if isinstance(each, PolicyOutcome)]
    rows = summarize_policies(arrays, outcomes, reference)
    if as_json:
        print_json([{**asdict(row), "arena_score": _arena_score(row)} for row in rows])
    else:
        click.echo(f"{len(arrays)} items, {arrays.samples} slow samples each; gains are against {against}")
        _print_policies(rows)
    for spec, each in results:
        if isinstance(each, InputError):
            click.echo(f"odar: {spec} is left out: {each}", err=True)


def _print_policies(rows: Sequence[PolicySummary]) -> None:
    figures = ("accuracy [95%]", "gain [95%]", "p (BH)", "calls", "$/1000", "p50", "p95", "S/M/H")
    table = plain_table("policy", gap=2)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            str(row.accuracy),
            "–" if row.gain is None else row.gain.interval.signed(),
            format_known(row.adjusted, "{:.3f}", "–"),
            f"{row.calls:.2f}",
            "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.3f}",
            format_known(row.median_s, "{:.1f} s"),
            format_known(row.tail_s, "{:.1f} s"),
            "–" if math.isnan(row.mix[0]) else " / ".join(f"{share:.0%}" for share in row.mix),
        )
    print_table(table)


def _arena_score(row: PolicySummary) -> float | None:
    """Return RouterArena's score, or None if the cost is unknown or 0."""
    return arena_score(row.accuracy.value, row.cost_usd) if row.cost_usd else None


@click.command("compare")
@click.argument("first", type=FILE, metavar="A")
@click.argument("second", type=FILE, metavar="B")
@click.option("--only", metavar="SET", help="Only items of this set.")
@json_option("Print one JSON object.")
def compare_command(first: str, second: str, only: str | None, as_json: bool) -> None:
    """Compare A with B on the items they share. Each is RECORDING or RECORDING#POLICY; odar is the default policy.

    \b
    odar eval compare runs/starter.jsonl#odar runs/starter.jsonl#single-slow
    odar eval compare runs/new-prompts.jsonl runs/old-prompts.jsonl
    odar eval compare runs/mine.jsonl#always-hard runs/mine.jsonl#single-slow \\
      --only truthfulqa_text
    """
    panels, outcomes = [], []
    for text in (first, second):
        recording, _, policy = text.partition("#")
        panels.append(load_arrays(recording))
        outcomes.append(run_policy(panels[-1], policy or "odar"))
    shared = shared_rows(panels[0].items.keys, panels[1].items.keys)
    sizes = list(map(len, panels))
    if only is not None:
        in_set = panels[0].of_set(only)[shared[0]]
        shared = shared[0][in_set], shared[1][in_set]
        sizes = [int(panel.of_set(only).sum()) for panel in panels]
    items = len(shared[0])
    if not items:
        of_set = f" of the set {only!r}" if only else ": set, id and seed must be the same"
        raise InputError(f"{first} and {second} share no item{of_set}")
    pairs = list(zip(outcomes, shared, strict=True))
    scores = [outcome.score[rows] for outcome, rows in pairs]
    paths = [outcome.path[rows] for outcome, rows in pairs]
    difference = paired_difference(panels[0], scores[0], scores[1], shared[0])
    have_paths = min(path.min() for path in paths) >= 0
    same_path, same_path_corrected = path_robustness(*paths) if have_paths else (None, None)
    body: dict[str, Any] = {
        "items": items,
        "left_out": [size - items for size in sizes],
        "accuracy": [float(score.mean()) for score in scores],
        "calls": [float(outcome.calls[rows].mean()) for outcome, rows in pairs],
        "same_path": same_path,
        "same_path_corrected": same_path_corrected,
        "only_first_right": int((scores[0] > scores[1]).sum()),
        "only_second_right": int((scores[0] < scores[1]).sum()),
        **asdict(difference),
        "items_needed": {str(points): difference.items_needed(points) for points in (2, 5, 10)},
    }
    if as_json:
        print_json(body)
        return
    left_out = sum(body["left_out"])
    click.echo(f"{items} items in both" + (f", {left_out} left out" if left_out else ""))
    for letter, accuracy, calls, name in zip("AB", body["accuracy"], body["calls"], (first, second), strict=True):
        click.echo(f"{letter}  {accuracy:.3f}  {calls:.2f} calls  {name}")
    if same_path is not None:
        click.echo(f"same path  {same_path:.0%} of the items, {same_path_corrected:.2f} corrected for chance")
    click.echo(f"better on {body['only_first_right']} items, worse on {body['only_second_right']}")
    if difference.p is None:
        reason = f"{items} items are too few for an interval or a p-value"
        click.echo(f"A − B  {difference.interval.value:+.3f}; {reason}")
    else:
        click.echo(f"A − B  {difference.interval.signed()}, {difference.p_text} ({difference.test})")
    needed = ", ".join(f"{count:,} for {points}" for points, count in body["items_needed"].items())
    click.echo(f"items needed to show a difference, in percentage points (80% power): {needed}")


@click.command("fuse")
@click.argument("recording", type=FILE)
@_split_option
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed for the bootstrap.")
@json_option("Print one JSON object.")
@settings_options
def fuse_command(recording: str, split: str | None, seed: int, as_json: bool, settings: Settings) -> None:
    """Apply every fusion rule to the candidates of a RECORDING and compare their accuracy.

    Candidates are the fast answer and the slow samples of each item. The rule `fep` is shown twice: as configured,
    and with β and skills fitted to other items of the recording.

    \b
    odar eval fuse runs/mine.jsonl
    odar eval fuse runs/mine.jsonl.gz --set fusion.beta=0.5 --json
    """
    fusion = settings.fusion
    questions = load_fusion_items(recording, fusion.varentropy_weight, split or "")
    fitted = cross_validate(questions, seed)
    results = apply_rules(questions, fusion.beta, seed, None if fitted is None else fitted.right)
    candidates = sum(len(question.candidates) for question in questions) / len(questions)
    ceiling = oracle_accuracy(questions)
    if as_json:
        fit = None if fitted is None else {"beta": fitted.beta, "skills": fitted.skills}
        about = {"questions": len(questions), "candidates": candidates, "oracle": ceiling}
        print_json({**about, "rules": [asdict(result) for result in results], "fitted": fit})
        return
    sizes = f"{len(questions)} questions, {candidates:.1f} candidates each"
    click.echo(f"{sizes}; oracle {ceiling:.3f}; 95% intervals\n")
    click.echo(f"{'rule':19}{'accuracy':9}{'against majority':25} {'against argmin'}")
    for result in sorted(results, key=lambda result: -result.accuracy.value):
        against = f"{result.against_majority.signed():25} {result.against_argmin.signed()}"
        click.echo(f"{result.rule:19}{result.accuracy.value:<9.3f}{against}")
    if fitted is not None:
        skills = ", ".join(f"{name} {skill:.2f}" for name, skill in sorted(fitted.skills.items()))
        protocol = "fitted on four folds, judged on the fifth; on all questions"
        click.echo(f"\n{protocol} β = {fitted.beta:g}, w: {skills}")


@click.command("report")
@click.argument("recordings", type=FILE, nargs=-1, required=True, metavar="RECORDING...")
@click.option("--out", type=FILE, default="report.html", metavar="FILE", help="The page.")
@_calibration_option
@_split_option
@click.option("--train", default="Mathematics", help="What to train on, out of domain.")
@json_option("Print every table as JSON; write no page.")
def report_command(
    recordings: tuple[str, ...],
    out: str,
    calibration: str | None,
    split: str | None,
    train: str,
    as_json: bool,
) -> None:
    """Write one HTML file with every table and figure; it needs no network and no script.

    Recordings of the same models and prompts are joined. Others get a part of their own; where they hold the same
    items, they are shown as ablations.

    Adversarial rewrites make a question look harder (injection) or easier (masking) than it is. If a recording
    holds BENCHMARK+ATTACK, the answers to the rewritten questions count; otherwise the questions are rewritten and
    routed, and the recorded answers are replayed on the new paths. Out of domain, the difficulty estimator is
    trained on one category or benchmark and routes the others; at least 50 items of each are needed.

    \b
    odar eval report runs/starter.jsonl --out report.html
    odar eval report main.jsonl fast-fast.jsonl attacked.jsonl
    """
    from odar.evals.report.findings import replay_recordings
    from odar.evals.report.page import to_json, write_report

    parts = replay_recordings(load_panels(recordings, calibration, split or ""), train)
    if as_json:
        click.echo(to_json(parts))
        return
    path = Path(out)
    write_report(parts, path, command_line())
    items = sum(len(findings.arrays) for findings in parts)
    policies = max(len(findings.outcomes) for findings in parts)
    click.echo(f"{path}: {items} items, {policies} policies, {path.stat().st_size / 1000:.0f} kB")
