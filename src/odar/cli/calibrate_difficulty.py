"""`odar calibrate --difficulty`: train the difficulty estimator on questions of known difficulty."""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from odar import __version__
from odar.cli.options import command_line
from odar.difficulty.training import d_star
from odar.errors import InputError
from odar.files import atomic_write
from odar.recording.questions import effort_of, load_lines, query_of
from odar.settings import Settings
from odar.types import Query

if TYPE_CHECKING:
    from odar.calibration.bootstrap import Interval


Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """How well an estimator predicts the difficulty of questions it was not trained on."""

    r: Interval
    path_accuracy: float
    mse: float


def train_difficulty(data: str, settings: Settings, out: str, *, force: bool, as_json: bool) -> int:
    """Train the estimator from the shipped weights on, write it unless it is worse, and return the exit code."""
    from odar.difficulty.estimator import shipped_estimator
    from odar.difficulty.training import check_enough, cross_predict, fit_features

    if not out.endswith(".json"):
        raise InputError(f"--out {out!r} must end in .json: that is how routing.estimator knows a file from a name")
    rows = load_rows(data)
    target, shipped = targets(rows), shipped_estimator()
    check_enough(len(rows), shipped)
    thresholds = settings.routing.tau1, settings.routing.tau2
    x = _features([row.query for row in rows], quiet=as_json)
    with _status("fitting", quiet=as_json):
        model = fit_features(x, target, start=shipped)
        held_out = cross_predict(x, target, start=shipped)
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
    with atomic_write(Path(out)) as draft:
        model.save(draft)
    if not as_json:
        click.echo(f'\nwritten to {out}; use it with: routing.estimator = "{out}" in odar.toml')
    return 0


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One query with its difficulty, or with what its difficulty follows from (SPEC 2.5)."""

    query: Query
    difficulty: float | None = None
    correct: float | None = None
    """How often the fast model was right."""
    effort: float | None = None
    """A person's time, or the length of the reference reasoning."""


def load_rows(path: str | Path) -> list[TrainingRow]:
    """Rows from a JSONL file: query, and difficulty or correct; optionally time or reasoning, and image.

    Raises:
        InputError: the file cannot be read, or a line is not such an object; names the line.
    """
    return load_lines(path, _row, "rows")


def targets(rows: list[TrainingRow]) -> Array:
    """d* of every row: as given, or from how often the fast model failed and how long the reasoning is.

    >>> targets([TrainingRow(Query("a"), difficulty=0.2), TrainingRow(Query("b"), correct=0.25)]).tolist()
    [0.2, 0.75]
    """
    failure = [0.0 if row.correct is None else 1 - row.correct for row in rows]
    effort = [math.nan if row.effort is None or row.correct is None else row.effort for row in rows]
    given = np.array([math.nan if row.difficulty is None else row.difficulty for row in rows])
    return np.where(np.isnan(given), d_star(failure, effort), given)


def _row(row: dict[str, Any], number: int, folder: Path) -> TrainingRow:
    query = query_of(row, folder)
    difficulty, correct = (_share(row, key) for key in ("difficulty", "correct"))
    if (difficulty is None) == (correct is None):
        raise ValueError("it needs either difficulty or correct")
    return TrainingRow(query, difficulty, correct, effort_of(row))


def _share(row: dict[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise ValueError(f"{key} is {value!r}, not true, false or a number in [0, 1]")
    return float(value)


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
