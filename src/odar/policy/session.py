"""Conversations: what is in the prompt caches, and which agent answers in a tool loop (SPEC 9.7).

Providers charge less for the part of a prompt that is in their cache, and each model has its own cache. So the same
request has other prices in the middle of a conversation than at its beginning; the policy sees nothing but these
prices. A tool loop stays with the agent that began it.

The caller keeps the state and passes the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from odar.types import FAST, Call, Query, SessionUse, Trace

CACHE_S = 300.0
"""Seconds that a prompt stays in a provider's cache after its last use."""


@dataclass(frozen=True, slots=True)
class Session:
    """State of a conversation after its last answer."""

    agent: str = FAST
    """The agent whose answer was returned last."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model of each agent, which a conversation keeps."""
    requests: int = 0
    switches: int = 0
    cached: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Number of tokens in the cache of each agent's model, and the time of its last call."""
    prefix: bytes = b""
    """The caller's digest of the conversation so far: another one is not in the caches."""
    at: float = 0.0
    """Time of the last answer."""

    def request(
        self, query: Query, now: float, before: bytes = b"", *, key: bytes = b"", whole: bytes = b""
    ) -> SessionRequest:
        """The next request of the session.

        `before` and `whole` are digests of the conversation before the model's last turn, and of all of it.
        """
        tokens = query.estimated_tokens
        cached = {
            agent: min(count, tokens)
            for agent, (count, at) in self.cached.items()
            if before == self.prefix and now - at < CACHE_S
        }
        in_tool_loop = self.requests > 0 and query.messages[-1].role == "tool"
        return SessionRequest(self, tokens, cached, in_tool_loop, key, whole)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request of a session, before it is answered."""

    session: Session
    tokens: int
    """Tokens of the whole conversation, estimated from its length."""
    cached: Mapping[str, int]
    """Number of these tokens in the cache of each agent's provider."""
    in_tool_loop: bool
    """Whether its last message is the result of a tool."""
    key: bytes = b""
    """The caller's key of the session."""
    prefix: bytes = b""
    """Digest of the conversation."""

    def use(self, agent: str | None = None, calls: Sequence[Call] = ()) -> SessionUse:
        """The place of this request in its session if this agent answers it; None: the agent of the last answer."""
        session = self.session
        agent = agent or session.agent
        switched = bool(session.requests) and agent != session.agent
        event = "stay" if session.requests else "start"
        if switched:
            event = "return" if agent == FAST else "escalate"
        cached = [call.usage.cached for call in calls if call.usage.cached is not None]
        switches = session.switches + switched
        return SessionUse(event, agent, session.requests + 1, switches, sum(cached) if cached else None)

    def after(self, trace: Trace, now: float, explicit: Collection[str] = ()) -> Session:
        """The session after the answer to this request.

        Providers keep every prompt in their cache; `explicit` ones only what they say they read from it or wrote.
        """
        use = trace.plan.session or self.use()
        cached = dict(self.session.cached)
        for call in trace.calls:
            if not call.failed:
                usage = call.usage
                kept = (usage.cached or 0) + (usage.written or 0)
                cached[call.agent] = (kept if call.provider in explicit else usage.input or self.tokens, now)
        return Session(use.agent, dict(trace.plan.models), use.requests, use.switches, cached, self.prefix, now)
