"""Explanations of an answer, for `odar ask --explain` and `odar traces show`.

Both print the document of the store, in 80 columns and readable without colour.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odar.cli.terminal import WIDTH, format_known, plain_table, print_facts
from odar.errors import one_line
from odar.store.record import Record, to_document, to_json
from odar.types import Answer, Decision, Estimate, Query, Step

_ENERGIES = {
    "E": ("energy", "{:.4f}"),
    "V": ("varentropy", "{:.3f}"),
    "F": ("free_energy", "{:.4f}"),
    "F̃": ("aligned", "{:+.2f}"),
}
"""Name in the document and format of each column."""
_LEGEND = "E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen"
_JUDGMENTS = {True: "agrees: ", False: "disagrees: ", None: ""}
_MAX_FEATURES = 5
"""Number of features to show: those with the largest contributions."""
_MAX_ANSWER = 36
"""Characters of an answer to show."""


def print_explanation(answer: Answer, query: Query, profile_reason: str) -> None:
    """Write difficulty, path, candidates, calls, tokens, cost and time to standard error."""
    document = json.loads(to_json(to_document(Record(query, answer), content=True)))
    profile = ("profile", f"{answer.trace.profile} ({profile_reason})")
    click.echo(err=True)
    print_document(document, [*document_facts(document), profile, ("trace", answer.trace.id)], stderr=True)


def print_document(document: Mapping[str, Any], facts: Iterable[tuple[str, str]], *, stderr: bool = False) -> None:
    """Write the facts and a table of the candidates."""
    print_facts(facts, stderr=stderr)
    if document["candidates"]:
        console = Console(stderr=stderr, width=WIDTH, highlight=False, markup=False)
        console.print()
        console.print(_candidate_table(document))
        console.print(_LEGEND, style="dim")


def text_of(part: Mapping[str, Any], name: str) -> str:
    """Return a text of a document, or its length if the text is not stored."""
    return str(part[name]) if name in part else f"({part[f'{name}_characters']:,} characters, not kept)"


def _candidate_table(document: Mapping[str, Any]) -> Table:
    """Return a table with a row for each candidate; long answers are cut."""
    table = plain_table()
    table.width = WIDTH - 1
    table.add_column("", min_width=1)
    table.add_column("agent", min_width=11, no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in _ENERGIES:
        table.add_column(name, justify="right", min_width=7, no_wrap=True)
    winner = document["verdict"] and document["verdict"]["winner"]
    for index, candidate in enumerate(document["candidates"]):
        step, energy = Step(candidate["step"]), candidate["energy"] or {}
        figures = [format_known(energy.get(name), spec, "-") for name, spec in _ENERGIES.values()]
        shown = _JUDGMENTS[candidate["judgment"]] + one_line(text_of(candidate, "answer"))
        mark, style = ("*", "bold") if index == winner else ("", "")
        table.add_row(*map(Text, [mark, f"{step.role} {step}", shown, *figures]), style=style)
    return table


def document_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the reasons for the path and the verdict, and the cost."""
    spend = document["spend"]
    if document["decision"] is None:
        yield "path", document["path"] or "none was chosen"
        yield "models", ", ".join(dict.fromkeys(call["model"] for call in document["calls"])) or "none"
    else:
        yield from _decision_facts(msgspec.convert(document["decision"], Decision), document["path"])
    if document["verdict"] is not None:
        yield from _verdict_facts(document)
    yield "calls", str(spend["calls"])
    yield "tokens", _tokens(spend["usage"])
    yield "cost", format_known(spend["cost_usd"], "${:.6f}", "unknown: a price or a token count is missing")
    yield "time", f"{spend['seconds'] or 0:.2f} s"
    for reason in document["degradations"]:
        yield "degraded", reason


def _decision_facts(decision: Decision, path: str) -> Iterator[tuple[str, str]]:
    """Yield the reasons for the path: difficulty, features, fast-answer signals, target, expert and models."""
    yield "difficulty", describe_difficulty(decision.estimate)
    if shares := sorted(decision.estimate.contributions, key=lambda each: -abs(each[2]))[:_MAX_FEATURES]:
        yield "features", ", ".join(f"{name} {value:.3g} ({share:+.2f})" for name, value, share in shares)
    if decision.posterior is not None:
        yield "posterior", f"{decision.posterior:.3f} after the fast answer"
    if (look := decision.look) is not None:
        signals = (
            f"{name} {value:.3g}" + ("" if rank is None else f" (rank {rank:.2f})")
            for name, value, rank in look.signals
        )
        yield "signals", f"{look.kind} answer: {', '.join(signals)}; quantiles {look.quantiles}"
        terms = ", ".join(f"{name} {value:.2f} × {share:.0%}" for name, value, share in look.terms)
        yield "posterior by", terms if look.finished else "an answer that was cut off"
    if (target := decision.target) is not None:
        dollars, unit = ("$", "") if target.kind == "cost_usd" else ("", " calls")
        before = "none yet" if target.actual is None else f"{dollars}{target.actual:.4g}{unit}"
        chosen = f"t = {target.t:.2f}, τ1 = {target.tau1:.3f}, τ2 = {target.tau2:.3f}"
        yield "target", f"{dollars}{target.value:g}{unit} a question, so far {before}; {chosen}"
    if decision.certificate:
        yield "certificate", decision.certificate
    assigned = decision.assignment
    yield "path", f"{path} ({decision.reason})"
    yield "expert", f"{assigned.expert} ({assigned.cue})"
    yield "models", f"fast {assigned.fast}, slow {assigned.slow}" if assigned.slow else assigned.fast


def _verdict_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fusion rule, and the weight and free energy of each answer, sorted by weight."""
    verdict, groups = document["verdict"], document["groups"]
    yield "decided by", f"{verdict['scorer']}: {verdict['reason']}"
    if len(groups) < 2 or not verdict["weights"]:
        return
    weights = {group: max(_of_group(verdict["weights"], groups, group), default=0.0) for group in groups}
    for group in sorted(weights, key=lambda each: -weights[each]):
        energies = _of_group(verdict["energies"], groups, group)
        energy = f", F(a) = {min(energies):+.3f}" if energies else ""
        answer = one_line(text_of(document["candidates"][groups.index(group)], "answer"), _MAX_ANSWER)
        yield "answer", f"weight {weights[group]:.2f}{energy}, {groups.count(group)} of {len(groups)}: {answer}"


def _of_group(values: Sequence[float | None], groups: Sequence[int], group: int) -> list[float]:
    """Return the known values of one group's candidates."""
    return [value for value, each in zip(values, groups, strict=False) if each == group and value is not None]


def _tokens(usage: Mapping[str, Any]) -> str:
    counts = {name: "unknown" if usage[name] is None else f"{usage[name]:,}" for name in ("input", "output")}
    cached = f" ({usage['cached']:,} cached)" if usage["cached"] else ""
    reasoning = f" ({usage['reasoning']:,} reasoning)" if usage["reasoning"] else ""
    return f"{counts['input']} in{cached}, {counts['output']} out{reasoning}"


def describe_difficulty(estimate: Estimate) -> str:
    """Return the difficulty, its estimator, and whether the question was parsed for it."""
    shown = f"{estimate.exact_or_middle:.3f} by {estimate.estimator}"
    if estimate.interval is None:
        return shown
    low, high = estimate.interval
    if estimate.exact is not None:
        return f"{shown} (parsed; before: {low:.3f} to {high:.3f}, middle {estimate.difficulty:.3f})"
    return f"{shown} (not parsed: middle of {low:.3f} to {high:.3f})"
