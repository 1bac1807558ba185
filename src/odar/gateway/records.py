"""The record of one request: metrics count it, the log shows it, the store keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from odar.store.record import CANCELLED, DIRECT, ERROR, NOTHING_SPENT, OK, Record, Unanswered, path_of
from odar.types import Answer, Call, Decision, Query, Spend, Trace

CLIENT_LEFT = 499
"""The status of a request whose client left before it was answered."""
OTHER = "other"
"""Label for a model name that is not in the settings: clients can choose any name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that has ended."""

    trace_id: str
    endpoint: str
    model: str
    """The name the client asked for."""
    status: int
    """What the client was told; 499 if it had left."""
    seconds: float
    stream: bool
    key_id: str | None
    query: Query | None = None
    """The prompts: kept only if `store.content` allows it."""
    trace: Trace | None = None
    """None if there is no answer."""
    error: str | None = None
    decision: Decision | None = None
    """The path that was taken, or had been begun."""
    calls: tuple[Call, ...] = ()
    """All requests to providers; one that was cut off has an unknown usage."""
    spend: Spend = NOTHING_SPENT
    request_id: str = ""
    """The client's id of the request, else the trace's."""
    settled: bool = False
    """Whether its key has paid for it already."""

    def record(self, profile: str) -> Record:
        """Return it as the store keeps it; a request without an answer has what is known of it."""
        extra = {"endpoint": self.endpoint, "asked": self.model, "status": self.status, "stream": self.stream}
        outcome: Answer | Unanswered
        if self.trace is not None:
            winner = self.trace.candidates[self.trace.verdict.winner]
            outcome = Answer(winner.answer, winner.text, self.trace)
        else:
            passed = self.error is None and self.status == 200  # embeddings or completions: no decision
            outcome = Unanswered(
                id=self.trace_id,
                started_at=(datetime.now(UTC) - timedelta(seconds=self.seconds)).isoformat(timespec="milliseconds"),
                profile=profile,
                status=OK if passed else CANCELLED if self.status == CLIENT_LEFT else ERROR,
                error=self.error,
                path=DIRECT if passed else path_of(self.decision) if self.decision else None,
                decision=self.decision,
                calls=self.calls,
                spend=self.spend,
            )
        return Record(self.query or Query(""), outcome, self.key_id, extra, self.settled)

    def without_model_name(self) -> Entry:
        """Return it without the name of its model, which is outside the settings: a text of the client."""

        def decided(decision: Decision) -> Decision:
            return replace(decision, assignment=replace(decision.assignment, fast=OTHER))

        calls = tuple(replace(call, model=OTHER, error=call.error and "error") for call in self.calls)
        trace = self.trace and replace(
            self.trace,
            decision=decided(self.trace.decision),
            candidates=tuple(replace(each, model=OTHER) for each in self.trace.candidates),
            calls=calls,
            degradations=tuple(each.replace(self.model, OTHER) for each in self.trace.degradations),
        )
        return replace(
            self,
            model=OTHER,
            error=self.error and self.error.partition(":")[0],
            calls=calls,
            trace=trace,
            decision=self.decision and decided(self.decision),
        )
