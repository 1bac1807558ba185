"""`bench.py difficulty | routing`: speed of the estimator, quality of routing."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odar.cli.options import UserPath
from odar.errors import InputError
from odar.formats import load_json

if TYPE_CHECKING:
    from odar.types import Query


@click.command("difficulty")
@click.option(
    "--data", type=UserPath(), metavar="DIR", help="Folder with gsm8k/test.jsonl. Default: the starter questions."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def difficulty(data: str | None, as_json: bool) -> None:
    """How fast difficulty is estimated, on one core.

    Estimates a second as the cascade makes them (without the dependency parse) and with all 24 features, p50 and
    p99 of one estimate, and where the time goes. Nothing is remembered from one query to the next but words.
    """
    from odar.difficulty.base import estimate_turn
    from odar.difficulty.estimator import LearnedEstimator

    _one_core()
    queries, estimator = _questions(data), LearnedEstimator.load()
    for query in queries:  # meet the words
        estimate_turn(estimator, query, parse=False)
        estimator.estimate(query)
    seconds = {
        name: min(_seconds(lambda work=work: [work(query) for query in queries]) for _ in range(3))
        for name, work in (
            ("served", lambda query: estimate_turn(estimator, query, parse=False)),
            ("parsed", estimator.estimate),
        )
    }
    single = sorted(_seconds(lambda query=query: estimate_turn(estimator, query, parse=False)) for query in queries)
    body: dict[str, Any] = {
        "queries": len(queries),
        "estimates_per_s": len(queries) / seconds["served"],
        "parsed_estimates_per_s": len(queries) / seconds["parsed"],
        "p50_ms": 1e3 * statistics.median(single),
        "p99_ms": 1e3 * single[int(0.99 * len(single))],
        "share": _shares(queries),
        "load": os.getloadavg()[0],
    }
    if as_json:
        click.echo(json.dumps(body))
        return
    click.echo(f"{len(queries)} queries, one core, CPU time, load {body['load']:.1f}")
    click.echo(f"as served    {body['estimates_per_s']:.0f} estimates/s")
    click.echo(f"all parsed   {body['parsed_estimates_per_s']:.0f} estimates/s")
    click.echo(f"one estimate p50 {body['p50_ms']:.2f} ms, p99 {body['p99_ms']:.2f} ms")
    click.echo("all parsed   " + ", ".join(f"{name} {share:.0%}" for name, share in body["share"].items()))


def _questions(data: str | None) -> list[Query]:
    """GSM8K's test questions from the folder, or else the starter questions."""
    from odar.lab.recording.questions import starter_questions
    from odar.types import Query

    if not data:
        return [item.query for item in starter_questions()]
    file = Path(data) / "gsm8k" / "test.jsonl"
    try:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line]
        return [Query(load_json(line)["question"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} cannot be read: {error!r}") from None


def _shares(queries: list[Query]) -> dict[str, float]:
    """What part of the time goes to the parse and to each group of features."""
    from odar.difficulty.features import lexical_features, logical_connectives, semantic_features
    from odar.difficulty.parser import parse_features
    from odar.difficulty.text import clean, mask_latex

    texts = [clean(query.text) for query in queries]
    masked = [mask_latex(text) for text in texts]
    groups = {
        "parse": lambda: list(map(parse_features, masked)),
        "lexical": lambda: [*map(lexical_features, texts, texts)],
        "other structural": lambda: [*map(logical_connectives, texts)],
        "semantic": lambda: [semantic_features(query, 0.0) for query in queries],
    }
    seconds = {name: min(_seconds(work) for _ in range(3)) for name, work in groups.items()}
    return {name: spent / sum(seconds.values()) for name, spent in seconds.items()}


@click.command("routing")
@click.option(
    "--data",
    type=UserPath(),
    metavar="DIR",
    required=True,
    help="Folder with routellm_gsm8k and mmlu_pro_outcomes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def routing(data: str, as_json: bool) -> None:
    """How well the router chooses, on recorded outcomes.

    APGR, CPT and AUROC of the estimator beside random, length and an oracle, with bootstrap intervals.

    routellm_gsm8k is never trained on. The MMLU-Pro pair is part of the estimator's training mixture, so the
    prior's row there flatters. The belief sees the weak model's answers, and no labels of this pair.
    """
    from bench_routing import load_mmlu_pair, load_routellm, measure

    from odar.difficulty.estimator import shipped_estimator

    recorded = [load(Path(data)) for load in (load_routellm, load_mmlu_pair)]
    found = {outcomes.name: measure(outcomes, shipped_estimator()) for outcomes in recorded}
    if as_json:
        body = [{"data": name, **row._asdict()} for name, rows in found.items() for row in rows]
        click.echo(json.dumps(body, ensure_ascii=False))
        return
    for name, rows in found.items():
        click.echo(f"{name:29} {'APGR [95%]':>21} {'CPT50':>6} {'CPT80':>6} {'AUROC':>6}")
        for row in rows:
            click.echo(f"  {row.router:27} {row.apgr!s:>21} {row.cpt50:>6.0%} {row.cpt80:>6.0%} {row.auroc:>6.3f}")


def _one_core() -> None:
    """Run on one core, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _seconds(work: Any) -> float:
    """CPU time, so that other work on the machine counts less."""
    started = time.process_time()
    work()
    return time.process_time() - started
