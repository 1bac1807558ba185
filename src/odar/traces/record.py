"""A question, its trace and its HTTP request, and the JSON document of all three.

With `content` the document holds everything. Without, it holds no text of a user or a model: texts become their
lengths, tokens their log-probabilities, errors their kind, status and code.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from odar.conversation import ChatParameters
from odar.formats import dump_json
from odar.policy.energy import scaffold_mask
from odar.policy.equivalence import group_candidates
from odar.types import DIRECT, NO_USAGE, Call, Candidate, Decision, Image, Plan, Query, Spend, Trace, path_name

OK, ERROR, CANCELLED = "ok", "error", "cancelled"
CLIENT_LEFT = 499
"""The HTTP status of a request whose client left before the answer."""
OTHER = "other"
"""Replacement for a model name that is not in the settings, because clients can choose any name."""
NOTHING_SPENT = Spend(0, NO_USAGE, 0.0, 0.0)
_NO_QUERY = Query("")
_TOKEN_BYTES = 150
"""Approximate memory of a token: a tuple, a short string, a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A request that the engine did not answer: it failed, was cancelled, or was forwarded to one model."""

    id: str
    started_at: str
    """UTC, ISO 8601."""
    profile: str
    plan: Plan | None = None
    """None if the request failed before it was planned, or needs no plan, such as embeddings."""
    decisions: tuple[Decision, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    calls: tuple[Call, ...] = ()
    """All requests to providers; cancelled ones have an unknown usage."""
    spend: Spend = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class Record:
    """A question, its trace and its HTTP request, if any: metrics, log, store and replies show parts of it."""

    query: Query | None
    """The question; None if the request could not be read."""
    trace: Trace | Unanswered
    key_id: str = ""
    """The API key that asked; empty without keys."""
    charged: bool = False
    """Whether its cost is already part of the spending of its key, as for keys with limits."""
    error: str | None = None
    error_summary: str | None = None
    """The error without its message, which may quote the request."""
    # The other fields describe a request to the gateway.
    endpoint: str = ""
    """Such as chat.completions; empty for questions from the library or the command line."""
    model: str = ""
    """The name in the request."""
    http_status: int = 200
    """499 if the client had left."""
    seconds: float = 0.0
    stream: bool = False
    request_id: str = ""
    """The client's id of the request, or else the trace's."""

    @property
    def status(self) -> str:
        """ok, error or cancelled."""
        if isinstance(self.trace, Trace) or (self.error is None and self.http_status == 200):
            return OK
        return CANCELLED if self.http_status == CLIENT_LEFT else ERROR

    @property
    def path(self) -> str | None:
        """Simple, medium, hard or direct; None if the request failed before one was chosen."""
        if self.trace.plan is not None:
            return path_name(self.trace.plan, self.trace.decisions)
        return DIRECT if self.status == OK else None

    def memory_bytes(self) -> int:
        """The approximate size in memory, in constant time per candidate."""
        query = self.query or _NO_QUERY
        images = sum(len(image.data) for image in query.images)
        texts = sum(len(c.text) + _TOKEN_BYTES * len(c.tokens) for c in self.trace.candidates)
        return 2048 + len(query.text) + images + texts

    def without_conversation(self) -> Record:
        """A copy for the store, without earlier turns and tools, so that their memory can be freed."""
        query = self.query or _NO_QUERY
        parameters = ChatParameters(max_tokens=query.parameters.max_tokens)
        return replace(self, query=Query(query.text, query.images, parameters=parameters))

    def without_model_name(self) -> Record:
        """A copy without the name of the model, which a client can choose freely."""
        trace = self.trace
        changes: dict[str, Any] = {}
        if trace.plan is not None:
            changes["plan"] = replace(trace.plan, assignment=replace(trace.plan.assignment, models={DIRECT: OTHER}))
        if isinstance(trace, Trace):
            for name in ("degradations", "degradation_summaries", "notes"):
                changes[name] = tuple(text.replace(self.model, OTHER) for text in getattr(trace, name))
        changed = replace(
            trace,
            candidates=tuple(replace(candidate, model=OTHER) for candidate in trace.candidates),
            calls=tuple(replace(call, model=OTHER, error=call.error_summary) for call in trace.calls),
            **changes,
        )
        return replace(self, model=OTHER, trace=changed, error=self.error_summary)


def to_utc(moment: str) -> str:
    """A time in UTC, as text to the millisecond that sorts by time.

    >>> to_utc("2026-11-15T12:00:00+02:00"), to_utc("2026-11-15")
    ('2026-11-15T10:00:00.000+00:00', '2026-11-15T00:00:00.000+00:00')
    """
    parsed = datetime.fromisoformat(moment)
    parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return parsed.isoformat(timespec="milliseconds")


def finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


VERSION = 2
"""Format version of the document."""


def to_document(record: Record, *, content: bool) -> dict[str, Any]:
    """The record as plain data; unknown values are None."""
    trace = record.trace
    answered = trace if isinstance(trace, Trace) else None
    candidates = trace.candidates
    query = record.query or _NO_QUERY
    request = {"endpoint": record.endpoint, "asked": record.model, "status": record.http_status}
    return {
        "version": VERSION,
        "id": trace.id,
        "started_at": trace.started_at,
        "profile": trace.profile,
        "content": content,
        "key_id": record.key_id or None,
        "query": _text("text", query.text, content)
        | {"images": [_image(image, content) for image in query.images]},
        "plan": None if trace.plan is None else _plan(trace.plan, content),
        "decisions": [_decision(decision) for decision in trace.decisions],
        "candidates": [_candidate(candidate, content) for candidate in candidates],
        # A number per candidate, the same for equal answers: the groups of fusion, without the answers themselves.
        "groups": group_candidates(candidates) if len(candidates) > 1 else [0] * len(candidates),
        "calls": [_call(call, content) for call in trace.calls],
        "spend": _plain(trace.spend),
        "extra": request | {"stream": record.stream} if record.endpoint else {},
        "status": record.status,
        "error": None if answered else record.error if content else record.error_summary,
        "path": record.path,
        "answer": answered and _answer(answered.winner, content),
        "verdict": answered and _plain(answered.verdict),
        "prompts": dict(answered.prompts) if answered else {},
        "degradations": _degradations(answered, content) if answered else [],
        "notes": list(answered.notes) if answered else [],
        "baseline_usd": answered and answered.baseline_usd,
    }


def to_json(document: Mapping[str, Any]) -> str:
    """Strict JSON for any parser and any database: unpaired surrogates are escaped."""
    return dump_json(document, errors="backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Dataclasses and enums as plain data, and NumPy numbers as Python numbers."""
    return msgspec.to_builtins(value, enc_hook=lambda number: number.item())


def _text(name: str, text: str, content: bool) -> dict[str, Any]:
    return {name: text, f"{name}_characters": len(text)} if content else {f"{name}_characters": len(text)}


def _answer(candidate: Candidate, content: bool) -> dict[str, Any]:
    return _text("text", candidate.text, content) | _text("final", candidate.answer, content)


def _degradations(trace: Trace, content: bool) -> list[str]:
    """The degradations; without `content`, no fault that may quote the answer or name the client's tools."""
    if content:
        return list(trace.degradations)
    faults = {candidate.fault for candidate in trace.candidates if candidate.fault}
    return [
        "the answer does not have the requested form" if summary in faults else summary
        for summary in trace.degradation_summaries
    ]


def _image(image: Image, content: bool) -> dict[str, Any]:
    figures = {"media_type": image.media_type, "bytes": len(image.data)}
    return figures | {"data": base64.b64encode(image.data).decode(), "url": image.url} if content else figures


def _plan(plan: Plan, content: bool) -> dict[str, Any]:
    tree: dict[str, Any] = _plain(plan)
    if not content:  # "keywords: integral, matrix" is made of words of the query
        tree["assignment"]["cue"] = plan.assignment.cue.partition(":")[0]
    return tree


def _decision(decision: Decision) -> dict[str, Any]:
    tree: dict[str, Any] = _plain(decision)
    return tree | {"stage": None if decision.stage is None else str(decision.stage)}


def _candidate(candidate: Candidate, content: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"stage": candidate.stage, "agent": candidate.agent, "step": candidate.step.value}
    out["model"] = candidate.model
    out |= _answer(candidate, content)
    out |= {"judgment": candidate.judgment, "finish": candidate.finish, "stated": candidate.stated}
    out["energy"] = None if candidate.energy is None else _plain(candidate.energy)
    # Columns take a third of the space of one object per token, and the texts can be left out.
    tokens = candidate.tokens
    out["logprobs"] = [token.logprob for token in tokens]
    out["control"] = [index for index, token in enumerate(tokens) if token.control]
    # Format tokens (SPEC 5.4) can only be recognised by their texts, which may not be stored.
    mask = scaffold_mask([token.text for token in tokens])
    out["scaffold"] = [index for index, masked in enumerate(mask) if masked and not tokens[index].control]
    return out | {"tokens": [token.text for token in tokens]} if content else out


def _call(call: Call, content: bool) -> dict[str, Any]:
    tree: dict[str, Any] = _plain(call)
    summary = tree.pop("error_summary")
    return tree if content else tree | {"error": summary}
