"""`odar eval list` and `odar eval score`: the benchmarks, and recorded responses scored by them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odar.cli.options import UserPath
from odar.errors import InputError, UsageError

if TYPE_CHECKING:
    from odar.evals.benchmarks.base import Benchmark, Task
    from odar.evals.responses import Response, Scores

_FOLDER = UserPath(path_type=Path, exists=True, file_okay=False)
_FILE = UserPath(path_type=Path, exists=True, dir_okay=False)


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_benchmarks(as_json: bool) -> None:
    """Every benchmark: category, metric, size, licence, where it comes from."""
    from odar.evals.benchmarks.base import BENCHMARKS, NAMES

    names = [*NAMES, *sorted(BENCHMARKS.names() - set(NAMES))]
    benchmarks = [BENCHMARKS[name] for name in names]
    if as_json:
        rows = [{"name": b.name, "category": b.category, "metric": b.metric, **asdict(b.about)} for b in benchmarks]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    click.echo(f"{'name':14} {'category':19} {'metric':11} {'size':>6}  source")
    for benchmark in benchmarks:
        about = benchmark.about
        size = "" if about.size is None else f"{about.size:,}"
        marks = [about.licence, "gated" if about.gated else "", f"needs {about.needs}" if about.needs else ""]
        click.echo(
            f"{benchmark.name:14} {benchmark.category:19} {benchmark.metric:11} {size:>6}  {about.source}\n"
            f"{'':54}{', '.join(filter(None, marks))}"
        )
        if about.note:
            click.echo(f"{'':54}{about.note}")


@click.command("score")
@click.argument("name")
@click.option("--responses", required=True, type=_FILE, help="JSONL: response, and id or prompt; maybe answer.")
@click.option("--data", type=_FOLDER, help="Folder with the benchmark's files; without it, the hub.")
@click.option("--report", type=_FILE, help="Report of the SWE-bench harness.")
@click.option(
    "--predictions", type=UserPath(path_type=Path, dir_okay=False), help="Write for that harness, and stop."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def score_command(
    name: str, responses: Path, data: Path | None, report: Path | None, predictions: Path | None, as_json: bool
) -> None:
    """Score the recorded responses of any model against a benchmark.

    \b
    odar eval score ifeval --data DIR --responses responses.jsonl
    odar eval score swe_bench --responses FILE --predictions predictions.jsonl
    """
    from odar.evals.benchmarks.base import BENCHMARKS
    from odar.evals.responses import read_responses, score_responses

    benchmark = BENCHMARKS[name]
    given = read_responses(responses)
    tasks = list(benchmark.load(data))
    if predictions is not None:
        _predict(benchmark, tasks, given, predictions)
        return
    if report is not None:
        benchmark = _with_report(benchmark, report)
    _show(benchmark, score_responses(benchmark, tasks, given), as_json)


def _predict(benchmark: Benchmark, tasks: list[Task], responses: list[Response], path: Path) -> None:
    from odar.evals.responses import match
    from odar.evals.scorers.swebench import Prediction, extract_patch, write_predictions

    if benchmark.name != "swe_bench":
        raise UsageError(f"--predictions is for swe_bench, not {benchmark.name}")
    found, _ = match(tasks, responses)
    if not found:
        raise InputError(f"none of the {len(responses)} responses belongs to a SWE-bench issue")
    rows = [Prediction(task.gold, extract_patch(found[task.id].text)) for task in tasks if task.id in found]
    count = write_predictions(path, "odar", rows)
    click.echo(f"{count} predictions in {path}; now run: python -m swebench.harness.run_evaluation -p {path}")


def _with_report(benchmark: Benchmark, report: Path) -> Benchmark:
    from odar.evals.benchmarks.verified import SweBench

    if not isinstance(benchmark, SweBench):
        raise UsageError(f"--report is for swe_bench, not {benchmark.name}")
    return benchmark.with_report(report)


def _show(benchmark: Benchmark, scores: Scores, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"benchmark": benchmark.name, "metric": benchmark.metric, **asdict(scores)}))
        return
    click.echo(f"{benchmark.name}: {benchmark.metric} {100 * scores.mean:.2f} over {scores.count} tasks")
    for figure, value in scores.figures.items():
        click.echo(f"  {figure:28} {100 * value:6.2f}")
    if len(scores.strata) > 1:
        for stratum, (mean, count) in scores.strata.items():
            click.echo(f"  {stratum or '(none)':44} {100 * mean:6.2f}  {count:6}")
    if scores.missing:
        click.echo(f"{scores.missing} tasks have no response and are left out", err=True)
    if scores.by_place:
        click.echo(f"{scores.by_place} responses matched by place: their prompts differ a little", err=True)
