"""`--explain`: how an answer came about, readable at 80 columns, without colour, and piped."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odar.cli.harmless import harmless
from odar.settings import Settings
from odar.types import Answer, Candidate, Usage

WIDTH = 80


def print_explanation(answer: Answer, settings: Settings) -> None:
    """Write difficulty, path, candidates, calls, tokens, cost and time to standard error."""
    trace = answer.trace
    console = Console(stderr=True, width=WIDTH, highlight=False, soft_wrap=False, markup=False)
    estimate = trace.decision.estimate
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("difficulty", Text(f"{estimate.difficulty:.3f} by {estimate.estimator}"))
    if trace.decision.posterior is not None:
        facts.add_row("posterior", Text(f"{trace.decision.posterior:.3f} after the fast answer"))
    facts.add_row("path", Text(f"{trace.decision.path} ({trace.decision.reason})"))
    assignment = trace.decision.assignment
    facts.add_row("expert", Text(f"{assignment.expert} ({assignment.cue})"))
    facts.add_row("models", Text(f"fast {assignment.fast}, slow {assignment.slow}"))
    facts.add_row("decided by", Text(f"{trace.verdict.scorer}: {trace.verdict.reason}"))
    facts.add_row("calls", Text(str(trace.spend.calls)))
    facts.add_row("tokens", Text(_tokens(trace.spend.usage)))
    facts.add_row("cost", Text(_money(trace.spend.cost_usd)))
    facts.add_row("time", Text(f"{trace.spend.seconds:.2f} s"))
    for reason in trace.degradations:
        facts.add_row("degraded", Text(harmless(reason)))
    facts.add_row("profile", Text(f"{trace.profile} ({settings.profile_reason})"))
    facts.add_row("trace", Text(trace.id))
    console.print()
    console.print(facts)
    console.print()
    for line in _candidates(answer):
        console.print(Text(line, style="bold" if line.startswith("*") else ""), no_wrap=True)
    console.print("E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen", style="dim")


def _candidates(answer: Answer) -> Iterator[str]:
    """One line a candidate; a long answer is cut, never the figures."""
    yield _line("", "agent", "answer", ["E", "V", "F", "F̃"])
    for index, candidate in enumerate(answer.trace.candidates):
        mark = "*" if index == answer.trace.verdict.winner else ""
        verdict = {True: "agrees: ", False: "disagrees: ", None: ""}[candidate.judgment]
        shown = verdict + harmless(" ".join(candidate.answer.split()))
        yield _line(mark, f"{candidate.role} {candidate.step}", shown, _energies(candidate))


def _line(mark: str, agent: str, answer: str, figures: list[str]) -> str:
    room = WIDTH - 1 - 2 - 12 - 8 * len(figures)
    cut = answer if cell_len(answer) <= room else set_cell_size(answer, room - 1) + "…"
    numbers = "".join(" " * (8 - cell_len(figure)) + figure for figure in figures)
    return f"{mark:2}{agent:12}{set_cell_size(cut, room)}{numbers}"


def _energies(candidate: Candidate) -> list[str]:
    energy = candidate.energy
    if energy is None:
        return ["-", "-", "-", "-"]
    aligned = "-" if energy.aligned is None else f"{energy.aligned:+.2f}"
    return [f"{energy.energy:.4f}", f"{energy.varentropy:.3f}", f"{energy.free_energy:.4f}", aligned]


def _tokens(usage: Usage) -> str:
    def show(count: int | None) -> str:
        return "unknown" if count is None else f"{count:,}"

    cached = f" ({show(usage.cached)} cached)" if usage.cached else ""
    reasoning = f" ({show(usage.reasoning)} reasoning)" if usage.reasoning else ""
    return f"{show(usage.input)} in{cached}, {show(usage.output)} out{reasoning}"


def _money(cost: float | None) -> str:
    return "unknown: a price or a token count is missing" if cost is None else f"${cost:.6f}"
