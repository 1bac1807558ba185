"""`odar eval import`: import answers that other tools recorded, and show what ODAR would gain with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.catalogue import Price
from odar.cli.options import FILE, json_option, settings_options
from odar.cli.terminal import print_json
from odar.engine import Odar
from odar.errors import UnknownName, UsageError
from odar.evals.benchmarks.base import BENCHMARKS
from odar.evals.pair_summary import PairSummary, summarize_pair
from odar.evals.scorers.text import TEXT_SCORERS
from odar.policy.posterior import PAPER_THRESHOLDS
from odar.recording.files import write_recording
from odar.recording.importers import FORMATS, ImportedAnswer, ImportOptions, read_answers, read_questions
from odar.recording.joining import imported_header, join_answers, to_items
from odar.recording.schema import RecordedItem, Task
from odar.settings import Settings
from odar.types import Role


@click.command("import")
@click.option("--fast", type=FILE, required=True, metavar="FILE", help="Answers of the fast model.")
@click.option("--slow", type=FILE, required=True, multiple=True, metavar="FILE", help="Of the slow; repeatable.")
@click.option("--format", "kind", type=click.Choice(FORMATS), default="auto", help="Format of the files.")
@click.option("--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="A column of a table; repeatable.")
@click.option("--fast-map", multiple=True, metavar="FIELD=COLUMN", help="Like --map, for --fast only.")
@click.option("--slow-map", multiple=True, metavar="FIELD=COLUMN", help="Like --map, for --slow only.")
@click.option("--fast-model", default="", metavar="NAME", help="Name of the fast model, or its rows in a table.")
@click.option("--slow-model", default="", metavar="NAME", help="Name of the slow model, or its rows in a table.")
@click.option("--filter", "filter_", default="", metavar="NAME", help="lm-eval: the filter to use.")
@click.option("--metric", default="", metavar="NAME", help="lm-eval, inspect: the metric or scorer to use.")
@click.option("--questions", type=FILE, metavar="FILE", help="Texts and right answers by id, if missing.")
@click.option("--score-by", metavar="NAME", help="exact_match, f1, rouge_l, or a benchmark: scorer of the answers.")
@click.option("--fast-price", metavar="IN,OUT", help="US dollars per million tokens of the fast model.")
@click.option("--slow-price", metavar="IN,OUT", help="US dollars per million tokens of the slow model.")
@click.option(
    "--set-name", "title", default="", metavar="NAME", help="Name of the set. Default: the name of --fast."
)
@click.option("--out", type=FILE, metavar="FILE", help="Write a recording: .jsonl, .jsonl.gz or .parquet.")
@json_option("Print one JSON object.")
@settings_options
def import_command(
    fast: str, slow: tuple[str, ...], out: str | None, as_json: bool, settings: Settings, **options: Any
) -> None:
    """Join recorded answers of a fast and a slow model by question, and show what ODAR would gain. No call is made.

    Files are lm-evaluation-harness samples (--log_samples), inspect_ai logs, OpenAI Batch output, reports of the
    SWE-bench harness, or tables (JSONL, CSV, Parquet) with answers or graded results. Usual column names of a table
    are recognised; name others with --map. Dots lead into objects, and {model} is the name given by --fast-model or
    --slow-model.

    \b
    odar eval import --fast samples_gsm8k_small.jsonl \\
      --slow samples_gsm8k_large.jsonl
    odar eval import --fast small.eval --slow large.eval --out pair.jsonl.gz
    odar eval import --fast out.jsonl.gz --slow out.jsonl.gz \\
      --map text=outputs.{model} --fast-model gemma-2-2b --slow-model gpt-4o

    A column with the preferred one of two answers, by people or a judge, is a score too:

    \b
    odar eval import --fast votes.csv --slow votes.csv \\
      --fast-map text=response_a --fast-map score=winner:model_a \\
      --slow-map text=response_b --slow-map score=winner:model_b
    """
    shared = _columns(options["columns"])
    read = {
        role: ImportOptions(
            options["kind"],
            {**shared, **_columns(options[f"{role}_map"])},
            options[f"{role}_model"],
            options["filter_"],
            options["metric"],
        )
        for role in Role
    }
    fast_answers = read_answers(fast, read[Role.FAST])
    slow_answers = [read_answers(each, read[Role.SLOW]) for each in slow]
    questions = read_questions(options["questions"], shared) if options["questions"] else None
    scorer = _scorer(options["score_by"]) if options["score_by"] else None
    joined = join_answers(fast_answers, slow_answers, questions, scorer)
    left_out = len({(each.set, each.id) for each in fast_answers}) - len(joined)
    odar = Odar(settings)  # makes no call
    models = {Role.FAST: _model_name(fast_answers), Role.SLOW: _model_name(slow_answers[0])}
    prices = {role: _price(settings, role, models[role], options[f"{role}_price"]) for role in Role}
    set_name = options["title"] or Path(fast).name.split(".")[0]
    benchmarks = {answers[0].set or set_name for answers in joined} & BENCHMARKS.names()
    kinds = {name: (BENCHMARKS[name].category, BENCHMARKS[name].metric) for name in benchmarks}
    items = to_items(joined, odar.estimator, set_name, prices, kinds)
    if out:
        files = {Path(each).name: hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in (fast, *slow)}
        write_recording(Path(out), imported_header(odar, items, files), items)
    summary, by_set = _summarize(odar, items)
    if as_json:
        sets = {name: asdict(each) for name, each in by_set.items()}
        print_json({**asdict(summary), "sets": sets, "left_out": left_out, "out": out})
        return
    names = ", ".join(f"{role} {model or 'unnamed'}" for role, model in models.items())
    click.echo(f"{summary.items} questions, {names}" + (f"; {left_out} in one file only" if left_out else ""))
    for name, each in by_set.items():  # difficulty and scale differ: a pooled mean would mislead
        click.echo(f"\n{name}, {each.items} questions")
        _print_summary(each)
    if not by_set:
        _print_summary(summary)
    if out:
        click.echo(f"\nwritten to {out}")


def _summarize(odar: Odar, items: Sequence[RecordedItem]) -> tuple[PairSummary, dict[str, PairSummary]]:
    """Return the summary of all items and, if there are several sets, a summary of each."""
    settings = odar.settings
    # The thresholds of a profile were calibrated for its own models, not for those of these files.
    of_profile = settings.origins[("calibration",)].startswith("profile")
    tau1 = PAPER_THRESHOLDS[0] if of_profile and settings.calibration else settings.routing.tau1
    sets: dict[str, list[RecordedItem]] = {}
    for item in items:
        sets.setdefault(item.key.set, []).append(item)
    by_set = {}
    if len(sets) > 1:
        by_set = {name: summarize_pair(own, odar.posterior, tau1) for name, own in sets.items()}
    return summarize_pair(items, odar.posterior, tau1), by_set


def _print_summary(summary: PairSummary) -> None:
    click.echo(f"\n{'':27}{'accuracy [95%]':24}{'gain over fast [95%]':27}{'calls':>6}{'$/1000':>10}{'slow':>7}")
    for row in summary.rows:
        price = "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.4g}"
        figures = f"{row.calls:6.2f}{price:>10}{row.slow_share:7.0%}"
        click.echo(f"{row.name:27}{row.accuracy!s:24}{row.gain.signed():27}{figures}")
    click.echo(f"\nthe posterior uses: {', '.join(summary.signals) or 'nothing: it knows no more than the prior'}")
    if summary.apgr:
        values = ", ".join(f"{name} {value:.3f}" for name, value in summary.apgr.items())
        click.echo(f"APGR (how well it chooses what to escalate; random 0.5): {values}")
    else:
        click.echo("the slow model is not better on these questions: there is nothing to gain by escalating")


def _model_name(answers: Sequence[ImportedAnswer]) -> str:
    return next((each.model for each in answers if each.model), "")


def _scorer(name: str) -> Callable[[Task, str, str], float]:
    """Return a scorer of free text, or that of a benchmark."""
    if name not in TEXT_SCORERS:
        return BENCHMARKS[name].score
    compare = TEXT_SCORERS[name]
    return lambda task, _, answer: compare(task.gold if isinstance(task.gold, list) else [str(task.gold)], answer)


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    columns = {}
    for pair in pairs:
        field, _, column = pair.partition("=")
        if not column:
            raise UsageError(f"--map {pair}: write FIELD=COLUMN")
        columns[field.strip()] = column.strip()
    return columns


def _price(settings: Settings, role: Role, model: str, given: str | None) -> Price | None:
    """Return the price of the option, or that of the model in the catalogue."""
    if given is not None:
        try:
            input_usd, output_usd = (float(part) for part in given.split(","))
        except ValueError:
            raise UsageError(f"--{role}-price {given}: write two numbers, such as 0.15,0.6") from None
        return Price(input_usd, input_usd, output_usd)
    try:
        return settings.card(model).price if model else None
    except UnknownName:
        return None
