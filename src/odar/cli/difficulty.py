"""`odar difficulty`: the difficulty and the path of a question, and the contribution of each feature."""

from __future__ import annotations

from typing import Any

import click

from odar.cli.options import FILE, json_option, settings_options
from odar.cli.terminal import print_json
from odar.difficulty.base import open_estimator
from odar.errors import InputError, one_line
from odar.inputs import check_text
from odar.lab.recording.questions import QueryLine, load_lines
from odar.policy.experts import route_expert
from odar.policy.paper import PaperPolicy
from odar.settings import Settings
from odar.types import Assignment, Plan, Query, Route

_BAR_WIDTH = 16
"""Maximum width of a bar in characters."""


@click.command("difficulty")
@click.argument("query", required=False)
@click.option("-f", "--file", type=FILE, metavar="FILE", help="A JSONL file with a query on each line.")
@json_option("Print a JSON object; with --file, one a line.")
@settings_options
def command(query: str | None, file: str | None, as_json: bool, settings: Settings) -> None:
    """Show how hard QUERY looks, its path by the paper's thresholds, and what each feature adds to the score.

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
    estimator = open_estimator(settings.routing.estimator)
    policy = PaperPolicy.from_settings(settings.routing)
    for each in queries:
        plan = Plan(estimator.estimate(each), Assignment(*route_expert(each)))
        path, reason = policy.choose_path(plan)
        if as_json:
            print_json(_to_dict(each, plan, path, reason))
        elif file:
            click.echo(f"{plan.estimate.difficulty:.3f}  {path:<6}  {one_line(each.text, 60)}")
        else:
            _print(plan, path, reason)


def _to_dict(query: Query, plan: Plan, path: Route, reason: str) -> dict[str, Any]:
    estimate = plan.estimate
    return {
        "query": query.text,
        "difficulty": estimate.difficulty,
        "path": path.value,
        "reason": reason,
        "expert": plan.assignment.expert,
        "estimator": estimate.estimator,
        "features": {
            name: {"value": value, "contribution": share} for name, value, share in estimate.contributions
        },
    }


def _print(plan: Plan, path: Route, reason: str) -> None:
    estimate = plan.estimate
    click.echo(f"difficulty  {estimate.difficulty:.3f} by {estimate.estimator}")
    click.echo(f"path        {path} by the paper's policy ({reason})")
    click.echo(f"expert      {plan.assignment.expert} ({plan.assignment.cue})")
    if not estimate.contributions:
        return
    largest = max(abs(share) for _, _, share in estimate.contributions) or 1.0
    click.echo(f"\n{'feature':20} {'value':>9} {'W·φ':>8}  {'easier':>{_BAR_WIDTH}}|harder")
    for name, value, share in estimate.contributions:
        size = round(_BAR_WIDTH * abs(share) / largest)
        left, right = ("", "█" * size) if share > 0 else ("█" * size, "")
        click.echo(f"{name:20} {value:>9.3g} {share:>+8.3f}  {left:>{_BAR_WIDTH}}|{right}")
