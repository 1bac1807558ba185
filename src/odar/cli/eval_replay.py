"""`odar eval replay`, `compare`, `fuse` and `report`: what recordings show, with no further call."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from odar.calibration.bootstrap import Interval
from odar.cli.options import UserPath, command_line, settings_options
from odar.errors import InputError
from odar.evals.fusion_study import (
    HeldOut,
    RuleResult,
    apply_rules,
    held_out,
    load_fusion_items,
    oracle,
)
from odar.evals.replay.arrays import PanelArrays, load_arrays, load_panels
from odar.evals.replay.policies import run, run_all
from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.router_quality import arena_score, path_robustness
from odar.evals.statistics import Standing, paired, standings, strata_of
from odar.settings import Settings

_calibration_option = click.option(
    "--calibration",
    type=UserPath(),
    metavar="FILE",
    help="Replay with this one, not the one the recording was made with.",
)
_split_option = click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")


@click.command("replay")
@click.argument("recording", type=UserPath())
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY", help="Repeatable. Default: odar and baselines."
)
@click.option("--against", default="odar", show_default=True, metavar="POLICY", help="Gains are against this one.")
@_calibration_option
@_split_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def replay(
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
    reference = run(arrays, against)
    found = list(run_all(arrays, policies or ("odar", "baselines")))
    outcomes = [reference if spec == against else each for spec, each in found if isinstance(each, PolicyOutcome)]
    rows = standings(arrays, outcomes, reference)
    if as_json:
        body = [plain(asdict(row)) | {"arena_score": _arena_score(row)} for row in rows]
        click.echo(json.dumps(body, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(f"{len(arrays)} items, {arrays.samples} slow samples each; gains are against {against}")
        _print(rows)
    for spec, each in found:
        if isinstance(each, InputError):
            click.echo(f"odar: {spec} is left out: {each}", err=True)


@click.command("compare")
@click.argument("first", type=UserPath(), metavar="A")
@click.argument("second", type=UserPath(), metavar="B")
@click.option("--only", "set_name", metavar="SET", help="Only items of this set.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(first: str, second: str, set_name: str | None, as_json: bool) -> None:
    """Compare A with B on the items they share. Each is RECORDING or RECORDING#POLICY; odar is the default policy.

    \b
    odar eval compare runs/starter.jsonl#odar runs/starter.jsonl#single-slow
    odar eval compare runs/new-prompts.jsonl runs/old-prompts.jsonl
    odar eval compare runs/mine.jsonl#always-hard runs/mine.jsonl#single-slow \\
      --only truthfulqa_text
    """
    sides = [_side(first), _side(second)]
    rows = [
        {key: i for i, key in enumerate(arrays.items.keys) if set_name in (None, key.set)} for arrays, _ in sides
    ]
    shared = [key for key in rows[0] if key in rows[1]]
    if set_name and not shared:
        raise InputError(f"{first} and {second} share no item of the set {set_name!r}")
    if not shared:
        raise InputError(f"{first} and {second} share no item: set, id and seed must be the same")
    picked = [[index[key] for key in shared] for index in rows]
    scores = [outcome.score[places] for (_, outcome), places in zip(sides, picked, strict=True)]
    calls = [float(outcome.calls[places].mean()) for (_, outcome), places in zip(sides, picked, strict=True)]
    strata = strata_of(sides[0][0])
    items = [(key.set, key.id) for key in shared]
    found = paired(scores[0], scores[1], items, [strata[i] for i in picked[0]])
    body: dict[str, Any] = {
        "items": len(shared),
        "left_out": [len(index) - len(shared) for index in rows],
        "accuracy": [float(score.mean()) for score in scores],
        "calls": calls,
        **_same_path([outcome.path[places] for (_, outcome), places in zip(sides, picked, strict=True)]),
        "only_first_right": int((scores[0] > scores[1]).sum()),
        "only_second_right": int((scores[0] < scores[1]).sum()),
        **asdict(found),
        "items_needed": {str(points): found.items_needed(points) for points in (2, 5, 10)},
    }
    if as_json:
        click.echo(json.dumps(plain(body), ensure_ascii=False, allow_nan=False))
        return
    click.echo(
        f"{len(shared)} items in both" + (f", {sum(body['left_out'])} left out" if any(body["left_out"]) else "")
    )
    for side, name in enumerate((first, second)):
        click.echo(f"{'AB'[side]}  {body['accuracy'][side]:.3f}  {calls[side]:.2f} calls  {name}")
    if body["same_path"] is not None:
        corrected = f"{body['same_path_corrected']:.2f} corrected for chance"
        click.echo(f"same path  {body['same_path']:.0%} of the items, {corrected}")
    click.echo(f"better on {body['only_first_right']} items, worse on {body['only_second_right']}")
    if found.p is None:
        click.echo(
            f"A − B  {found.interval.value:+.3f}; {len(shared)} items are too few for an interval or a p-value"
        )
    else:
        click.echo(f"A − B  {found.interval.signed()}, {found.p_text} ({found.test})")
    needed = ", ".join(f"{count:,} for {points}" for points, count in body["items_needed"].items())
    click.echo(f"items needed to show a difference, in percentage points (80% power): {needed}")


def _side(text: str) -> tuple[PanelArrays, PolicyOutcome]:
    place, _, policy = text.partition("#")
    arrays = load_arrays(place)
    return arrays, run(arrays, policy or "odar")


def _print(rows: Sequence[Standing]) -> None:
    from rich.console import Console

    from odar.cli.terminal import plain_table

    table = plain_table("policy", gap=2)
    for name in ("accuracy [95%]", "gain [95%]", "p (BH)", "calls", "$/1000", "p50", "p95", "S/M/H"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    Console(highlight=False, width=None if Console().is_terminal else 140).print(table)


def _cells(row: Standing) -> list[str]:
    return [
        row.name,
        str(row.accuracy),
        "–" if row.gain is None else row.gain.interval.signed(),
        "–" if row.adjusted is None else f"{row.adjusted:.3f}",
        f"{row.calls:.2f}",
        "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.3f}",
        *("unknown" if np.isnan(seconds) else f"{seconds:.1f} s" for seconds in (row.median_s, row.tail_s)),
        "–" if np.isnan(row.mix[0]) else " / ".join(f"{share:.0%}" for share in row.mix),
    ]


def _same_path(paths: Sequence[Any]) -> dict[str, float | None]:
    """The share of items that keep their path, such as from a question to its paraphrase; None without paths."""
    if any((each < 0).any() for each in paths):
        return {"same_path": None, "same_path_corrected": None}
    return dict(zip(("same_path", "same_path_corrected"), path_robustness(*paths), strict=True))


def _arena_score(row: Standing) -> float | None:
    """RouterArena's score; None where the cost is unknown or nothing was charged."""
    return arena_score(row.accuracy.value, row.cost_usd) if row.cost_usd else None


def plain(tree: Any) -> Any:
    """Ready for JSON: named fields as objects, and NaN, which has no JSON, as null."""
    if isinstance(tree, Interval):
        return plain(tree._asdict())
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    return None if isinstance(tree, float) and not np.isfinite(tree) else tree


@click.command("fuse")
@click.argument("recording", type=UserPath())
@click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed for the bootstrap.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def fuse(recording: str, split: str | None, seed: int, as_json: bool, settings: Settings) -> None:
    """Apply every fusion rule to the candidates of a RECORDING and compare their accuracy.

    Candidates are the fast answer and the slow samples of each item. The rule `fep` is shown twice: as configured,
    and with β and skills fitted to other items of the recording.

    \b
    odar eval fuse runs/mine.jsonl
    odar eval fuse runs/mine.jsonl.gz --set fusion.beta=0.5 --json
    """
    fusion = settings.fusion
    questions = load_fusion_items(recording, fusion.varentropy_weight, split or "")
    fitted = held_out(questions, seed)
    results = apply_rules(questions, fusion.beta, seed, None if fitted is None else fitted.right)
    sizes = sum(len(question.candidates) for question in questions) / len(questions)
    ceiling = oracle(questions)
    if as_json:
        body = {
            "questions": len(questions),
            "candidates": sizes,
            "oracle": ceiling,
            "rules": [plain(asdict(result)) for result in results],
            "fitted": None if fitted is None else {"beta": _portable(fitted.beta), "skills": fitted.skills},
        }
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    click.echo(f"{len(questions)} questions, {sizes:.1f} candidates each; oracle {ceiling:.3f}; 95% intervals\n")
    _show(results, fitted)


def _show(results: list[RuleResult], fitted: HeldOut | None) -> None:
    click.echo(f"{'rule':19}{'accuracy':9}{'against majority':25} {'against argmin'}")
    for result in sorted(results, key=lambda result: -result.accuracy.value):
        against = f"{result.against_majority.signed():25} {result.against_argmin.signed()}"
        click.echo(f"{result.rule:19}{result.accuracy.value:<9.3f}{against}")
    if fitted is not None:
        skills = ", ".join(f"{name} {skill:.2f}" for name, skill in sorted(fitted.skills.items()))
        click.echo(
            f"\nfitted on four folds, judged on the fifth; on all questions β = {fitted.beta:g}, w: {skills}"
        )


def _portable(value: float) -> float | str:
    """JSON has no ∞."""
    return value if math.isfinite(value) else str(value)


@click.command("report")
@click.argument("recordings", type=UserPath(), nargs=-1, required=True, metavar="RECORDING...")
@click.option("--out", type=UserPath(), default="report.html", show_default=True, metavar="FILE", help="The page.")
@_calibration_option
@_split_option
@click.option("--train", default="Mathematics", show_default=True, help="What to train on, out of domain.")
@click.option("--json", "as_json", is_flag=True, help="Print every table as JSON; write no page.")
def report(
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
    from odar.evals.report.findings import gather
    from odar.evals.report.page import to_json, write_report

    parts = gather(load_panels(recordings, calibration, split or ""), train)
    if as_json:
        click.echo(to_json(parts))
        return
    place = Path(out)
    write_report(parts, place, command_line())
    items = sum(len(findings.arrays) for findings in parts)
    policies = max(len(findings.outcomes) for findings in parts)
    click.echo(f"{place}: {items} items, {policies} policies, {place.stat().st_size / 1000:.0f} kB")
