"""`odar train estimator`: learn difficulty from your own data."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odar import __version__
from odar.cli.options import UserPath, command_line, settings_options
from odar.errors import InputError
from odar.files import written_whole
from odar.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from odar.calibration.bootstrap import Interval

    Array = NDArray[np.float64]


@click.group("train")
def command() -> None:
    """Learn from your own data what ODAR ships with.

    \b
    odar train estimator queries.jsonl   # how hard a query looks
    """


@dataclass(frozen=True, slots=True)
class Score:
    """How well an estimator tells the difficulty of queries it was not trained on."""

    r: Interval
    path_accuracy: float
    mse: float


@command.command("estimator")
@click.argument("data", type=UserPath())
@click.option(
    "--out",
    type=UserPath(),
    metavar="FILE",
    default="estimator.json",
    show_default=True,
    help="Where the result is written.",
)
@click.option(
    "--seed", "seeds", type=int, multiple=True, help="Repeatable; runs are averaged. Default: 42 123 456."
)
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the data. Default: 50, more for few rows.")
@click.option("--from-shipped", is_flag=True, help="Start from the shipped weights and stay near: for few rows.")
@click.option("--force", is_flag=True, help="Write the result even if it is worse.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@settings_options
def estimator(
    data: str,
    out: str,
    seeds: tuple[int, ...],
    epochs: int | None,
    from_shipped: bool,
    force: bool,
    as_json: bool,
    settings: Settings,
) -> int:
    """Learn from DATA how hard queries are.

    Says how well, on held-out folds, beside the shipped estimator.

    DATA is a JSONL file with query on each line, and either difficulty (0 to 1) or correct: whether the fast
    model was right, or how often. With correct, time (a person's) or reasoning (a worked solution) counts half.

    \b
    odar train estimator queries.jsonl --from-shipped
    odar ask --set routing.estimator=estimator.json "…"
    """
    from odar.calibration.training_rows import load_rows, targets
    from odar.difficulty.estimator import shipped_estimator
    from odar.difficulty.training import SEEDS, check_enough, cross_predict, fit_features

    if not out.endswith(".json"):
        raise InputError(f"--out {out!r} must end in .json: that is how routing.estimator knows a file from a name")
    rows = load_rows(data)
    target, shipped = targets(rows), shipped_estimator()
    start = shipped if from_shipped else None
    check_enough(len(rows), start)
    thresholds = settings.routing.tau1, settings.routing.tau2
    x = _features([row.query for row in rows], quiet=as_json)
    with _status("fitting, once on everything and once a fold", quiet=as_json):
        model = fit_features(x, target, start=start, seed=seeds or SEEDS, epochs=epochs)
        held_out = cross_predict(x, target, start=start, seed=(seeds or SEEDS)[0], epochs=epochs)
    before, after = (_score(d, target, thresholds) for d in (shipped.predict(x), held_out))
    worse = after.mse > before.mse or after.path_accuracy < before.path_accuracy
    refused = worse and not force
    report = {"rows": len(rows), "before": _plain(before), "after": _plain(after)}
    if as_json:
        click.echo(json.dumps({**report, "written": None if refused else out}, ensure_ascii=False))
    else:
        _show(before, after, len(rows))
    if refused:
        reason = "the shipped estimator is nearer or finds more right paths"
        click.echo(f"odar: not written: {reason} (--force writes it anyway)", err=True)
        return 1
    model.about_ = {
        "made_by": command_line(),
        "data": data,
        "rows": len(rows),
        "date": datetime.now(UTC).date().isoformat(),
        "odar": __version__,
        "held_out": report,
    }
    with written_whole(Path(out)) as draft:
        model.save(draft)
    if not as_json:
        click.echo(f'\nwritten to {out}; use it with: routing.estimator = "{out}" in odar.toml')
    return 0


def _features(queries: list[Any], *, quiet: bool) -> Array:
    from rich.console import Console
    from rich.progress import Progress

    from odar.difficulty.training import extract

    bar = nullcontext() if quiet else Progress(console=Console(stderr=True), transient=True)
    with bar as shown:
        if shown is None:
            return extract(queries)
        task = shown.add_task("reading queries", total=len(queries))
        return extract(queries, lambda done: shown.update(task, completed=done))


def _status(text: str, *, quiet: bool) -> AbstractContextManager[Any]:
    from rich.console import Console

    return nullcontext() if quiet else Console(stderr=True).status(text)


def _score(d: Array, target: Array, thresholds: tuple[float, float]) -> Score:
    import numpy as np

    from odar.evals.router_quality import bootstrap, pearson

    on_path = np.digitize(d, thresholds) == np.digitize(target, thresholds)
    return Score(
        r=bootstrap(pearson, d, target, rng=np.random.default_rng(0)),
        path_accuracy=float(on_path.mean()),
        mse=float(((d - target) ** 2).mean()),
    )


def _plain(score: Score) -> dict[str, Any]:
    return {"r": list(score.r), "path_accuracy": score.path_accuracy, "mse": score.mse}


def _show(before: Score, after: Score, rows: int) -> None:
    click.echo(f"{rows} rows; after: on held-out folds; r with 95% interval\n")
    click.echo(f"{'':8} {'Pearson r':>24} {'right path':>11} {'mean square error':>18}")
    for name, score in (("shipped", before), ("after", after)):
        click.echo(f"{name:8} {score.r!s:>24} {score.path_accuracy:>11.1%} {score.mse:>18.4f}")
