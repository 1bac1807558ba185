"""`odar eval import`: import answers that other tools recorded, and show what ODAR would gain with them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from odar.cli.eval_replay import print_policies
from odar.cli.options import FILE, json_option, parse_column_map, parse_prices, settings_options
from odar.cli.terminal import notice, print_json, print_text
from odar.engine import Odar
from odar.errors import plural
from odar.files import user_path
from odar.lab.benchmarks.base import BENCHMARKS
from odar.lab.calibration.items import scored_items
from odar.lab.graders.text import TEXT_GRADERS
from odar.lab.recording.files import write_recording
from odar.lab.recording.importers import FORMATS, name_and_file, read_models, read_questions
from odar.lab.recording.joining import import_models
from odar.lab.recording.questions import question_set
from odar.lab.replay.policies import escalation_score, run_policies, run_policy
from odar.lab.replay.table import ReplayTable
from odar.lab.router_quality import apgr
from odar.lab.statistics import PolicySummary, summarize_policies
from odar.settings import Settings
from odar.types import FAST, SECOND, SLOW

POLICIES = ("cascade", "cascade:dial=economy", "cascade:dial=quality", "baselines")
"""What is replayed on an imported recording."""


@click.command("import")
@click.option("--answers", multiple=True, required=True, metavar="[NAME=]FILE", help="Of a model; repeatable.")
@click.option("--fast", metavar="NAME", help="Model of the fast agent. Default: the cheapest.")
@click.option("--second", metavar="NAME", help="Of the second. Default: the cheapest of another family.")
@click.option("--slow", metavar="NAME", help="Of the slow agent. Default: the most expensive.")
@click.option("--price", "prices", multiple=True, metavar="NAME=IN,OUT", help="Dollars per million tokens.")
@click.option("--format", "kind", type=click.Choice(FORMATS), default="auto", help="Format of the files.")
@click.option("--map", "columns", multiple=True, metavar="[NAME:]FIELD=COLUMN", help="A column of a table.")
@click.option("--filter", "filter_", default="", metavar="NAME", help="lm-eval: the filter to use.")
@click.option("--metric", default="", metavar="NAME", help="lm-eval, inspect: the metric or scorer to use.")
@click.option("--questions", type=FILE, metavar="FILE", help="Texts and right answers by id, if missing.")
@click.option("--score-by", metavar="NAME", help="exact_match, f1, rouge_l, or a benchmark: grader of the answers.")
@click.option("--set-name", "title", default="", metavar="NAME", help="Default: the name of the first file.")
@click.option("--out", type=FILE, metavar="FILE", help="Write a recording: .jsonl or .jsonl.gz.")
@json_option("Print one JSON object.")
@settings_options
def import_command(
    answers: tuple[str, ...], out: str | None, as_json: bool, settings: Settings, **options: Any
) -> None:
    """Join recorded answers of several models by question, and show what ODAR would gain. No call is made.

    Files are lm-evaluation-harness samples (--log_samples), inspect_ai logs, OpenAI Batch output, reports of the
    SWE-bench harness, or tables (JSONL, CSV, Parquet) with answers or graded results; a table with a column `model`
    holds any number of models. Usual column names of a table are recognised; name others with --map. Dots lead into
    objects, and {model} is the NAME of the model. Several files of the slow model are samples.

    Without right answers the slow model's answer is the reference, and figures say "same answer as slow";
    `odar advise` and `odar calibrate` read the recording then.

    \b
    odar eval import --answers table.parquet --out mine.jsonl.gz
    odar eval import --answers mini=samples_gsm8k_small.jsonl \\
      --answers large=samples_gsm8k_large.jsonl --slow large
    odar eval import --answers gemma-2-2b=out.jsonl --answers gpt-4o=out.jsonl \\
      --map text=outputs.{model} --price gemma-2-2b=0.02,0.04

    A column with the preferred one of two answers, by people or a judge, is a score too:

    \b
    odar eval import --answers a=votes.csv --answers b=votes.csv --slow b \\
      --map text=response_{model} --map score=winner:model_{model}
    """
    # read the files
    models = read_models(
        answers,
        lambda name: parse_column_map(options["columns"], name),
        options["kind"],
        filter_name=options["filter_"],
        metric=options["metric"],
    )
    questions = options["questions"]
    known = read_questions(questions, parse_column_map(options["columns"], "")) if questions else None
    score = None
    if name := options["score_by"]:
        score = (question_set("", name, TEXT_GRADERS[name]) if name in TEXT_GRADERS else BENCHMARKS[name]).score
    # join them into a recording
    paths = [user_path(name_and_file(each)[1]) for each in answers]
    set_name = options["title"] or paths[0].name.split(".")[0]
    imported = import_models(
        Odar(settings),
        models,
        parse_prices(options["prices"]),
        {agent: options[agent] for agent in (FAST, SECOND, SLOW)},
        set_name,
        paths,
        known=known,
        score=score,
    )
    if out:
        write_recording(Path(out), imported.header, imported.items)
    # replay it
    scored = scored_items(imported.items)
    table = ReplayTable.from_items(scored.items, imported.header)
    parts = {name: table.replaced(rows=table.of_set(name)) for name in table.sets()}
    for warning in imported.warnings:
        notice(warning)
    # show what ODAR would gain
    about = {"models": imported.models, "score": scored.score_name, "left_out": imported.left_out, "out": out}
    if as_json:
        own = {name: _summary(part) for name, part in parts.items()} if len(parts) > 1 else {}
        print_json({**_summary(table), "sets": own, **about})
        return
    left_out = f"; {imported.left_out} left out, not in all files or without a right answer" * bool(
        imported.left_out
    )
    names = ", ".join(f"{agent} {model}" for agent, model in imported.models.items())
    print_text(f"{plural(len(table), 'question')}, {names}{left_out}; gains are against one slow call")
    if not scored.labelled:
        print_text("No right answers: every figure is how often the answer is the same as slow's.")
    for name, part in parts.items():  # difficulty and scale differ: a pooled mean would mislead
        click.echo(f"\n{name}, {plural(len(part), 'question')}" if len(parts) > 1 else "")
        print_policies(_rows(part), part, score="right" if scored.labelled else "same")
        if scored.labelled and (quality := _router_quality(part)) is not None:
            click.echo(f"APGR of the belief, how well it chooses what to escalate (random 0.5): {quality:.3f}")
        elif scored.labelled:
            print_text("the slow model is not better on these questions: there is nothing to gain by escalating")
    if out:
        click.echo(f"\nwritten to {out}")


def _rows(table: ReplayTable) -> list[PolicySummary]:
    outcomes, _ = run_policies(table, POLICIES)
    return summarize_policies(table, list(outcomes.values()), run_policy(table, "single-slow"))


def _router_quality(table: ReplayTable) -> float | None:
    """APGR of the belief after the fast answer; None if the slow model is not better."""
    weak = table.scores(FAST)
    strong = table.scores(SLOW)
    return apgr(escalation_score(table), weak, strong) if strong.mean() > weak.mean() else None


def _summary(table: ReplayTable) -> dict[str, Any]:
    return {"items": len(table), "rows": [asdict(row) for row in _rows(table)], "apgr": _router_quality(table)}
