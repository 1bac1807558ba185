"""`odar train`: train the difficulty estimator on questions of known difficulty."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
from msgspec import Meta
from rich.console import Console
from rich.progress import Progress

from odar.cli.options import FILE, json_option, provenance, settings_options
from odar.cli.terminal import notice, print_columns, print_json
from odar.difficulty.estimator import shipped_estimator
from odar.difficulty.features import phi_batch
from odar.errors import InputError
from odar.files import atomic_write
from odar.lab.intervals import Interval, bootstrap_interval
from odar.lab.recording.questions import QueryLine, load_lines
from odar.lab.router_quality import pearson
from odar.lab.training import check_row_count, cross_val_predict, d_star, fit
from odar.policy.arrays import Array
from odar.settings import Settings
from odar.types import Query

Share = Annotated[float, Meta(ge=0, le=1)]


@click.command("train")
@click.argument("data", type=FILE, metavar="ROWS.jsonl")
@click.option("--out", type=FILE, default="estimator.json", metavar="FILE", help="The estimator.")
@json_option("Print the report as JSON.")
@settings_options
def command(data: str, out: str, as_json: bool, settings: Settings) -> int:
    """Train the difficulty estimator on ROWS.jsonl, from the shipped weights on.

    A row has query, and either difficulty (0 to 1) or correct: whether the fast model was right, or how often. The
    result is compared with the shipped estimator on held-out folds, and written only if it is no worse.

    \b
    odar train rows.jsonl --out estimator.json
    odar difficulty --set routing.estimator=estimator.json "Who wrote Hamlet?"

    Exit codes: 0 written · 1 the shipped estimator is better · 2 your input.
    """
    if not out.endswith(".json"):
        raise InputError(f"--out {out!r} must end in .json: that is how routing.estimator knows a file from a name")
    # read the rows
    rows: list[tuple[Query, TrainingLine]] = load_lines(data, TrainingLine, training_row, "rows")
    target = targets(line for _, line in rows)
    shipped = shipped_estimator()
    check_row_count(len(rows))
    # train, and predict each fold by a training on the others
    with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
        x = phi_batch(query for query, _ in bar.track(rows, description="reading queries"))
        bar.add_task("fitting", total=None)
        model = fit(x, target, start=shipped)
        held_out = cross_val_predict(x, target, start=shipped)
    # compare with the shipped estimator
    thresholds = settings.routing.tau1, settings.routing.tau2
    before, after = (_score(d, target, thresholds) for d in (shipped.predict(x), held_out))
    refused = after["mse"] > before["mse"] or after["path_accuracy"] < before["path_accuracy"]
    report = {"rows": len(rows), "before": before, "after": after}
    if as_json:
        print_json({**report, "written": None if refused else out})
    else:
        click.echo(f"{len(rows)} rows; after: on held-out folds; r with 95% interval\n")
        scores = (before, after)
        columns = {
            "": ["shipped", "after"],
            "Pearson r": [str(Interval(*score["r"])) for score in scores],
            "right path": [f"{score['path_accuracy']:.1%}" for score in scores],
            "mean square error": [f"{score['mse']:.4f}" for score in scores],
        }
        print_columns(columns, gap=2)
    if refused:
        notice("not written: the shipped estimator is nearer or finds more right paths")
        return 1
    # write it, with its origin
    about = {**provenance(), "data": data, "rows": len(rows), "held_out": report}
    with atomic_write(Path(out)) as draft:
        replace(model, about=about).save(draft)
    if not as_json:
        click.echo(f'\nwritten to {out}; use it with: routing.estimator = "{out}" in odar.toml')
    return 0


def _score(d: Array, target: Array, thresholds: tuple[float, float]) -> dict[str, Any]:
    return {
        "r": [*bootstrap_interval(pearson, d, target, rng=np.random.default_rng(0))],
        "path_accuracy": float((np.digitize(d, thresholds) == np.digitize(target, thresholds)).mean()),
        "mse": float(((d - target) ** 2).mean()),
    }


class TrainingLine(QueryLine):
    """A line of the file: a query with difficulty or correct, and optionally time or reasoning, and image."""

    difficulty: bool | Share | None = None
    correct: bool | Share | None = None
    """Share of the fast model's answers that were right."""


def targets(lines: Iterable[TrainingLine]) -> Array:
    """d* of every line: as given, or by `d_star` (SPEC 2.5)."""
    rows = list(lines)
    failure = [0.0 if row.correct is None else 1 - row.correct for row in rows]
    effort = [math.nan if row.effort is None or row.correct is None else row.effort for row in rows]
    given = np.array([math.nan if row.difficulty is None else row.difficulty for row in rows])
    return np.where(np.isnan(given), d_star(failure, effort), given)


def training_row(line: TrainingLine, number: int, folder: Path) -> tuple[Query, TrainingLine]:
    query = line.to_query(folder)
    if (line.difficulty is None) == (line.correct is None):
        raise ValueError("it needs either difficulty or correct")
    return query, line
