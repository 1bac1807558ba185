"""Explanations of an answer, for `odar ask --explain` and `odar traces show`.

Both print the document of the store, in 80 columns and readable without colour: the story of the stages, and with
`--verbose` the difficulty, its features and the energies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from odar.cli.terminal import WIDTH, format_known, page_console, print_facts
from odar.errors import one_line
from odar.traces.record import Record, to_document, to_json
from odar.traces.story import dollars, spend_line, tell_story
from odar.types import Answer, Query

_ENERGIES = {
    "E": ("energy", "{:.4f}"),
    "V": ("varentropy", "{:.3f}"),
    "F": ("free_energy", "{:.4f}"),
    "F̃": ("aligned", "{:+.2f}"),
}
"""Name in the document and format of each column."""
_LEGEND = "E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen"
_MAX_FEATURES = 5
"""Number of features to show: those with the largest contributions."""


def print_explanation(answer: Answer, query: Query, profile_reason: str, *, verbose: bool = False) -> None:
    """Write the story of an answer, its calls, tokens, cost and time to standard error."""
    document = json.loads(to_json(to_document(Record(query, answer.trace), content=True)))
    facts = list(document_facts(document, verbose=verbose))
    facts += [("profile", f"{answer.trace.profile} ({profile_reason})"), ("trace", answer.trace.id)]
    click.echo(err=True)
    print_document(document, facts, stderr=True, verbose=verbose)


def print_document(
    document: Mapping[str, Any], facts: Iterable[tuple[str, str]], *, stderr: bool = False, verbose: bool = False
) -> None:
    """Write the facts and, if `verbose`, a table of the candidates with their energies."""
    print_facts(facts, stderr=stderr)
    if verbose and document["candidates"]:
        console = page_console(stderr=stderr)
        console.print()
        console.print(_candidate_table(document))
        console.print(_LEGEND, style="dim")


def text_of(part: Mapping[str, Any], name: str) -> str:
    """A text of a document, or its length if the text is not stored."""
    return str(part[name]) if name in part else f"({part[f'{name}_characters']:,} characters, not kept)"


def _candidate_table(document: Mapping[str, Any]) -> Table:
    """A table with a row for each candidate; long answers are cut."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", width=WIDTH - 1)
    table.add_column("", min_width=1)
    table.add_column("agent", min_width=11, no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in _ENERGIES:
        table.add_column(name, justify="right", min_width=7, no_wrap=True)
    winner = document["verdict"] and document["verdict"]["winner"]
    for index, candidate in enumerate(document["candidates"]):
        energy = candidate["energy"] or {}
        figures = [format_known(energy.get(name), spec, "-") for name, spec in _ENERGIES.values()]
        shown = one_line(text_of(candidate, "final"))
        mark, style = ("*", "bold") if index == winner else ("", "")
        table.add_row(*map(Text, [mark, f"{candidate['agent']} {candidate['step']}", shown, *figures]), style=style)
    return table


def document_facts(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the story, the models and the cost; if `verbose`, also what the difficulty is made of."""
    spend = document["spend"]
    plan = document["plan"]
    if plan is None:
        yield "path", document["path"] or "none was chosen"
        yield "models", ", ".join(dict.fromkeys(call["model"] for call in document["calls"])) or "none"
    else:
        yield from tell_story(document)
        dial = f", dial {plan['dial']}" if plan["policy"] == "cascade" else ""
        yield "path", f"{document['path']}{dial}"
        yield "models", ", ".join(f"{agent} {name}" for agent, name in plan["assignment"]["models"].items())
        if plan["certificate"]:
            yield "certificate", plan["certificate"]
        if verbose:
            yield from _plan_facts(plan)
    yield "calls", str(spend["calls"])
    yield "tokens", _tokens(spend["usage"])
    yield "cost", spend_line(spend["cost_usd"], document["baseline_usd"], _unknown_cost(document))
    yield "time", f"{spend['seconds'] or 0:.2f} s"
    for reason in document["degradations"]:
        yield "degraded", reason
    for note in document["notes"]:
        yield "note", note


def _unknown_cost(document: Mapping[str, Any]) -> str:
    """Why the cost is unknown, and how to set a price."""
    costless = next((call for call in document["calls"] if call["cost_usd"] is None), None)
    if costless is None:
        return "unknown"
    price = f"""price of [models."{costless["model"]}"] in odar.toml"""
    if None in (costless["usage"]["input"], costless["usage"]["output"]):
        return f"unknown: a price ({price}) or a token count is missing"
    return f"unknown: set the {price}"


def _plan_facts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield difficulty, features, expert, kind and prices."""
    estimate = plan["estimate"]
    assignment = plan["assignment"]
    yield "difficulty", f"{estimate['difficulty']:.3f} by {estimate['estimator']}"
    if shares := sorted(estimate["contributions"], key=lambda each: -abs(each[2]))[:_MAX_FEATURES]:
        yield "features", ", ".join(f"{name} {value:.3g} ({share:+.2f})" for name, value, share in shares)
    yield "expert", f"{assignment['expert']} ({assignment['cue']})"
    yield "kind", plan["kind"] + (f", {plan['plausible']} plausible answers" if plan["plausible"] else "")
    nominal = " (nominal, because a price is unknown or zero)" if plan["nominal"] else ""
    prices = ", ".join(f"{agent} {dollars(price)}" for agent, price in plan["prices"].items())
    yield "prices", f"{prices} a call{nominal}; a right answer is worth {dollars(plan['value_usd'])}"


def _tokens(usage: Mapping[str, Any]) -> str:
    counts = {name: "unknown" if usage[name] is None else f"{usage[name]:,}" for name in ("input", "output")}
    parts = {"cached": usage["cached"], "written to the cache": usage.get("written")}
    cached = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    reasoning = f" ({usage['reasoning']:,} reasoning)" if usage["reasoning"] else ""
    return f"{counts['input']} in{f' ({cached})' if cached else ''}, {counts['output']} out{reasoning}"
