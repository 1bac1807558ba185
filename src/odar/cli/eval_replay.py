"""`odar eval replay`, `compare`, `fuse` and `report`: what recordings show, with no further call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.cli.options import FILE, command_line, json_option, settings_options
from odar.cli.terminal import plain_table, print_json
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
    found = list(run_policies(arrays, policies or ("odar", "baselines")))
    outcomes = [reference if spec == against else each for spec, each in found if isinstance(each, PolicyOutcome)]
    rows = summarize_policies(arrays, outcomes, reference)
    if as_json:
        print_json([{**asdict(row), "arena_score": _arena_score(row)} for row in rows])
    else:
        click.echo(f"{len(arrays)} items, {arrays.samples} slow samples each; gains are against {against}")
        _print(rows)
    for spec, each in found:
        if isinstance(each, InputError):
            click.echo(f"odar: {spec} is left out: {each}", err=True)


def _print(rows: Sequence[PolicySummary]) -> None:
    from rich.console import Console

    table = plain_table("policy", gap=2)
    for name in ("accuracy [95%]", "gain [95%]", "p (BH)", "calls", "$/1000", "p50", "p95", "S/M/H"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            str(row.accuracy),
            "–" if row.gain is None else row.gain.interval.signed(),
            "–" if row.adjusted is None else f"{row.adjusted:.3f}",
            f"{row.calls:.2f}",
            "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.3f}",
            *("unknown" if math.isnan(seconds) else f"{seconds:.1f} s" for seconds in (row.median_s, row.tail_s)),
            "–" if math.isnan(row.mix[0]) else " / ".join(f"{share:.0%}" for share in row.mix),
        )
    Console(highlight=False, width=None if Console().is_terminal else 140).print(table)


def _arena_score(row: PolicySummary) -> float | None:
    """RouterArena's score; None if the cost is unknown or nothing was charged."""
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
    sides = []
    for text in (first, second):
        place, _, policy = text.partition("#")
        arrays = load_arrays(place)
        sides.append((arrays, run_policy(arrays, policy or "odar")))
    (one, _), (other, _) = sides
    shared = shared_rows(one.items.keys, other.items.keys)
    if only is not None:
        own = one.of_set(only)[shared[0]]
        shared = shared[0][own], shared[1][own]
    items, sizes = len(shared[0]), [len(side) if only is None else side.of_set(only).sum() for side in (one, other)]
    if not items:
        of_set = f" of the set {only!r}" if only else ": set, id and seed must be the same"
        raise InputError(f"{first} and {second} share no item{of_set}")
    scores, calls, paths = (
        [getattr(outcome, name)[rows] for (_, outcome), rows in zip(sides, shared, strict=True)]
        for name in ("score", "calls", "path")
    )
    found = paired_difference(one, scores[0], scores[1], shared[0])
    same = (None, None) if min(path.min() for path in paths) < 0 else path_robustness(*paths)
    body: dict[str, Any] = {
        "items": items,
        "left_out": [int(size) - items for size in sizes],
        "accuracy": [float(score.mean()) for score in scores],
        "calls": [float(each.mean()) for each in calls],
        "same_path": same[0],
        "same_path_corrected": same[1],
        "only_first_right": int((scores[0] > scores[1]).sum()),
        "only_second_right": int((scores[0] < scores[1]).sum()),
        **asdict(found),
        "items_needed": {str(points): found.items_needed(points) for points in (2, 5, 10)},
    }
    if as_json:
        print_json(body)
        return
    left_out = sum(body["left_out"])
    click.echo(f"{items} items in both" + f", {left_out} left out" * bool(left_out))
    for side, name in enumerate((first, second)):
        click.echo(f"{'AB'[side]}  {body['accuracy'][side]:.3f}  {body['calls'][side]:.2f} calls  {name}")
    if same[0] is not None:
        click.echo(f"same path  {same[0]:.0%} of the items, {same[1]:.2f} corrected for chance")
    click.echo(f"better on {body['only_first_right']} items, worse on {body['only_second_right']}")
    if found.p is None:
        few = f"{items} items are too few for an interval or a p-value"
        click.echo(f"A − B  {found.interval.value:+.3f}; {few}")
    else:
        click.echo(f"A − B  {found.interval.signed()}, {found.p_text} ({found.test})")
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
    sizes = sum(len(question.candidates) for question in questions) / len(questions)
    ceiling = oracle_accuracy(questions)
    if as_json:
        fit = None if fitted is None else {"beta": fitted.beta, "skills": fitted.skills}
        about = {"questions": len(questions), "candidates": sizes, "oracle": ceiling}
        print_json({**about, "rules": [asdict(result) for result in results], "fitted": fit})
        return
    click.echo(f"{len(questions)} questions, {sizes:.1f} candidates each; oracle {ceiling:.3f}; 95% intervals\n")
    click.echo(f"{'rule':19}{'accuracy':9}{'against majority':25} {'against argmin'}")
    for result in sorted(results, key=lambda result: -result.accuracy.value):
        against = f"{result.against_majority.signed():25} {result.against_argmin.signed()}"
        click.echo(f"{result.rule:19}{result.accuracy.value:<9.3f}{against}")
    if fitted is not None:
        skills = ", ".join(f"{name} {skill:.2f}" for name, skill in sorted(fitted.skills.items()))
        how = "fitted on four folds, judged on the fifth; on all questions"
        click.echo(f"\n{how} β = {fitted.beta:g}, w: {skills}")


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
    place = Path(out)
    write_report(parts, place, command_line())
    items = sum(len(findings.arrays) for findings in parts)
    policies = max(len(findings.outcomes) for findings in parts)
    click.echo(f"{place}: {items} items, {policies} policies, {place.stat().st_size / 1000:.0f} kB")
