"""`odar eval report | adversarial | transfer`: all that recordings show, on one page or study by study."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.cli.eval_replay import plain
from odar.cli.options import UserPath, command_line
from odar.cli.terminal import plain_table


@click.command("report")
@click.argument("recordings", type=UserPath(), nargs=-1, required=True, metavar="RECORDING...")
@click.option("--out", type=UserPath(), default="report.html", show_default=True, metavar="FILE", help="The page.")
@click.option("--figures", type=UserPath(), metavar="DIR", help="Write each figure there too, as PNG and CSV.")
@click.option(
    "--calibration",
    type=UserPath(),
    metavar="FILE",
    help="Replay with this one, not the one the recording was made with.",
)
@click.option("--split", type=click.Choice(["calibrate", "judge"]), help="Only items of this split.")
@click.option("--json", "as_json", is_flag=True, help="Print every table as JSON; write no page.")
def report(
    recordings: tuple[str, ...],
    out: str,
    figures: str | None,
    calibration: str | None,
    split: str | None,
    as_json: bool,
) -> None:
    """Write one HTML file with every table and figure; it needs no network and no script.

    Recordings of the same models and prompts are joined. Others get a part of their own; where they hold the same
    items, they are shown as ablations. Adversarial variants (gsm8k+masking) are never pooled with their benchmark.

    \b
    odar eval report runs/starter.jsonl --out report.html --figures figures
    odar eval report main.jsonl fast-fast.jsonl attacked.jsonl
    """
    from odar.evals.replay.arrays import load_panels
    from odar.evals.report.findings import gather
    from odar.evals.report.page import to_json, write_report

    if as_json:
        click.echo(to_json(gather(load_panels(recordings, calibration, split or ""))))
        return
    place = Path(out)
    folder = Path(figures) if figures else None
    parts = write_report(recordings, place, command_line(), folder, calibration, split or "")
    items = sum(len(findings.arrays) for findings in parts)
    policies = max(len(findings.outcomes) for findings in parts)
    click.echo(f"{place}: {items} items, {policies} policies, {place.stat().st_size / 1000:.0f} kB")


@click.command("adversarial")
@click.argument("recordings", type=UserPath(), nargs=-1, required=True, metavar="RECORDING...")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def adversarial(recordings: tuple[str, ...], as_json: bool) -> None:
    """Compare benchmarks with their adversarial rewrites: difficulty, paths, accuracy and calls.

    Injection makes a question look harder than it is, masking easier. Where a recording holds BENCHMARK+ATTACK, the
    answers to the rewritten questions count. Where it does not, the questions are rewritten and routed, and the
    recorded answers are replayed on the new paths: that shows what the attack does to the router, not to the
    models.

    \b
    odar eval adversarial runs/mine.jsonl
    odar eval collect gsm8k gsm8k+injection --out runs/attacked.jsonl
    """
    from odar.evals.adversarial import attack_rows
    from odar.evals.replay.arrays import load_panels

    rows = [row for arrays in load_panels(recordings).values() for row in attack_rows(arrays)]
    columns: dict[str, Callable[[Any], str]] = {
        "benchmark": lambda row: f"{row.benchmark}+{row.attack}",
        "items": lambda row: str(row.items),
        "answers": lambda row: "recorded" if row.recorded else "routing only",
        "d": lambda row: "{:.2f} → {:.2f}".format(*row.difficulty),
        "same path": lambda row: f"{row.same_path:.0%}",
        "accuracy": lambda row: "{:.3f} → {:.3f}".format(*row.accuracy),
        "change [95%]": lambda row: row.change.interval.signed(),
        "calls": lambda row: "{:.2f} → {:.2f}".format(*row.calls),
        "cost": lambda row: f"{row.calls[1] / row.calls[0] - 1:+.0%}",
    }
    _show(rows, columns, as_json)


@click.command("transfer")
@click.argument("recordings", type=UserPath(), nargs=-1, required=True, metavar="RECORDING...")
@click.option("--train", default="Mathematics", show_default=True, metavar="NAME", help="A category or benchmark.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def transfer(recordings: tuple[str, ...], train: str, as_json: bool) -> None:
    """Train the difficulty estimator on one domain and let it route the others.

    Its routing accuracy is compared with that of an estimator that was trained on other items of the same domain:
    share of items on the cheapest path that answers best. At least 50 items of a domain are needed.

    \b
    odar eval transfer runs/math.jsonl runs/code.jsonl --train Mathematics
    """
    from odar.evals.estimator_study import transfer_rows
    from odar.evals.replay.arrays import load_panels

    rows = transfer_rows(*load_panels(recordings).values(), train=train)
    columns: dict[str, Callable[[Any], str]] = {
        "trained on": lambda row: row.trained_on,
        "applied to": lambda row: row.applied_to,
        "items": lambda row: str(row.items),
        "own routing accuracy": lambda row: f"{row.own:.1%}",
        "transferred": lambda row: f"{row.transferred:.1%}",
        "retained": lambda row: f"{row.retained:.0%}",
        "AUROC": lambda row: f"{row.own_auroc:.3f} → {row.transferred_auroc:.3f}",
    }
    _show(rows, columns, as_json)


def _show(rows: Sequence[Any], columns: dict[str, Callable[[Any], str]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([plain(asdict(row)) for row in rows], ensure_ascii=False, allow_nan=False))
        return
    from rich.console import Console

    first, *rest = columns
    table = plain_table(first, gap=2)
    for name in rest:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(write(row) for write in columns.values()))
    Console(highlight=False, width=None if Console().is_terminal else 150).print(table)
