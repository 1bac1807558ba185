"""`bench.py difficulty | routing | fusion`: speed of the estimator, quality of routing and fusion."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odar.cli.options import UserPath
from odar.errors import InputError
from odar.formats import load_json

if TYPE_CHECKING:
    from bench_fusion import GroupResult

    from odar.types import Query

T = TypeVar("T")
LOSS = 0.005
"""Half a point: more than this, a fusion rule must not lose."""


@click.command("difficulty")
@click.option(
    "--data", type=UserPath(), metavar="DIR", help="Folder with gsm8k/test.jsonl. Default: the starter questions."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def difficulty(data: str | None, as_json: bool) -> None:
    """How fast difficulty is estimated, on one core.

    Estimates a second as the gateway makes them (the dependency parse only where d could lie on either side of a
    threshold) and with all 24 features, p50 and p99 of one estimate, and where the time goes. Nothing is remembered
    from one query to the next but words.
    """
    from odar.difficulty.base import estimate_turn
    from odar.difficulty.estimator import LearnedEstimator

    _one_core()
    queries, estimator = _questions(data), LearnedEstimator.load()
    thresholds = 0.3, 0.7  # SPEC 2.7
    served = [estimate_turn(estimator, query, thresholds) for query in queries]  # also meets the words
    for query in queries:
        estimator.estimate(query)
    seconds = {
        name: min(_seconds(lambda work=work: [work(query) for query in queries]) for _ in range(3))
        for name, work in (
            ("served", lambda query: estimate_turn(estimator, query, thresholds)),
            ("parsed", estimator.estimate),
        )
    }
    single = sorted(_seconds(lambda query=query: estimate_turn(estimator, query, thresholds)) for query in queries)
    body: dict[str, Any] = {
        "queries": len(queries),
        "estimates_per_s": len(queries) / seconds["served"],
        "parsed_estimates_per_s": len(queries) / seconds["parsed"],
        "parsed_share": sum(estimate.exact is not None for estimate in served) / len(queries),
        "p50_ms": 1e3 * statistics.median(single),
        "p99_ms": 1e3 * single[int(0.99 * len(single))],
        "share": _shares(queries),
        "load": os.getloadavg()[0],
    }
    if as_json:
        click.echo(json.dumps(body))
        return
    click.echo(f"{len(queries)} queries, one core, CPU time, load {body['load']:.1f}")
    click.echo(f"as served    {body['estimates_per_s']:.0f} estimates/s; {body['parsed_share']:.0%} were parsed")
    click.echo(f"all parsed   {body['parsed_estimates_per_s']:.0f} estimates/s")
    click.echo(f"one estimate p50 {body['p50_ms']:.2f} ms, p99 {body['p99_ms']:.2f} ms")
    click.echo("all parsed   " + ", ".join(f"{name} {share:.0%}" for name, share in body["share"].items()))


def _questions(data: str | None) -> list[Query]:
    """GSM8K's test questions from the folder, or else the starter questions."""
    from odar.recording.questions import starter_questions
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
    from odar.difficulty.syntax import analyse
    from odar.difficulty.text import clean, mask_latex

    texts = [clean(query.text) for query in queries]
    masked = [mask_latex(text) for text in texts]
    groups = {
        "parse": lambda: list(map(analyse, masked)),
        "lexical": lambda: [*map(lexical_features, texts, texts)],
        "other structural": lambda: [*map(logical_connectives, texts)],
        "semantic": lambda: [*map(semantic_features, queries, texts)],
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
    prior's row there flatters; the posterior is cross-validated on top of it.
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


@click.command("fusion")
@click.option("--data", type=UserPath(), metavar="DIR", required=True, help="Folder with mmlu_pro_outcomes.")
@click.option(
    "--groups", type=click.IntRange(min=1), default=20, show_default=True, help="Random groups of 3 to 6."
)
@click.option("--pairs", type=click.IntRange(min=0), default=50, show_default=True, help="Pairs; 0 for all 3,321.")
@click.option(
    "--seed", type=int, default=42, show_default=True, help="Random seed for groups, pairs, folds and draws."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def fusion(data: str, groups: int, pairs: int, seed: int, as_json: bool) -> None:
    """How well the fitted fusion rule chooses, on recorded models.

    Beside it: majority, the best single model and the paper's argmin. All figures of the fitted rule are for
    questions it was not fitted to.
    """
    from bench_fusion import load_panel, measure_group, random_groups
    from bench_fusion import pairs as draw_pairs

    panel = load_panel(data)
    wanted: dict[str, Sequence[Sequence[int]]] = {
        "groups": list(random_groups(panel, groups, seed)),
        "pairs": list(draw_pairs(panel, pairs or None, seed)),
    }
    results: dict[str, list[GroupResult]] = {
        kind: [measure_group(panel, members, seed) for members in _visibly(found, kind, quiet=as_json)]
        for kind, found in wanted.items()
    }
    if as_json:
        click.echo(json.dumps({kind: [asdict(each) for each in found] for kind, found in results.items()}))
        return
    click.echo(f"{'models':>6} {'best':>6} {'majority':>9} {'argmin':>7} {'plain':>6} {'fitted':>7} {'margin':>8}")
    for each in results["groups"]:
        figures = [each.best_single, each.majority, each.argmin, each.plain, each.fitted]
        shown = "{:>6.3f} {:>9.3f} {:>7.3f} {:>6.3f} {:>7.3f}".format(*figures)
        click.echo(f"{len(each.models):>6} {shown} {each.margin:>+8.4f}")
    click.echo("plain: the better of best and majority, as other folds tell; margin: fitted − plain\n")
    for kind, found in results.items():
        for name, margins in (
            ("margin", [each.margin for each in found]),
            ("in hindsight", [each.hindsight_margin for each in found]),
        ):
            low = sum(margin < -LOSS for margin in margins)
            summary = f"worst {min(margins):+.4f}, mean {statistics.mean(margins):+.4f}, {low} below −{LOSS:g}"
            click.echo(f"{len(margins)} {kind}, {name}: {summary}")
        click.echo(f"{len(found)} {kind}, by luck: {_luck(found)}")
    click.echo("by luck: in hindsight, of a rule that knows the best setting, on questions drawn anew; median draw")


def _luck(found: Sequence[GroupResult]) -> str:
    """What hindsight costs a rule that knows everything: medians over the draws."""
    draws = [*zip(*(each.luck for each in found), strict=True)]
    worst, mean = statistics.median(map(min, draws)), statistics.median(map(statistics.fmean, draws))
    low = statistics.median(sum(margin < -LOSS for margin in draw) for draw in draws)
    return f"worst {worst:+.4f}, mean {mean:+.4f}, {low:g} below −{LOSS:g}"


def _visibly(work: Sequence[T], name: str, *, quiet: bool) -> Iterable[T]:
    """Yield the items with a progress bar that is removed at the end."""
    from rich.console import Console
    from rich.progress import track

    return track(work, name, console=Console(stderr=True, quiet=quiet), transient=True)


def _one_core() -> None:
    """Run on one core, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _seconds(work: Any) -> float:
    """CPU time, so that other work on the machine counts less."""
    started = time.process_time()
    work()
    return time.process_time() - started
