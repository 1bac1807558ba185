"""`--explain`: how an answer came about, on standard error."""

from __future__ import annotations

from collections.abc import Iterator

import click

from odar.cli.trace_sheet import CandidateLine, models, money, print_sheet, tokens
from odar.settings import Settings
from odar.types import Answer, Candidate, Estimate, Look, TargetUse, Usage


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
    assignment = decision.assignment
    yield "difficulty", describe_difficulty(decision.estimate)
    if decision.posterior is not None:
        yield "posterior", f"{decision.posterior:.3f} after the fast answer"
    if decision.look is not None:
        yield from look_facts(decision.look)
    if decision.target is not None:
        yield "target", describe_target(decision.target)
    yield "path", f"{decision.path} ({decision.reason})"
    yield "expert", f"{assignment.expert} ({assignment.cue})"
    yield "models", models(assignment.fast, assignment.slow)
    yield "decided by", f"{trace.verdict.scorer}: {trace.verdict.reason}"
    yield "calls", str(trace.spend.calls)
    yield "tokens", _tokens(trace.spend.usage)
    yield "cost", money(trace.spend.cost_usd)
    yield "time", f"{trace.spend.seconds:.2f} s"
    for reason in trace.degradations:
        yield "degraded", reason
    yield "profile", f"{trace.profile} ({settings.profile_reason})"
    yield "trace", trace.id


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
