"""Choice of the agent within a conversation, given what is in the prompt caches (SPEC 4.5).

Providers charge less for the part of a prompt that is in their cache, and each model has its own cache. A
conversation that changes its model pays the full price for everything said so far. In a session, therefore,

- the thresholds for escalation rise with what the slow agent would read again at the full price, and those for
  staying with the slow agent fall with what the fast agent would read again;
- a tool loop stays with the agent that began it; the slow agent continues alone, with one call for each step;
- a conversation with tools, and any other from its second request on, pays for drafts and further samples only from
  what it has saved so far against the slow agent alone (`afford`);
- the fast answer can escalate once in a user turn;
- the conversation returns to the fast agent when its difficulty, reduced by a quarter for each step since then, is
  below τ1 and the fast agent is cheaper for this request.

The caller keeps the state and passes the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from odar.catalogue import Price
from odar.difficulty.base import DECAY
from odar.policy.path import Routing
from odar.types import Assignment, Call, Decision, Estimate, Path, Query, Role, SessionUse

CACHE_S = 300.0
"""Seconds that a prompt stays in a provider's cache after its last use."""
STEP_TOKENS = 500
"""Assumed number of tokens that an agent writes in one step."""
KEPT_STEPS = 3
"""Assumed number of steps that the slow agent keeps a conversation; the cost of a change is spread over them."""
_NOMINAL_PRICES = {Role.FAST: Price(1.0, 0.1, 5.0), Role.SLOW: Price(5.0, 0.5, 25.0)}
"""Relative prices if one of the two is unknown or free, as for local models."""


@dataclass(frozen=True, slots=True)
class Session:
    """State of a conversation after its last answer."""

    agent: Role = Role.FAST
    """The agent that answers."""
    pair: tuple[str, str] = ("", "")
    """The models of the fast and the slow agent."""
    path: Path = Path.MEDIUM
    """The last path that was not Simple."""
    difficulty: float = 0.0
    """The difficulty at which it changed to the slow agent."""
    steps: int = 0
    """Number of requests that the slow agent has answered alone since then."""
    escalated: bool = False
    """Whether this user turn changed to the slow agent after it began."""
    requests: int = 0
    switches: int = 0
    saved: float = 0.0
    """Saving so far against the slow agent alone, in millionths of a dollar."""
    read: Mapping[Role, tuple[int, float]] = field(default_factory=dict)
    """Number of tokens that each agent's model read last, and the time."""

    @property
    def remaining_difficulty(self) -> float:
        """The difficulty, reduced for each step since the change to the slow agent."""
        return self.difficulty * DECAY**self.steps

    def request(self, query: Query, now: float, *, same_prefix: bool = True) -> SessionRequest:
        """Return the next request of the session; `same_prefix` if it continues the cached conversation."""
        tokens = query.estimated_tokens
        cached = {
            role: min(count, tokens)
            for role, (count, at) in self.read.items()
            if same_prefix and now - at < CACHE_S
        }
        loop = self.requests > 0 and query.messages[-1].role == "tool"
        return SessionRequest(self, tokens, cached, loop, bool(query.options.tools))


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request of a session, before it is answered."""

    session: Session
    tokens: int
    """Tokens of the whole conversation, estimated from its length."""
    cached: Mapping[Role, int]
    """Number of these tokens in the cache of each agent's provider."""
    in_tool_loop: bool
    """Whether its last message is the result of a tool."""
    has_tools: bool = False
    """Whether the request offers tools."""

    @property
    def may_skip_fast(self) -> bool:
        """Whether the slow agent may answer without the fast answer."""
        return self.has_tools or (self.session.requests > 0 and self.session.agent is Role.SLOW)

    @property
    def _read_before(self) -> int:
        """Number of tokens in the slow agent's cache if it had answered every request."""
        return max(self.cached.values(), default=0)

    def keep_pair(self, assignment: Assignment, usable: Mapping[Role, Sequence[str]]) -> Assignment:
        """Return the assignment with the session's models, if both can be used for this request."""
        fast, slow = self.session.pair
        if fast not in usable[Role.FAST] or slow not in usable[Role.SLOW]:
            return assignment
        return replace(assignment, fast=fast, slow=slow)

    def cost(self, role: Role, prices: Mapping[Role, Price]) -> float:
        """Return the cost of this request with one agent, in millionths of a dollar."""
        return _cost(prices[role], self.tokens, self.cached.get(role, 0), STEP_TOKENS)

    def ratio(self, prices: Mapping[Role, Price | None]) -> float:
        """Return the factor of the thresholds: above 1 if more of the prompt is cached for the fast agent.

        The cost of reading again what only the other agent's model has cached is divided by the extra cost of the
        slow agent over the steps that it usually keeps the conversation.
        """
        known = _comparable(prices)
        fast, slow = known[Role.FAST], known[Role.SLOW]
        extra = self.tokens * (slow.cached - fast.cached) + STEP_TOKENS * (slow.output - fast.output)
        if extra <= 0:
            return 1.0
        ahead = self.cached.get(Role.FAST, 0) - self.cached.get(Role.SLOW, 0)
        reader = slow if ahead > 0 else fast
        reread = ahead * (_uncached_price(reader) - reader.cached)
        return max(0.0, 1 + reread / (KEPT_STEPS * extra))

    def routings(self, routing: Routing, prices: Mapping[Role, Price | None]) -> tuple[Routing, Routing]:
        """Return the routings that decide on escalation and on staying with the slow agent."""
        ratio = self.ratio(prices) if self.session.requests else 1.0
        return routing.scaled(max(1.0, ratio)), routing.scaled(min(1.0, ratio))

    def decide(
        self, routing: Routing, estimate: Estimate, assignment: Assignment, prices: Mapping[Role, Price | None]
    ) -> Decision:
        """Choose the path of this request: by difficulty for a new turn, else by the agent of the tool loop."""
        session = self.session
        if not session.requests or not routing.enabled:
            decision = routing.decide(estimate, assignment)
            return replace(decision, session=SessionUse("start", decision.path is not Path.SIMPLE))
        ratio = self.ratio(prices)
        use = SessionUse("stay", ratio=ratio, requests=session.requests, switches=session.switches)
        escalation, staying = self.routings(routing, prices)
        decision = escalation.decide(estimate, assignment)
        if self.in_tool_loop:
            return self._continue_loop(decision, use, routing.thresholds_of(assignment.expert).tau1, prices)
        scaled = f"; thresholds × {ratio:.2f} for what is cached"
        kept = staying.decide(estimate, assignment)
        if session.agent is Role.SLOW and decision.path is Path.SIMPLE and kept.path is not Path.SIMPLE:
            # Only the cache favours the slow agent, so one answer is enough.
            return self._slow_alone(decision, use, kept.reason + scaled)
        reason = decision.reason + (scaled if ratio > 1 else "")
        return replace(decision, reason=reason, session=replace(use, slow=decision.path is not Path.SIMPLE))

    def _continue_loop(
        self, decision: Decision, use: SessionUse, tau1: float, prices: Mapping[Role, Price | None]
    ) -> Decision:
        """Keep the agent of a tool loop; return to the fast one if that is cheaper and the difficulty below τ1."""
        session, known = self.session, _comparable(prices)
        fast = replace(decision, path=Path.SIMPLE, session=replace(use, looks=not session.escalated))
        if session.agent is Role.FAST:
            return replace(fast, reason="tool loop of the fast agent")
        left = session.remaining_difficulty
        if left < tau1 and self.cost(Role.FAST, known) < self.cost(Role.SLOW, known):
            reason = f"the hard part is over: {left:.3f} < τ1 = {tau1:g} after {session.steps} steps"
            return replace(fast, reason=reason)
        reason = f"tool loop of the slow agent, difficulty {session.difficulty:.3f}, step {session.steps + 1}"
        return self._slow_alone(decision, use, reason)

    def _slow_alone(self, decision: Decision, use: SessionUse, reason: str) -> Decision:
        session = replace(use, slow=True)
        return replace(decision, path=self.session.path, alone=True, reason=reason, session=session)

    def afford(self, decision: Decision, prices: Mapping[Role, Price | None]) -> Decision:
        """Return the decision, with the slow agent alone if the session has not saved the path's extra cost."""
        exempt = not self.session.requests and not self.has_tools
        if exempt or decision.path is Path.SIMPLE or decision.alone:
            return decision
        known = _comparable(prices)
        samples = decision.samples if decision.path is Path.HARD else 1
        fast = 0.0 if decision.posterior is not None else self.cost(Role.FAST, known)  # paid already
        slow_alone = _cost(known[Role.SLOW], self.tokens, self._read_before, STEP_TOKENS)
        if fast + samples * self.cost(Role.SLOW, known) - slow_alone <= self.session.saved:
            return decision
        return replace(decision, alone=True, reason=f"{decision.reason}; the slow agent alone, within its own cost")

    def saving(self, calls: Sequence[Call], prices: Mapping[Role, Price | None]) -> float:
        """Return the cost of the slow agent alone, with everything cached, less that of these calls."""
        known, spent = _comparable(prices), 0.0
        answers: dict[Role, tuple[int, float]] = {}
        for call in calls:
            role, usage = call.step.role, call.usage
            size, output = usage.input or self.tokens, usage.output or 0
            spent += _cost(known[role], size, usage.cached or 0, output)
            if not call.failed and not call.scoring:
                answers[role] = (size, output / max(1, call.samples))
        if not answers:
            return -spent
        size, each = answers.get(Role.SLOW) or answers[Role.FAST]
        return _cost(known[Role.SLOW], size, min(size, self._read_before), each) - spent

    def settle(self, decision: Decision, calls: Sequence[Call], prices: Mapping[Role, Price | None]) -> Decision:
        """Return the decision with its outcome: the agent that answers now, cached tokens and savings."""
        use, session = decision.session or SessionUse(), self.session
        answered = {call.step.role for call in calls if not call.failed and not call.scoring}
        slow = decision.path is not Path.SIMPLE and Role.SLOW in answered
        switched = bool(session.requests) and slow is not (session.agent is Role.SLOW)
        event = "start" if not session.requests else "stay"
        if switched:
            event = "escalate" if slow else "return"
        cached = [call.usage.cached for call in calls if call.usage.cached is not None]
        return replace(
            decision,
            session=replace(
                use,
                event=event,
                slow=slow,
                requests=session.requests + 1,
                switches=session.switches + switched,
                cached_tokens=sum(cached) if cached else None,
                saved=session.saved + self.saving(calls, prices),
            ),
        )

    def after(self, decision: Decision, calls: Sequence[Call], now: float) -> Session:
        """Return the session after this request; `decision` is the settled one."""
        use, session = decision.session or SessionUse(), self.session
        read = dict(session.read)
        for call in calls:
            if not call.failed and not call.scoring:
                read[call.step.role] = (call.usage.input or self.tokens, now)
        stays = use.slow and session.agent is Role.SLOW
        easier = decision.difficulty < session.remaining_difficulty
        kept = stays and decision.alone and (self.in_tool_loop or easier)
        return Session(
            agent=Role.SLOW if use.slow else Role.FAST,
            pair=(decision.assignment.fast, decision.assignment.slow),
            path=session.path if decision.path is Path.SIMPLE else decision.path,
            difficulty=session.difficulty if kept or not use.slow else decision.difficulty,
            steps=session.steps + 1 if kept else 0,
            escalated=self.in_tool_loop and (session.escalated or (use.slow and not stays)),
            requests=use.requests,
            switches=use.switches,
            saved=use.saved,
            read=read,
        )


def _cost(price: Price, tokens: int, cached: int, output: float) -> float:
    """Return the cost of one call in millionths of a dollar; all other tokens are written to the cache."""
    return (tokens - cached) * _uncached_price(price) + cached * price.cached + output * price.output


def _uncached_price(price: Price) -> float:
    return price.input if price.written is None else price.written


def _comparable(prices: Mapping[Role, Price | None]) -> Mapping[Role, Price]:
    """Return the prices, or nominal ones if one is unknown or free."""
    known = {role: price for role, price in prices.items() if price is not None and not price.free}
    return known if len(known) == len(Role) else _NOMINAL_PRICES
