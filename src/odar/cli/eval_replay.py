"""`odar eval replay | compare`: policies on a recording, and two of them side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from odar.calibration.bootstrap import Interval
from odar.cli.options import UserPath
from odar.errors import InputError
from odar.evals.replay.arrays import PanelArrays, load_arrays
from odar.evals.replay.policies import run, run_all
from odar.evals.replay.simulate import PolicyOutcome
from odar.evals.standing import Standing, paired, standings, strata_of


@click.command("replay")
@click.argument("recording", type=UserPath())
@click.option(
    "--policy", "policies", multiple=True, metavar="POLICY", help="Repeatable. Default: odar and baselines."
)
@click.option("--against", default="odar", show_default=True, metavar="POLICY", help="Gains are against this one.")
@click.option(
    "--calibration",
    type=UserPath(),
    metavar="FILE",
    help="Replay with this one, not the one the recording was made with.",
)
@click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")
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

    POLICY is odar, a baseline, or a list of them by name: baselines, fusion-rules, ablations, sweep-n,
    sweep-lambda, sweep-beta, sweep-tau, all. Options follow a colon.

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
        click.echo(json.dumps([_plain(asdict(row)) for row in rows], ensure_ascii=False, allow_nan=False))
    else:
        click.echo(f"{len(arrays)} items, {arrays.samples} slow samples each; gains are against {against}")
        _print(rows)
    for spec, each in found:
        if isinstance(each, InputError):
            click.echo(f"odar: {spec} is left out: {each}", err=True)


@click.command("compare")
@click.argument("first", type=UserPath(), metavar="A")
@click.argument("second", type=UserPath(), metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare A with B on the items they share. Each is RECORDING or RECORDING#POLICY; odar is the default policy.

    \b
    odar eval compare runs/starter.jsonl#odar runs/starter.jsonl#single-slow
    odar eval compare runs/new-prompts.jsonl runs/old-prompts.jsonl
    """
    sides = [_side(first), _side(second)]
    rows = [{key: i for i, key in enumerate(arrays.items.keys)} for arrays, _ in sides]
    shared = [key for key in sides[0][0].items.keys if key in rows[1]]
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
        "only_first_right": int((scores[0] > scores[1]).sum()),
        "only_second_right": int((scores[0] < scores[1]).sum()),
        **asdict(found),
        "items_needed": {str(points): found.items_needed(points) for points in (2, 5, 10)},
    }
    if as_json:
        click.echo(json.dumps(_plain(body), ensure_ascii=False, allow_nan=False))
        return
    click.echo(
        f"{len(shared)} items in both" + (f", {sum(body['left_out'])} left out" if any(body["left_out"]) else "")
    )
    for side, name in enumerate((first, second)):
        click.echo(f"{'AB'[side]}  {body['accuracy'][side]:.3f}  {calls[side]:.2f} calls  {name}")
    click.echo(f"better on {body['only_first_right']} items, worse on {body['only_second_right']}")
    if found.p is None:
        click.echo(
            f"A − B  {found.interval.value:+.3f}; {len(shared)} items are too few for an interval or a p-value"
        )
    else:
        click.echo(f"A − B  {found.interval.signed()}, p = {found.p:.4f} ({found.test})")
    needed = ", ".join(f"{count:,} for {points}" for points, count in body["items_needed"].items())
    click.echo(f"items needed to show a difference, in percentage points (80% power): {needed}")


def _side(text: str) -> tuple[PanelArrays, PolicyOutcome]:
    place, _, policy = text.partition("#")
    arrays = load_arrays(place)
    return arrays, run(arrays, policy or "odar")


def _print(rows: Sequence[Standing]) -> None:
    from rich.console import Console

    from odar.cli.tables import plain_table

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
        f"{row.median_s:.1f} s",
        f"{row.tail_s:.1f} s",
        "–" if np.isnan(row.mix[0]) else " / ".join(f"{share:.0%}" for share in row.mix),
    ]


def _plain(tree: Any) -> Any:
    """Ready for JSON: named fields as objects, and NaN, which has no JSON, as null."""
    if isinstance(tree, Interval):
        return _plain(tree._asdict())
    if isinstance(tree, dict):
        return {name: _plain(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return None if isinstance(tree, float) and not np.isfinite(tree) else tree
