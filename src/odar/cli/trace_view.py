"""Recorded traces for a reader: lists and one in full, within 80 columns, without colour when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from odar.cli.explain import describe_target, look_facts
from odar.cli.tables import plain_table
from odar.cli.trace_sheet import WIDTH, CandidateLine, models, money, print_sheet, tokens
from odar.types import Look, Step, TargetUse

_ID = 8
_COLUMNS = (
    ("trace", _ID),
    ("started", 14),
    ("path", 6),
    ("d", 4),
    ("calls", 5),
    ("cost", 10),
    ("time", 7),
    ("", 2),
)
"""What is never cut short; the names of the models get the rest."""


def print_list(traces: Sequence[dict[str, Any]]) -> None:
    """A line for each trace."""
    table = plain_table()
    for title, width in _COLUMNS:
        figures = title in ("d", "calls", "cost", "time")
        table.add_column(title, min_width=width, no_wrap=True, justify="right" if figures else "left")
    table.add_column("models", no_wrap=True, overflow="ellipsis", ratio=1)
    for trace in traces:
        table.add_row(
            escape(trace["id"][:_ID]),
            f"{trace['started_at'][5:10]} {trace['started_at'][11:19]}",
            trace["path"] or "-",
            _figure(trace["difficulty"], "{:.2f}"),
            str(trace["calls"]),
            _figure(trace["cost_usd"], "${:.5f}", "unknown"),
            f"{trace['seconds']:.2f}s",
            _marks(trace),
            escape(", ".join(trace["models"])),
        )
    Console(width=WIDTH, highlight=False).print(table)


def print_trace(trace: dict[str, Any]) -> None:
    """Everything a reader wants of one trace."""
    document = trace["document"]
    winner = document["verdict"] and document["verdict"]["winner"]
    candidates = [_line(each, chosen=index == winner) for index, each in enumerate(document["candidates"])]
    print_sheet(_facts(trace, document), candidates)


def _facts(trace: dict[str, Any], document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    decision, verdict, answer = document["decision"], document["verdict"], document["answer"]
    yield "trace", trace["id"]
    yield "started", trace["started_at"]
    yield "profile", trace["profile"]
    if trace["status"] != "ok":
        yield trace["status"], trace["error"] or "no reason given"
    yield "question", _text(document["query"], "text")
    if answer is not None:
        yield "answer", _text(answer, "answer")
    if decision is not None:
        estimate, assignment = decision["estimate"], decision["assignment"]
        yield "difficulty", f"{float(estimate['difficulty']):.3f} by {estimate['estimator']}"
        if decision.get("posterior") is not None:
            yield "posterior", f"{float(decision['posterior']):.3f} after the fast answer"
        if (look := decision.get("look")) is not None:
            yield from look_facts(Look(**look))
        if (target := decision.get("target")) is not None:
            yield "target", describe_target(TargetUse(**target))
        yield "path", f"{trace['path']} ({decision['reason']})"
        yield "expert", f"{assignment['expert']} ({assignment['cue']})"
        yield "models", models(assignment["fast"], assignment["slow"])
    else:
        yield "path", trace["path"] or "none was chosen"
        yield "models", ", ".join(trace["models"]) or "none"
    if verdict is not None:
        yield "decided by", f"{verdict['scorer']}: {verdict['reason']}"
    yield "calls", str(trace["calls"])
    yield "tokens", f"{tokens(trace['tokens_in'])} in, {tokens(trace['tokens_out'])} out"
    yield "cost", money(trace["cost_usd"])
    yield "time", f"{trace['seconds']:.2f} s"
    for reason in document["degradations"]:
        yield "degraded", reason
    if trace["key_id"] is not None:
        yield "key", trace["key_id"]
    if (said := trace["feedback"]) is not None:
        note = f": {said['note']}" if said["note"] else ""
        yield "feedback", ("right" if said["correct"] else "wrong") + note


def _line(candidate: dict[str, Any], *, chosen: bool) -> CandidateLine:
    known = candidate["energy"] or {}
    # Earlier versions wrote an infinity as text.
    energies = [None if known.get(name) is None else float(known[name]) for name in _ENERGIES]
    answer = _text(candidate, "answer")
    return CandidateLine(chosen, Step(candidate["step"]), candidate["judgment"], answer, energies)


_ENERGIES = ("energy", "varentropy", "free_energy", "aligned")


def _text(part: dict[str, Any], name: str) -> str:
    """A text, or how long it was where it was not kept."""
    return str(part[name]) if name in part else f"({part[f'{name}_characters']:,} characters, not kept)"


def _figure(value: float | None, form: str, unknown: str = "-") -> str:
    return unknown if value is None else form.format(value)


def _marks(trace: dict[str, Any]) -> str:
    status = {"error": "E", "cancelled": "C"}.get(trace["status"], "")
    said = trace["feedback"]
    return status + ("D" if trace["degraded"] else "") + ("" if said is None else "+" if said["correct"] else "-")
