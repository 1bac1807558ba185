"""The record of a request, for metrics, log and store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from odar.conversation import Options
from odar.traces.record import CANCELLED, ERROR, NOTHING_SPENT, OK, Record, Unanswered, path_name
from odar.types import DIRECT, Answer, Call, Decision, Plan, Query, Spend, Trace

CLIENT_LEFT = 499
"""The status of a request whose client left before the answer."""
OTHER = "other"
"""Replacement for a model name that is not in the settings, because clients can choose any name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that has ended."""

    trace_id: str
    endpoint: str
    model: str
    """The name in the request."""
    status: int
    """The HTTP status; 499 if the client had left."""
    seconds: float
    stream: bool
    key_id: str | None
    query: Query | None = None
    """The prompts; stored only if `store.content` allows it."""
    trace: Trace | None = None
    """None if there is no answer."""
    error: str | None = None
    error_summary: str | None = None
    """The error without its message, which may quote the request."""
    plan: Plan | None = None
    decisions: tuple[Decision, ...] = ()
    """What was decided, even if there is no answer."""
    calls: tuple[Call, ...] = ()
    """All requests to providers; cancelled ones have an unknown usage."""
    spend: Spend = NOTHING_SPENT
    request_id: str = ""
    """The client's id of the request, or else the trace's."""
    settled: bool = False
    """Whether its key has already been charged."""

    @property
    def path(self) -> str | None:
        return None if self.plan is None else path_name(self.plan, self.decisions)

    def record(self, profile: str) -> Record:
        extra = {"endpoint": self.endpoint, "asked": self.model, "status": self.status, "stream": self.stream}
        outcome: Answer | Unanswered
        if self.trace is not None:
            winner = self.trace.candidates[self.trace.verdict.winner]
            outcome = Answer(winner.text, winner.answer, self.trace)
        else:
            status, path = ERROR, self.path
            if self.error is None and self.status == 200:  # embeddings or completions: no decision
                status, path = OK, DIRECT
            elif self.status == CLIENT_LEFT:
                status = CANCELLED
            outcome = Unanswered(
                id=self.trace_id,
                started_at=(datetime.now(UTC) - timedelta(seconds=self.seconds)).isoformat(timespec="milliseconds"),
                profile=profile,
                status=status,
                error=self.error,
                error_summary=self.error_summary,
                path=path,
                plan=self.plan,
                decisions=self.decisions,
                calls=self.calls,
                spend=self.spend,
            )
        asked = self.query or Query("")  # without the earlier turns and the tools, which are not stored
        query = Query(asked.text, asked.images, options=Options(max_tokens=asked.options.max_tokens))
        return Record(query, outcome, self.key_id, extra, self.settled)

    def without_model_name(self) -> Entry:
        plan = self.plan and replace(self.plan, assignment=replace(self.plan.assignment, models={DIRECT: OTHER}))
        calls = tuple(replace(call, model=OTHER, error=call.error_summary) for call in self.calls)
        trace = self.trace and replace(
            self.trace,
            plan=plan or self.trace.plan,
            candidates=tuple(replace(candidate, model=OTHER) for candidate in self.trace.candidates),
            calls=calls,
            degradations=tuple(text.replace(self.model, OTHER) for text in self.trace.degradations),
            notes=tuple(text.replace(self.model, OTHER) for text in self.trace.notes),
            degradation_summaries=tuple(
                text.replace(self.model, OTHER) for text in self.trace.degradation_summaries
            ),
        )
        return replace(
            self,
            model=OTHER,
            error=self.error_summary,
            calls=calls,
            trace=trace,
            plan=plan,
        )
