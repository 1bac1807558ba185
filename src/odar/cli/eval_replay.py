"""`odar eval replay`, `compare`, `fuse` and `report`: evaluations of recordings, without further calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.cli.options import FILE, command_line, json_option, settings_options
from odar.cli.terminal import format_known, notice, print_columns, print_json, print_text
from odar.config import with_values
from odar.errors import InputError, plural
from odar.lab.fusion_study import apply_rules, fitted_skills, oracle_accuracy
from odar.lab.replay.outcomes import equal_accuracy_cost
from odar.lab.replay.policies import run_policies, run_policy
from odar.lab.replay.table import ReplayTable, load_table, load_tables, shared_rows
from odar.lab.router_quality import arena_score, path_robustness
from odar.lab.statistics import Difference, PolicySummary, paired_difference, summarize_policies
from odar.settings import Settings
from odar.types import SLOW

_calibration_option = click.option(
    "--calibration", type=FILE, metavar="FILE", help="Replay with this one, not the recording's own."
)
_split_option = click.option(
    "--split", type=click.Choice(["calibrate", "held-out"]), help="Use only items of this split."
)


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

    POLICY is odar (as in the recording's settings), cascade, paper, a baseline, the stages of a fixed choice
    (slow*2), or a list of them: fixed, baselines, fusion-rules, ablations, sweep-n, sweep-lambda, sweep-beta,
    sweep-tau, curve, all. Options follow a colon.

    \b
    odar eval replay runs/starter.jsonl
    odar eval replay runs/starter.jsonl --policy cascade:dial=economy \\
      --policy paper:tau1=0.2,tau2=0.6 --policy best-of-n:n=3
    odar eval replay runs/starter.jsonl --policy curve --policy fixed
    """
    table = load_table(recording, calibration, split or "")
    reference = run_policy(table, against)
    outcomes, left_out = run_policies(table, policies or ("odar", "baselines"))
    rows = summarize_policies(table, list(outcomes.values()), reference)
    if as_json:
        print_json([{**asdict(row), "arena_score": arena_score(row.accuracy.value, row.cost_usd)} for row in rows])
    else:
        sizes = f"{plural(len(table), 'item')}, {plural(table.samples(SLOW), 'slow sample')} each"
        click.echo(f"{sizes}; gains are against {against}")
        print_policies(rows, table)
        if curve := [each for spec, each in outcomes.items() if spec.startswith("cascade:dial=")]:
            click.echo(equal_accuracy_cost(curve, run_policy(table, "single-slow")))
    for spec, reason in left_out.items():
        notice(f"{spec} is left out: {reason}")


def print_policies(rows: Sequence[PolicySummary], table: ReplayTable, score: str = "right") -> None:
    """Print the policies; a terminal gets the first columns that it has room for.

    `score` is the title of the score. "over fixed" is the gain over the best mixture of fixed choices at the same
    cost.
    """
    columns = {
        "policy": [row.name for row in rows],
        score: [f"{row.accuracy.value:.3f}" for row in rows],
        "gain [95%]": ["–" if row.gain is None else row.gain.interval.signed() for row in rows],
        "calls": [f"{row.calls:.2f}" for row in rows],
        "$/1000": [f"{1000 * row.cost_usd:.3f}" for row in rows],
        "over fixed": ["–" if row.over_fixed is None else f"{row.over_fixed.value:+.3f}" for row in rows],
        "p (BH)": [format_known(row.adjusted, "{:.3f}", "–") for row in rows],
        f"{score} [95%]": [str(row.accuracy) for row in rows],
        "p50": [format_known(row.median_s, "{:.1f} s") for row in rows],
        "p95": [format_known(row.tail_s, "{:.1f} s") for row in rows],
        "S/M/H": [" / ".join(f"{share:.0%}" for share in row.mix) for row in rows],
    }
    print_columns(columns)
    if table.nominal:
        click.echo("prices are nominal: that of a model without a price is set by its size")


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
    tables = []
    outcomes = []
    for text in (first, second):
        recording, _, policy = text.partition("#")
        tables.append(load_table(recording))
        outcomes.append(run_policy(tables[-1], policy or "odar"))
    # the items that both recordings hold
    shared = shared_rows(tables[0].column("key"), tables[1].column("key"))
    sizes = list(map(len, tables))
    if only is not None:
        in_set = tables[0].of_set(only)[shared[0]]
        shared = shared[0][in_set], shared[1][in_set]
        sizes = [int(table.of_set(only).sum()) for table in tables]
    items = len(shared[0])
    if not items:
        of_set = f" of the set {only!r}" if only else ": set, id and seed must be the same"
        raise InputError(f"{first} and {second} share no item{of_set}")
    # their figures
    pairs = list(zip(outcomes, shared, strict=True))
    scores = [outcome.score[rows] for outcome, rows in pairs]
    paths = [outcome.path[rows] for outcome, rows in pairs]
    difference = paired_difference(tables[0], scores[0], scores[1], shared[0])
    same_path, same_path_corrected = path_robustness(*paths)
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
    else:
        _print_difference(first, second, body, difference)


def _print_difference(first: str, second: str, body: Mapping[str, Any], difference: Difference) -> None:
    items = body["items"]
    left_out = sum(body["left_out"])
    click.echo(f"{plural(items, 'item')} in both" + (f", {left_out} left out" if left_out else ""))
    for letter, accuracy, calls, name in zip("AB", body["accuracy"], body["calls"], (first, second), strict=True):
        click.echo(f"{letter}  {accuracy:.3f}  {calls:.2f} calls  {name}")
    same = f"same path  {body['same_path']:.0%} of the items"
    if body["same_path"] < 1 or body["same_path_corrected"]:  # with one path for all items nothing can be corrected
        same += f", {body['same_path_corrected']:.2f} corrected for chance"
    click.echo(same)
    click.echo(f"better on {plural(body['only_first_right'], 'item')}, worse on {body['only_second_right']}")
    if difference.p is None:
        reason = f"{items} items are too few for an interval or a p-value"
        click.echo(f"A − B  {difference.interval.value:+.3f}; {reason}")
    else:
        click.echo(f"A − B  {difference.interval.signed()}, {difference.p_text} ({difference.test})")
    needed = ", ".join(f"{count:,} for {points}" for points, count in body["items_needed"].items())
    print_text(f"items needed to show a difference, in percentage points (80% power): {needed}")


@click.command("fuse")
@click.argument("recording", type=FILE)
@_split_option
@json_option("Print one JSON object.")
@settings_options
def fuse_command(recording: str, split: str | None, as_json: bool, settings: Settings) -> None:
    """Apply every fusion rule to the candidates of a RECORDING and compare their accuracy.

    Candidates are all answers to an item except verifications. The belief of the cascade is shown with the skills
    that are known without labels, and with skills measured on other items of the recording.

    \b
    odar eval fuse runs/mine.jsonl
    odar eval fuse runs/mine.jsonl.gz --set fusion.beta=0.5 --json
    """
    fusion = settings.fusion
    table = load_table(recording, None, split or "")
    changed = with_values(table.settings, {"fusion.varentropy_weight": fusion.varentropy_weight})
    table = table.replaced(settings=changed)
    results = apply_rules(table, fusion.beta)
    candidates = table.all_answers.calls
    ceiling = oracle_accuracy(table)
    skills = fitted_skills(table)
    if as_json:
        about = {"questions": len(table), "candidates": candidates, "oracle": ceiling, "skills": skills}
        print_json({**about, "rules": [asdict(result) for result in results]})
        return
    sizes = f"{plural(len(table), 'question')}, {plural(candidates, 'candidate')} each"
    click.echo(f"{sizes}; oracle {ceiling:.3f}; 95% intervals\n")
    results = sorted(results, key=lambda result: -result.accuracy.value)
    print_columns(
        {
            "rule": [result.rule for result in results],
            "accuracy": [f"{result.accuracy.value:.3f}" for result in results],
            "against majority": [result.against_majority.signed() for result in results],
            "against argmin": [result.against_argmin.signed() for result in results],
        },
        left=("against majority", "against argmin"),
        gap=2,
    )
    measured = ", ".join(f"{name} {skill:.2f}" for name, skill in skills.items())
    click.echo(f"\nskills: {measured}")


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
    from odar.lab.report.findings import replay_recordings
    from odar.lab.report.page import to_json, write_report

    parts = replay_recordings(load_tables(recordings, calibration, split or ""), train)
    if as_json:
        click.echo(to_json(parts))
        return
    path = Path(out)
    write_report(parts, path, command_line())
    items = sum(len(findings.table) for findings in parts)
    policies = max(len(findings.outcomes) for findings in parts)
    kilobytes = path.stat().st_size / 1000
    click.echo(f"{path}: {plural(items, 'item')}, {plural(policies, 'policy')}, {kilobytes:.0f} kB")
