"""`odar eval import`: answers that other tools recorded, and what ODAR would gain with them."""

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
from odar.recording.importers import FORMATS, ImportOptions, read_answers, read_questions
from odar.recording.joining import imported_header, join_answers, to_items
from odar.recording.schema import Task
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
    quick, deep = read_answers(fast, read[Role.FAST]), [read_answers(each, read[Role.SLOW]) for each in slow]
    known = read_questions(options["questions"], shared) if options["questions"] else None
    joined = join_answers(quick, deep, known, _scorer(options["score_by"]) if options["score_by"] else None)
    odar = Odar(settings)  # opens nothing: estimator, posterior and thresholds
    first = {Role.FAST: quick, Role.SLOW: deep[0]}
    models = {role: next((each.model for each in answers if each.model), "") for role, answers in first.items()}
    prices = {role: _price(settings, role, models[role], options[f"{role}_price"]) for role in Role}
    name = options["title"] or Path(fast).name.split(".")[0]
    known_sets = {answers[0].set or name for answers in joined} & BENCHMARKS.names()
    kinds = {each: (BENCHMARKS[each].category, BENCHMARKS[each].metric) for each in known_sets}
    items = to_items(joined, odar.estimator, name, prices, kinds)
    if out:
        files = {Path(each).name: hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in (fast, *slow)}
        write_recording(Path(out), imported_header(odar, items, files), items)
    # Thresholds that were calibrated for a profile's own models say nothing about the models of these files.
    of_profile = settings.origins[("calibration",)].startswith("profile")
    tau1 = PAPER_THRESHOLDS[0] if of_profile and settings.calibration else settings.routing.tau1
    found = summarize_pair(items, odar.posterior, tau1)
    names = list(dict.fromkeys(item.key.set for item in items))
    sets = {
        each: summarize_pair([item for item in items if item.key.set == each], odar.posterior, tau1)
        for each in (names if len(names) > 1 else [])
    }
    left_out = len({(each.set, each.id) for each in quick}) - len(joined)
    if as_json:
        by_set = {each: asdict(summary) for each, summary in sets.items()}
        print_json({**asdict(found), "sets": by_set, "left_out": left_out, "out": out})
        return
    said = ", ".join(f"{role} {model or 'unnamed'}" for role, model in models.items())
    lost = f"; {left_out} in one file only" if left_out else ""
    click.echo(f"{found.items} questions, {said}{lost}")
    for each, summary in sets.items():  # of different difficulty and scale: a pooled mean would mislead
        click.echo(f"\n{each}, {summary.items} questions")
        _print(summary)
    if not sets:
        _print(found)
    if out:
        click.echo(f"\nwritten to {out}")


def _print(found: PairSummary) -> None:
    click.echo(f"\n{'':27}{'accuracy [95%]':24}{'gain over fast [95%]':27}{'calls':>6}{'$/1000':>10}{'slow':>7}")
    for row in found.rows:
        price = "unknown" if row.cost_usd is None else f"{1000 * row.cost_usd:.4g}"
        figures = f"{row.calls:6.2f}{price:>10}{row.slow_share:7.0%}"
        click.echo(f"{row.name:27}{row.accuracy!s:24}{row.gain.signed():27}{figures}")
    click.echo(f"\nthe posterior uses: {', '.join(found.signals) or 'nothing: it knows no more than the prior'}")
    if found.apgr:
        ranks = ", ".join(f"{name} {value:.3f}" for name, value in found.apgr.items())
        click.echo(f"APGR (how well it chooses what to escalate; random 0.5): {ranks}")
    else:
        click.echo("the slow model is not better on these questions: there is nothing to gain by escalating")


def _scorer(name: str) -> Callable[[Task, str, str], float]:
    """Return a scorer of free text, or that of a benchmark."""
    if name not in TEXT_SCORERS:
        return BENCHMARKS[name].score
    compare = TEXT_SCORERS[name]
    return lambda task, _, answer: compare(task.gold if isinstance(task.gold, list) else [str(task.gold)], answer)


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    if bad := [pair for pair, (_, sign, column) in zip(pairs, split, strict=True) if not sign or not column]:
        raise UsageError(f"--map {bad[0]}: write FIELD=COLUMN")
    return {field.strip(): column.strip() for field, _, column in split}


def _price(settings: Settings, role: Role, model: str, given: str | None) -> Price | None:
    """Return the price that was given, or that of a model in the catalogue with this name."""
    if given is not None:
        try:
            reading, writing = (float(part) for part in given.split(","))
        except ValueError:
            raise UsageError(f"--{role}-price {given}: write two numbers, such as 0.15,0.6") from None
        return Price(reading, reading, writing)
    try:
        return settings.card(model).price if model else None
    except UnknownName:
        return None
