"""`odar eval import`: import answers that other tools recorded, and show what ODAR would gain with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.catalogue import Price
from odar.cli.eval_replay import fixed_outcomes, print_policies
from odar.cli.options import FILE, json_option, settings_options
from odar.cli.terminal import print_json
from odar.engine import Odar
from odar.errors import UnknownName, UsageError, plural
from odar.evals.benchmarks.base import BENCHMARKS
from odar.evals.replay.outcomes import Outcomes
from odar.evals.replay.policies import escalation_score, run_policies, run_policy
from odar.evals.replay.table import ReplayTable
from odar.evals.router_quality import apgr
from odar.evals.scorers.text import TEXT_SCORERS
from odar.evals.statistics import PolicySummary, summarize_policies
from odar.recording.files import write_recording
from odar.recording.importers import FORMATS, ImportedAnswer, ImportOptions, read_answers, read_questions
from odar.recording.joining import imported_header, join_answers, to_items
from odar.recording.schema import Task
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW


@click.command("import")
@click.option("--fast", type=FILE, required=True, metavar="FILE", help="Answers of the fast model.")
@click.option("--slow", type=FILE, required=True, multiple=True, metavar="FILE", help="Of the slow; repeatable.")
@click.option("--second", type=FILE, metavar="FILE", help="Answers of a second cheap model.")
@click.option("--format", "kind", type=click.Choice(FORMATS), default="auto", help="Format of the files.")
@click.option("--map", "columns", multiple=True, metavar="FIELD=COLUMN", help="A column of a table; repeatable.")
@click.option("--fast-map", multiple=True, metavar="FIELD=COLUMN", help="Like --map, for --fast only.")
@click.option("--second-map", multiple=True, metavar="FIELD=COLUMN", help="Like --map, for --second only.")
@click.option("--slow-map", multiple=True, metavar="FIELD=COLUMN", help="Like --map, for --slow only.")
@click.option("--fast-model", default="", metavar="NAME", help="Name of the fast model, or its rows in a table.")
@click.option("--second-model", default="", metavar="NAME", help="Name of the second model.")
@click.option("--slow-model", default="", metavar="NAME", help="Name of the slow model, or its rows in a table.")
@click.option("--filter", "filter_", default="", metavar="NAME", help="lm-eval: the filter to use.")
@click.option("--metric", default="", metavar="NAME", help="lm-eval, inspect: the metric or scorer to use.")
@click.option("--questions", type=FILE, metavar="FILE", help="Texts and right answers by id, if missing.")
@click.option("--score-by", metavar="NAME", help="exact_match, f1, rouge_l, or a benchmark: scorer of the answers.")
@click.option("--fast-price", metavar="IN,OUT", help="US dollars per million tokens of the fast model.")
@click.option("--second-price", metavar="IN,OUT", help="US dollars per million tokens of the second model.")
@click.option("--slow-price", metavar="IN,OUT", help="US dollars per million tokens of the slow model.")
@click.option(
    "--set-name", "title", default="", metavar="NAME", help="Name of the set. Default: the name of --fast."
)
@click.option("--out", type=FILE, metavar="FILE", help="Write a recording: .jsonl, .jsonl.gz or .parquet.")
@json_option("Print one JSON object.")
@settings_options
def import_command(
    fast: str,
    slow: tuple[str, ...],
    second: str | None,
    out: str | None,
    as_json: bool,
    settings: Settings,
    **options: Any,
) -> None:
    """Join recorded answers of two or three models by question, and show what ODAR would gain. No call is made.

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
    files = {FAST: (fast,), **({SECOND: (second,)} if second else {}), SLOW: slow}
    answers = {}
    for agent, places in files.items():
        columns = {**shared, **_columns(options[f"{agent}_map"])}
        own = (options[f"{agent}_model"], options["filter_"], options["metric"])
        answers[agent] = [read_answers(place, ImportOptions(options["kind"], columns, *own)) for place in places]
    questions = read_questions(options["questions"], shared) if options["questions"] else None
    scorer = _scorer(options["score_by"]) if options["score_by"] else None
    joined = join_answers(answers, questions, scorer)
    left_out = len({(each.set, each.id) for each in answers[FAST][0]}) - len(joined)
    odar = Odar(settings)  # makes no call
    models = {agent: _model_name(own[0]) for agent, own in answers.items()}
    prices = {agent: _price(settings, agent, name, options[f"{agent}_price"]) for agent, name in models.items()}
    set_name = options["title"] or Path(fast).name.split(".")[0]
    benchmarks = {own[FAST][0].set or set_name for own in joined} & BENCHMARKS.names()
    kinds = {name: (BENCHMARKS[name].category, BENCHMARKS[name].metric) for name in benchmarks}
    items = to_items(joined, odar.estimator, set_name, prices, kinds)
    read = [place for own in files.values() for place in own]
    digests = {Path(each).name: hashlib.sha256(Path(each).read_bytes()).hexdigest() for each in read}
    header = imported_header(odar, items, digests, prices)
    if out:
        write_recording(Path(out), header, items)
    table = ReplayTable.from_items(items, header)
    parts = {name: table.replaced(rows=table.of_set(name)) for name in table.sets()}
    if as_json:
        sets = {name: _summary(part) for name, part in parts.items()} if len(parts) > 1 else {}
        print_json({**_summary(table), "sets": sets, "left_out": left_out, "out": out})
        return
    names = ", ".join(f"{agent} {model or 'unnamed'}" for agent, model in models.items())
    alone = f"; {left_out} in one file only" if left_out else ""
    click.echo(f"{plural(len(table), 'question')}, {names}{alone}")
    for name, part in parts.items():  # difficulty and scale differ: a pooled mean would mislead
        click.echo(f"\n{name}, {plural(len(part), 'question')}" if len(parts) > 1 else "")
        print_policies(_rows(part), part)
        if (quality := _router_quality(part)) is not None:
            click.echo(f"APGR of the belief, how well it chooses what to escalate (random 0.5): {quality:.3f}")
        else:
            click.echo("the slow model is not better on these questions: there is nothing to gain by escalating")
    if out:
        click.echo(f"\nwritten to {out}")


POLICIES = ("cascade", "cascade:dial=economy", "cascade:dial=quality", "baselines")


def _rows(table: ReplayTable) -> list[PolicySummary]:
    """Return the cascade at three dials, the paper's policy and the baselines."""
    outcomes = [each for _, each in run_policies(table, POLICIES) if isinstance(each, Outcomes)]
    return summarize_policies(table, outcomes, run_policy(table, "single-fast"), fixed_outcomes(table))


def _router_quality(table: ReplayTable) -> float | None:
    """Return APGR of the belief after the fast answer; None if the slow model is not better."""
    weak, strong = table.scores(FAST), table.scores(SLOW)
    return apgr(escalation_score(table), weak, strong) if strong.mean() > weak.mean() else None


def _summary(table: ReplayTable) -> dict[str, Any]:
    return {"items": len(table), "rows": [asdict(row) for row in _rows(table)], "apgr": _router_quality(table)}


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


def _price(settings: Settings, agent: str, model: str, given: str | None) -> Price | None:
    """Return the price of the option, or that of the model in the catalogue."""
    if given is not None:
        try:
            input_usd, output_usd = (float(part) for part in given.split(","))
        except ValueError:
            raise UsageError(f"--{agent}-price {given}: write two numbers, such as 0.15,0.6") from None
        return Price(input_usd, input_usd, output_usd)
    try:
        return settings.card(model).price if model else None
    except UnknownName:
        return None
