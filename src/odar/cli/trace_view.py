"""Recorded traces for a reader: lists and one in full, within 80 columns, without colour when piped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from odar.cli.harmless import harmless

WIDTH = 80
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
    table = _table()
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
    console = Console(width=WIDTH, highlight=False)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(trace, document):
        facts.add_row(name, escape(value))
    console.print(facts)
    if document["candidates"]:
        console.print()
        console.print(_candidates(document))
        console.print("E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen", style="dim")


def _facts(trace: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, str]]:
    decision, verdict, answer = document["decision"], document["verdict"], document["answer"]
    facts = [("trace", trace["id"]), ("started", trace["started_at"]), ("profile", trace["profile"])]
    if trace["status"] != "ok":
        facts.append((trace["status"], trace["error"] or "no reason given"))
    facts.append(("question", _text(document["query"], "text")))
    if answer is not None:
        facts.append(("answer", _text(answer, "answer")))
    if decision is not None:
        estimate = decision["estimate"]
        facts.append(("difficulty", f"{float(estimate['difficulty']):.3f} by {estimate['estimator']}"))
        if decision.get("posterior") is not None:
            facts.append(("posterior", f"{float(decision['posterior']):.3f} after the fast answer"))
        facts.append(("path", f"{trace['path']} ({decision['reason']})"))
        facts.append(("expert", f"{decision['assignment']['expert']} ({decision['assignment']['cue']})"))
    else:
        facts.append(("path", trace["path"] or "none was chosen"))
    facts.append(("models", ", ".join(trace["models"]) or "none"))
    if verdict is not None:
        facts.append(("decided by", f"{verdict['scorer']}: {verdict['reason']}"))
    facts.append(("calls", str(trace["calls"])))
    facts.append(("tokens", f"{_count(trace['tokens_in'])} in, {_count(trace['tokens_out'])} out"))
    facts.append(("cost", _figure(trace["cost_usd"], "${:.6f}", "unknown")))
    facts.append(("time", f"{trace['seconds']:.2f} s"))
    facts += [("degraded", reason) for reason in document["degradations"]]
    if trace["key_id"] is not None:
        facts.append(("key", trace["key_id"]))
    if (said := trace["feedback"]) is not None:
        note = f": {said['note']}" if said["note"] else ""
        facts.append(("feedback", ("right" if said["correct"] else "wrong") + note))
    return [(name, harmless(" ".join(value.split()))) for name, value in facts]


def _candidates(document: dict[str, Any]) -> Table:
    table = _table()
    table.add_column("")
    table.add_column("agent", no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in ("E", "V", "F", "F̃"):
        table.add_column(name, justify="right", no_wrap=True)
    winner = document["verdict"] and document["verdict"]["winner"]
    for index, candidate in enumerate(document["candidates"]):
        energy = candidate["energy"] or {}
        shown = [_figure(energy.get(name), form) for name, form in _ENERGIES]
        text = harmless(" ".join(_text(candidate, "answer").split()))
        table.add_row(
            "*" if index == winner else "", f"{candidate['step']} {candidate['model']}"[:24], escape(text), *shown
        )
    return table


_ENERGIES = (("energy", "{:.4f}"), ("varentropy", "{:.3f}"), ("free_energy", "{:.4f}"), ("aligned", "{:+.2f}"))


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")


def _text(part: dict[str, Any], name: str) -> str:
    """A text, or how long it was where it was not kept."""
    return str(part[name]) if name in part else f"({part[f'{name}_characters']:,} characters, not kept)"


def _figure(value: float | str | None, form: str, unknown: str = "-") -> str:
    return unknown if value is None else form.format(float(value))


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _marks(trace: dict[str, Any]) -> str:
    status = {"error": "E", "cancelled": "C"}.get(trace["status"], "")
    said = trace["feedback"]
    return status + ("D" if trace["degraded"] else "") + ("" if said is None else "+" if said["correct"] else "-")
