"""Reports of `odar calibrate`: a comparison, a certificate, statistics, and prompt sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from odar.calibration_file import Calibration
from odar.cli.terminal import plain_table, print_table, print_text
from odar.lab.calibration.compare import Comparison
from odar.lab.calibration.guarantee import Certificate
from odar.lab.calibration.items import ScoredItems
from odar.lab.recording.schema import RecordedItem
from odar.lab.replay.outcomes import Outcomes
from odar.types import Step


def print_comparison(items: ScoredItems, comparison: Comparison, *, nominal: bool) -> None:
    """Print the frontier: all fixed choices, and the cascades that no other cascade beats."""
    slow = comparison.slow
    click.echo(f"{len(items)} questions, each judged by a fit to other questions; 95% intervals\n")
    score = "right" if items.labelled else "same as slow"
    columns = ("", "choice", score, "against one slow call", "cost", "calls")
    table = plain_table(*columns, gap=1, right=("cost", "calls"))
    for choice in comparison.frontier():
        mark = "→" if choice is comparison.best else ""
        row = (mark, choice.name, str(comparison.score(choice)), comparison.gain(choice).signed())
        table.add_row(*row, f"{comparison.cost(choice):.2f}", f"{choice.calls.mean():.2f}")
    print_table(table)
    click.echo()
    notes = [f"cost: one slow call is 1.00, or ${slow.cost_usd.mean():.6f}" + " by nominal prices" * nominal]
    stages = {choice.cascade: choice.settings.get("routing.stages") for choice in comparison.choices}
    notes += [f"{name}: stages {', '.join(each)}" for name, each in stages.items() if isinstance(each, list)]
    if not items.labelled and items.slow_repeats:
        notes.append("same as slow: as another answer of slow, so the row of slow is how often it repeats itself")
    elif not items.labelled:
        notes.append("slow answered once, so how often it repeats itself is unknown: record --samples 2 or more")
    for note in notes:
        print_text(note)


def print_statistics(calibration: Calibration) -> None:
    """Print the statistics of each source."""
    for source, known in calibration.statistics.items():
        accuracy = "" if known.accuracy is None else f", accuracy {known.accuracy:.3f}"
        measured = f"μ = {known.mean:.4f}, σ = {known.deviation:.4f} of {known.count} answers"
        click.echo(f"{source.model}: {measured}{accuracy}")


def certificate_sentence(certificate: Certificate, choice: Outcomes | None, reference: Outcomes) -> str:
    """Return the result of a test in one sentence."""
    bound = certificate.bound
    claim = f"at most {bound.at_most_worse:g} less accurate than {bound.against}, {bound.confidence:.0%} confidence"
    more = "; more questions would not help"
    if certificate.more_items is not None:
        more = f"; the next cheaper dial would take about {certificate.more_items} more test questions"
    tested = f"on {certificate.items} questions of no fit"
    if choice is None:
        return f"Nothing is certified to be {claim} {tested}: statistics are written, the policy stays{more}."
    cost = choice.cost_usd.mean() / reference.cost_usd.mean()
    figures = f"{choice.score.mean():.3f} against {reference.score.mean():.3f} {tested}, at {cost:.2f} of its cost"
    if cost >= 1:
        return f"No dial cheaper than {bound.against} is certified to be {claim}: the cheapest has {figures}{more}."
    return (
        f"Certified: the cascade at dial {certificate.points:g} is {claim}, for questions exchangeable with these: "
        f"{figures}{more}."
    )


PROMPT_FIGURES = {
    "answers": ("answers", "d"),
    "accuracy": ("accuracy", ".3f"),
    "tokens": ("tokens", ".0f"),
    "cut_off": ("cut off", ".2f"),
    "unstated": ("unstated", ".2f"),
    "accuracy_per_100_tokens": ("per 100 tokens", ".2f"),
}
"""Title and format of each figure of a prompt set (SPEC 3.7)."""


def prompt_rows(prompts: str, items: Iterable[RecordedItem]) -> list[dict[str, Any]]:
    """Return the figures of a prompt set, means or shares, with a row for each step that has answers."""
    attempts = [attempt for item in items for attempt in item.attempts]
    rows = []
    for step in Step:
        if own := [attempt for attempt in attempts if attempt.step is step]:
            accuracy = sum(attempt.score or 0.0 for attempt in own) / len(own)
            tokens = sum(attempt.usage.output or len(attempt.tokens) for attempt in own) / len(own)
            row = {
                "answers": len(own),
                "accuracy": accuracy,
                "tokens": tokens,
                "cut_off": sum(attempt.finish == "length" for attempt in own) / len(own),
                "unstated": sum(not attempt.stated for attempt in own) / len(own),
                "accuracy_per_100_tokens": 100 * accuracy / tokens if tokens else 0.0,
            }
            rows.append({"prompts": prompts, "step": step.value, **row})
    return rows


def print_prompts(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of `prompt_rows`."""
    titles = ("prompts", "step", *(title for title, _ in PROMPT_FIGURES.values()))
    table = plain_table(*titles, gap=2, right=titles[2:])
    for row in rows:
        figures = (format(row[name], form) for name, (_, form) in PROMPT_FIGURES.items())
        table.add_row(row["prompts"], row["step"], *figures)
    print_table(table)
