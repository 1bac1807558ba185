"""`odar difficulty`: the difficulty and the path of a question, and the contribution of each feature."""

from __future__ import annotations

from typing import Any

import click

from odar.calibration_file import load_calibration
from odar.cli.explain import describe_difficulty
from odar.cli.options import FILE, json_option, settings_options
from odar.cli.terminal import print_json
from odar.difficulty.base import open_estimator
from odar.errors import InputError, one_line
from odar.inputs import check_text
from odar.policy.experts import route_expert
from odar.policy.path import Routing
from odar.recording.questions import QueryLine, load_lines
from odar.settings import Settings
from odar.types import Assignment, Decision, Query

_BAR_WIDTH = 16
"""Maximum width of a bar in characters."""


@click.command("difficulty")
@click.argument("query", required=False)
@click.option("-f", "--file", type=FILE, metavar="FILE", help="A JSONL file with a query on each line.")
@json_option("Print a JSON object; with --file, one a line.")
@settings_options
def command(query: str | None, file: str | None, as_json: bool, settings: Settings) -> None:
    """Show how hard QUERY looks, the path it would take, and what each feature adds to the score.

    The score is σ(b + Σ W·φ): bars to the right make it harder, bars to the left easier. No model is called.

    \b
    odar difficulty "Derive the time-dependent Schrödinger equation."
    odar difficulty --file queries.jsonl --json
    """
    if (query is None) == (file is None):
        raise InputError('give a query or --file; try: odar difficulty "Who wrote Hamlet?"')
    if query is None:
        queries = load_lines(file or "", QueryLine, lambda line, _, folder: line.to_query(folder), "queries")
    else:
        check_text(query)
        queries = [Query(query)]
    fitted = load_calibration(settings.calibration).estimator
    estimator = open_estimator(settings.routing.estimator, fitted, settings.calibration)
    routing = Routing.from_settings(settings.routing)
    for each in queries:
        decision = routing.decide(estimator.estimate(each), Assignment(*route_expert(each)))
        if as_json:
            print_json(_to_dict(each, decision))
        elif file:
            click.echo(f"{decision.estimate.exact_or_middle:.3f}  {decision.path:<6}  {one_line(each.text, 60)}")
        else:
            _print(decision)


def _to_dict(query: Query, decision: Decision) -> dict[str, Any]:
    estimate = decision.estimate
    return {
        "query": query.text,
        "difficulty": estimate.exact_or_middle,
        "interval": estimate.interval,
        "middle": estimate.difficulty,
        "path": decision.path.value,
        "reason": decision.reason,
        "expert": decision.assignment.expert,
        "estimator": estimate.estimator,
        "features": {
            name: {"value": value, "contribution": share} for name, value, share in estimate.contributions
        },
    }


def _print(decision: Decision) -> None:
    estimate, assignment = decision.estimate, decision.assignment
    click.echo(f"difficulty  {describe_difficulty(estimate)}")
    click.echo(f"path        {decision.path} ({decision.reason})")
    click.echo(f"expert      {assignment.expert} ({assignment.cue})")
    if not estimate.contributions:
        return
    largest = max(abs(share) for _, _, share in estimate.contributions) or 1.0
    click.echo(f"\n{'feature':20} {'value':>9} {'W·φ':>8}  {'easier':>{_BAR_WIDTH}}|harder")
    for name, value, share in estimate.contributions:
        size = round(_BAR_WIDTH * abs(share) / largest)
        left, right = ("", "█" * size) if share > 0 else ("█" * size, "")
        click.echo(f"{name:20} {value:>9.3g} {share:>+8.3f}  {left:>{_BAR_WIDTH}}|{right}")
