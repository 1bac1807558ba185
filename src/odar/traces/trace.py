"""The trace of a question, from what the engine knows at its end."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Sequence

from odar.agents.team import Team, describe_failure
from odar.options import AskOptions
from odar.traces.cut_off import cut_off_counts, cut_off_warnings
from odar.types import SLOW, Decision, State, Trace, Verdict


def make_trace(
    options: AskOptions,
    started_at: str,
    profile: str,
    state: State,
    decisions: Sequence[Decision],
    verdict: Verdict,
    team: Team,
) -> Trace:
    ledger = team.ledger
    plan = state.plan
    if options.session is not None:
        agent = state.candidates[verdict.winner].agent
        plan = dataclasses.replace(plan, session=options.session.use(agent, ledger.calls))
    failures = [describe_failure(agent, error) for agent, error in team.failures]
    summaries = [describe_failure(agent, error, quoting=False) for agent, error in team.failures]
    return Trace(
        id=options.trace_id or uuid.uuid4().hex,
        started_at=started_at,
        profile=profile,
        plan=plan,
        decisions=tuple(decisions),
        candidates=state.candidates,
        verdict=verdict,
        calls=tuple(ledger.calls),
        spend=ledger.spend(),
        prompts=tuple((step.value, prompt.md5) for step, prompt in team.prompts.items()),
        degradations=_degradations(state, verdict, team, failures),
        degradation_summaries=_degradations(state, verdict, team, summaries),
        notes=tuple(dict.fromkeys(team.notes)),
        baseline_usd=baseline_usd(team),
    )


def baseline_usd(team: Team) -> float | None:
    """What one call to the slow agent would have cost: by its own tokens, or those of another's answer."""
    card = team.cards.get(SLOW)
    answered = [call for call in team.ledger.calls if call.error is None and call.samples]
    call = next((call for call in answered if call.agent == SLOW), answered[0] if answered else None)
    if call is None or card is None or card.price is None:
        return None
    usage = call.usage
    if usage.output is not None:  # samples of one request share its prompt
        usage = dataclasses.replace(usage, output=usage.output // call.samples)
    return card.price.cost(usage)


def _degradations(state: State, verdict: Verdict, team: Team, failures: Iterable[str]) -> tuple[str, ...]:
    """The failures and shortcuts of a question (SPEC 6.3)."""
    winner = state.candidates[verdict.winner]
    reasons = [state.plan.estimate.fallback, *team.shortcuts, *failures, winner.fault]
    if any(candidate.finish == "length" for candidate in state.candidates):
        limits = {agent: team.request_template(agent).sampling.max_tokens for agent in team.cards}
        setting = "limits.max_tokens" if team.open_ended else ""
        counts = cut_off_counts(state.candidates, team.query.parameters)
        reasons += cut_off_warnings(counts, limits, share=0.5, least=1, setting=setting)
    return tuple(dict.fromkeys(filter(None, reasons)))
