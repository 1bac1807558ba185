"""`--explain`: how an answer came about, readable at 80 columns, without colour, and piped."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from odar.settings import Settings
from odar.types import Answer, Candidate, Usage

WIDTH = 80


def print_explanation(answer: Answer, settings: Settings) -> None:
    """Write difficulty, path, candidates, calls, tokens, cost and time to standard error."""
    trace = answer.trace
    console = Console(stderr=True, width=WIDTH, highlight=False, soft_wrap=False)
    estimate = trace.decision.estimate
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("difficulty", f"{estimate.difficulty:.3f} by {estimate.estimator}")
    facts.add_row("path", f"{trace.decision.path} ({trace.decision.reason})")
    assignment = trace.decision.assignment
    facts.add_row("expert", f"{assignment.expert} ({assignment.cue})")
    facts.add_row("models", f"fast {assignment.fast}, slow {assignment.slow}")
    facts.add_row("decided by", f"{trace.verdict.scorer}: {trace.verdict.reason}")
    facts.add_row("calls", str(trace.spend.calls))
    facts.add_row("tokens", _tokens(trace.spend.usage))
    facts.add_row("cost", _money(trace.spend.cost_usd))
    facts.add_row("time", f"{trace.spend.seconds:.2f} s")
    for reason in trace.degradations:
        facts.add_row("degraded", reason)
    facts.add_row("profile", f"{trace.profile} ({settings.profile_reason})")
    facts.add_row("trace", trace.id)
    console.print()
    console.print(facts)
    console.print()
    console.print(_candidates(answer))
    console.print("E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen", style="dim")


def _candidates(answer: Answer) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("agent", no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name in ("E", "V", "F", "F̃"):
        table.add_column(name, justify="right", no_wrap=True)
    for index, candidate in enumerate(answer.trace.candidates):
        chosen = index == answer.trace.verdict.winner
        table.add_row(
            "*" if chosen else "",
            f"{candidate.role} {candidate.step}",
            _one_line(candidate),
            *_energies(candidate),
            style="bold" if chosen else "",
        )
    return table


def _one_line(candidate: Candidate) -> str:
    from rich.markup import escape

    verdict = {True: "agrees: ", False: "disagrees: ", None: ""}[candidate.judgment]
    return escape(verdict + " ".join(candidate.answer.split()))


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
