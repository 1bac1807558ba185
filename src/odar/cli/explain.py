"""How an answer was produced, as text: `odar ask --explain` and `odar traces show`.

Readable in 80 columns, without colour, and piped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odar.cli.terminal import plain_table, strip_control_chars
from odar.policy.fusion import Fusion
from odar.settings import Settings
from odar.types import Answer, Candidate, Decision, Estimate, Look, Step, TargetUse, Usage, Verdict

WIDTH = 80
_ENERGIES = (("E", ".4f"), ("V", ".3f"), ("F", ".4f"), ("F̃", "+.2f"))
_LEGEND = "E energy per character · V varentropy · F = E + λV · F̃ aligned · * chosen"
_JUDGMENTS = {True: "agrees: ", False: "disagrees: ", None: ""}
_FEATURES = 5
"""Features to name: those that move d the most."""
_ANSWER = 36
"""Characters of an answer to show."""


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """One candidate; its answer is cut where it is long, never the figures."""

    chosen: bool
    step: Step
    judgment: bool | None
    answer: str
    energies: Sequence[float | None]
    """E, V, F and F̃; None where one is unknown."""

    def cells(self) -> list[str]:
        """Mark, agent, answer and figures."""
        figures = [
            "-" if value is None else format(value, form)
            for value, (_, form) in zip(self.energies, _ENERGIES, strict=True)
        ]
        shown = _JUDGMENTS[self.judgment] + _flat(self.answer)
        return ["*" if self.chosen else "", f"{self.step.role} {self.step}", shown, *figures]


def print_sheet(
    facts: Iterable[tuple[str, str]], candidates: Sequence[CandidateLine], *, stderr: bool = False
) -> None:
    """Write both."""
    console = Console(stderr=stderr, width=WIDTH, highlight=False, markup=False)
    console.print(_fact_table(facts))
    if candidates:
        console.print()
        console.print(_candidates(candidates))
        console.print(_LEGEND, style="dim")


def models(fast: str, slow: str) -> str:
    """Who took part; there is no slow one where the caller named the model."""
    return f"fast {fast}, slow {slow}" if slow else fast


def money(cost: float | None) -> str:
    """US dollars."""
    return "unknown: a price or a token count is missing" if cost is None else f"${cost:.6f}"


def tokens(count: int | None) -> str:
    """A number of tokens."""
    return "unknown" if count is None else f"{count:,}"


def _fact_table(facts: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(_flat(value)))
    return table


def _flat(text: str) -> str:
    """Without line breaks, and without what a terminal would obey."""
    return " ".join(strip_control_chars(text).split())


def _candidates(candidates: Iterable[CandidateLine]) -> Table:
    table = plain_table()
    table.width = WIDTH - 1
    table.add_column("", min_width=1)
    table.add_column("agent", min_width=11, no_wrap=True)
    table.add_column("answer", ratio=1, overflow="ellipsis", no_wrap=True)
    for name, _ in _ENERGIES:
        table.add_column(name, justify="right", min_width=7, no_wrap=True)
    for line in candidates:
        table.add_row(*map(Text, line.cells()), style="bold" if line.chosen else "")
    return table


def print_explanation(answer: Answer, settings: Settings) -> None:
    """Write difficulty, path, candidates, calls, tokens, cost and time to standard error."""
    candidates = [
        _line(candidate, chosen=index == answer.trace.verdict.winner)
        for index, candidate in enumerate(answer.trace.candidates)
    ]
    click.echo(err=True)
    print_sheet(_facts(answer, settings), candidates, stderr=True)


def _facts(answer: Answer, settings: Settings) -> Iterator[tuple[str, str]]:
    trace, decision = answer.trace, answer.trace.decision
    yield from decision_facts(decision)
    yield from verdict_facts(trace.verdict, Fusion().groups(trace.candidates), [c.answer for c in trace.candidates])
    yield "calls", str(trace.spend.calls)
    yield "tokens", _tokens(trace.spend.usage)
    yield "cost", money(trace.spend.cost_usd)
    yield "time", f"{trace.spend.seconds:.2f} s"
    for reason in trace.degradations:
        yield "degraded", reason
    yield "profile", f"{trace.profile} ({settings.profile_reason})"
    yield "trace", trace.id


def decision_facts(decision: Decision) -> Iterator[tuple[str, str]]:
    """How the path was chosen: difficulty, features, signals of the fast answer, target, expert and models."""
    yield "difficulty", describe_difficulty(decision.estimate)
    if shares := sorted(decision.estimate.contributions, key=lambda each: -abs(each[2]))[:_FEATURES]:
        yield "features", ", ".join(f"{name} {value:.3g} ({share:+.2f})" for name, value, share in shares)
    if decision.posterior is not None:
        yield "posterior", f"{decision.posterior:.3f} after the fast answer"
    if decision.look is not None:
        yield from look_facts(decision.look)
    if decision.target is not None:
        yield "target", describe_target(decision.target)
    if decision.certificate:
        yield "certificate", decision.certificate
    yield "path", f"{decision.path} ({decision.reason})"
    yield "expert", f"{decision.assignment.expert} ({decision.assignment.cue})"
    yield "models", models(decision.assignment.fast, decision.assignment.slow)


def verdict_facts(verdict: Verdict, groups: Sequence[int], answers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Which rule decided, and the weight and free energy of each answer, the heaviest first."""
    yield "decided by", f"{verdict.scorer}: {verdict.reason}"
    if len(groups) < 2 or not verdict.weights:
        return
    firsts = {group: i for i, group in reversed(list(enumerate(groups)))}
    weights = {group: max(_of(verdict.weights, groups, group), default=0.0) for group in firsts}
    for group in sorted(firsts, key=lambda each: -weights[each]):
        known = [e for e in _of(verdict.energies, groups, group) if not math.isnan(e)]
        energy = f", F(a) = {min(known):+.3f}" if known else ""
        answer = _shortened(answers[firsts[group]])
        yield "answer", f"weight {weights[group]:.2f}{energy}, {groups.count(group)} of {len(groups)}: {answer}"


def _of(values: Sequence[float], groups: Sequence[int], group: int) -> list[float]:
    """The values of one group's candidates."""
    return [value for value, each in zip(values, groups, strict=False) if each == group]


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _ANSWER else flat[: _ANSWER - 1] + "…"


def _line(candidate: Candidate, *, chosen: bool) -> CandidateLine:
    e = candidate.energy
    energies = (None,) * 4 if e is None else (e.energy, e.varentropy, e.free_energy, e.aligned)
    return CandidateLine(chosen, candidate.step, candidate.judgment, candidate.answer, energies)


def _tokens(usage: Usage) -> str:
    cached = f" ({tokens(usage.cached)} cached)" if usage.cached else ""
    reasoning = f" ({tokens(usage.reasoning)} reasoning)" if usage.reasoning else ""
    return f"{tokens(usage.input)} in{cached}, {tokens(usage.output)} out{reasoning}"


def look_facts(look: Look) -> Iterator[tuple[str, str]]:
    """What the fast answer showed: each signal with its rank, and what made the posterior."""
    signals = (
        f"{name} {value:.3g}" + ("" if rank is None else f" (rank {rank:.2f})")
        for name, value, rank in look.signals
    )
    yield "signals", f"{look.kind} answer: {', '.join(signals)}; quantiles {look.quantiles}"
    terms = ", ".join(f"{name} {value:.2f} × {share:.0%}" for name, value, share in look.terms)
    yield "posterior by", terms if look.stated else "no stated answer"


def describe_target(target: TargetUse) -> str:
    """The target, what questions under it cost so far, and the thresholds that it chose."""
    dollars = "$" if target.kind == "cost_usd" else ""
    unit = "" if dollars else " calls"
    before = "none yet" if target.actual is None else f"{dollars}{target.actual:.4g}{unit}"
    chosen = f"t = {target.t:.2f}, τ1 = {target.tau1:.3f}, τ2 = {target.tau2:.3f}"
    return f"{dollars}{target.value:g}{unit} a question, so far {before}; {chosen}"


def describe_difficulty(estimate: Estimate) -> str:
    """The difficulty, which estimator gave it, and whether the question was parsed for it."""
    shown = f"{estimate.exact_or_middle:.3f} by {estimate.estimator}"
    if estimate.interval is None:
        return shown
    low, high = estimate.interval
    if estimate.exact is not None:
        return f"{shown} (parsed; before: {low:.3f} to {high:.3f}, middle {estimate.difficulty:.3f})"
    return f"{shown} (not parsed: middle of {low:.3f} to {high:.3f})"
