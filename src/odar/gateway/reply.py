"""What every protocol says about an answer: its choices, what it cost, how it came about."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

from odar.conversation import ToolCall
from odar.gateway.chat_request import ChatRequest
from odar.policy.fusion import rank
from odar.summary import summary
from odar.types import Answer, Candidate, Decision, Role

_PIECE = re.compile(r"\S+\s*|\s+")
_PIECE_CHARACTERS = 24


def choices(answer: Answer, n: int) -> list[Candidate]:
    """The n best candidates, the winner first; fewer where there are no more."""
    candidates = answer.trace.candidates
    if n == 1:
        return [candidates[answer.trace.verdict.winner]]
    return [candidates[i] for i in rank(candidates, answer.trace.verdict)[:n]]


def calls_of(candidate: Candidate) -> list[ToolCall]:
    """Its tool calls, each with an id: a server that gave none would leave the client nothing to answer to."""
    return [
        call if call.id else ToolCall(f"call_{uuid.uuid4().hex[:24]}", call.name, call.arguments)
        for call in candidate.tool_calls
    ]


def thinking_of(candidate: Candidate) -> str:
    """What an Anthropic model thought before it answered, as far as its server shows it."""
    blocks = candidate.wire.value.get("content") if candidate.wire is not None else None
    thoughts = (b.get("thinking") for b in blocks or () if isinstance(b, dict) and b.get("type") == "thinking")
    return "".join(thought for thought in thoughts if isinstance(thought, str))


def pieces(text: str) -> Iterator[str]:
    """A finished text in pieces of a few words, for a stream; together they are the text.

    >>> list(pieces("one two three four five six"))
    ['one two three four five ', 'six']
    """
    held = ""
    for match in _PIECE.finditer(text):
        held += match.group()
        if len(held) >= _PIECE_CHARACTERS:
            yield held
            held = ""
    if held:
        yield held


def extras_of(answer: Answer, ask: ChatRequest) -> dict[str, Any]:
    """The `odar` object of a response; with `explain`, everything."""
    trace = answer.trace
    short: dict[str, Any] = {
        "trace_id": trace.id,
        "path": trace.decision.path.value,
        "difficulty": trace.decision.difficulty,
        "prior": trace.decision.estimate.difficulty,
        "reason": trace.decision.reason,
        "model": trace.candidates[trace.verdict.winner].model,
        "scorer": trace.verdict.scorer,
        "calls": trace.spend.calls,
        "cost_usd": trace.spend.cost_usd,
        "degraded": answer.degraded,
        "degradations": list(trace.degradations),
    }
    if (use := trace.decision.session) is not None:
        short["session"] = {
            "event": use.event,
            "agent": (Role.SLOW if use.slow else Role.FAST).value,
            "requests": use.requests,
            "switches": use.switches,
            "cached_tokens": use.cached_tokens,
        }
    return short | ({"explanation": summary(answer)} if ask.extras.explain else {})


def decision_headers(decision: Decision, trace_id: str) -> list[tuple[bytes, bytes]]:
    """What is known as soon as the path is."""
    return [
        (b"x-odar-trace", trace_id.encode()),
        (b"x-odar-path", decision.path.encode()),
        (b"x-odar-difficulty", b"%.4f" % decision.difficulty),
    ]


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """What is known when all is done."""
    spend = answer.trace.spend
    cost = b"unknown" if spend.cost_usd is None else b"%.6f" % spend.cost_usd
    headers = decision_headers(answer.trace.decision, answer.trace.id)
    headers += [(b"x-odar-calls", b"%d" % spend.calls), (b"x-odar-cost-usd", cost)]
    return [*headers, (b"x-odar-degraded", b"true")] if answer.degraded else headers
