"""Whether an agent's conversation keeps its model (SPEC 4.5).

Providers charge little for the part of a prompt that they have read before, and each model has its own cache. A
conversation that changes its model pays the full price for everything said so far. So in a session

- the thresholds rise by what the slow agent would have to read again at the full price, and those for staying with
  the slow agent fall by what the fast agent would have to, relative to what the slow agent costs more anyway;
- a tool loop stays with the agent that began it. The slow agent continues alone: one call for each step;
- a conversation with tools, and any other from its second request on, pays for drafts and further samples only from
  what it has saved so far against the slow agent alone (`afford`);
- the look at the fast answer can escalate once in a user turn;
- the conversation returns to the fast agent when its difficulty, less by a quarter for each step since, is below τ1
  and the fast agent is cheaper for this request.

Pure: the caller keeps the state and tells the time.
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
"""Tokens that an agent writes in one step, for comparing costs before the answer exists."""
KEPT_STEPS = 3
"""Steps that the slow agent usually keeps a conversation: what a change loses is spread over them."""
_NOMINAL = {Role.FAST: Price(1.0, 0.1, 5.0), Role.SLOW: Price(5.0, 0.5, 25.0)}
"""Relative prices where one of the two is unknown or nothing costs anything, as with local models."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of a conversation after its last answer."""

    agent: Role = Role.FAST
    """The agent that answers."""
    pair: tuple[str, str] = ("", "")
    """The models of the fast and the slow agent."""
    path: Path = Path.MEDIUM
    """The last path that was not Simple."""
    difficulty: float = 0.0
    """The difficulty that made it change to the slow agent."""
    steps: int = 0
    """Requests that the slow agent has answered alone since."""
    escalated: bool = False
    """Whether this user turn changed to the slow agent after it began."""
    requests: int = 0
    switches: int = 0
    saved: float = 0.0
    """What the slow agent alone would have cost more so far, in millionths of a dollar."""
    read: Mapping[Role, tuple[int, float]] = field(default_factory=dict)
    """Tokens that each agent's model read last, and when."""

    def request(self, query: Query, now: float, *, same_prefix: bool = True) -> SessionRequest:
        """Return the next request of the session; `same_prefix`: it continues the conversation that was cached."""
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
    """How many of them each agent's model has in its provider's cache."""
    in_tool_loop: bool
    """Whether it brings the result of a tool, and not a new turn of the user."""
    has_tools: bool = False
    """Whether the request offers tools: the conversation is an agent's."""

    @property
    def may_skip_fast(self) -> bool:
        """Whether the fast answer may not be needed, so that it is not asked ahead of the decision."""
        return self.has_tools or (self.session.requests > 0 and self.session.agent is Role.SLOW)

    @property
    def _read_before(self) -> int:
        """Tokens that the slow agent would have in its cache if it had answered everything."""
        return max(self.cached.values(), default=0)

    def keep_pair(self, assignment: Assignment, known: Mapping[Role, Sequence[str]]) -> Assignment:
        """Return the assignment with the session's models, if both can be used for this request."""
        fast, slow = self.session.pair
        if fast not in known[Role.FAST] or slow not in known[Role.SLOW]:
            return assignment
        return replace(assignment, fast=fast, slow=slow)

    def cost(self, role: Role, price: Price) -> float:
        """Return what this request costs with one agent, in millionths of a dollar."""
        return _cost(price, self.tokens, self.cached.get(role, 0), STEP_TOKENS)

    def ratio(self, prices: Mapping[Role, Price | None]) -> float:
        """Return what the thresholds are multiplied by: above 1 if the slow agent would lose the prompt cache.

        Lost are the tokens that only the other agent's model has cached. They are compared with what the slow agent
        costs more in the steps that it usually keeps the conversation, everything cached.
        """
        known = _usable(prices)
        fast, slow = known[Role.FAST], known[Role.SLOW]
        extra = self.tokens * (slow.cached - fast.cached) + STEP_TOKENS * (slow.output - fast.output)
        if extra <= 0:
            return 1.0
        ahead = self.cached.get(Role.FAST, 0) - self.cached.get(Role.SLOW, 0)
        reader = slow if ahead > 0 else fast
        lost = ahead * (_fresh(reader) - reader.cached)
        return max(0.0, 1 + lost / (KEPT_STEPS * extra))

    def routings(self, routing: Routing, prices: Mapping[Role, Price | None]) -> tuple[Routing, Routing]:
        """Return the routings that decide on escalation and on staying with the slow agent."""
        ratio = self.ratio(prices) if self.session.requests else 1.0
        return routing.scaled(max(1.0, ratio)), routing.scaled(min(1.0, ratio))

    def decide(
        self, routing: Routing, estimate: Estimate, assignment: Assignment, prices: Mapping[Role, Price | None]
    ) -> Decision:
        """Choose the path of this request: by difficulty for a new turn, else as the loop began."""
        session = self.session
        if not session.requests or not routing.enabled:
            usual = routing.decide(estimate, assignment)
            return replace(usual, session=SessionUse("start", usual.path is not Path.SIMPLE))
        ratio = self.ratio(prices)
        up, down = self.routings(routing, prices)
        decision = up.decide(estimate, assignment)
        use = SessionUse("stay", ratio=ratio, requests=session.requests, switches=session.switches)
        slow = replace(decision, path=session.path, alone=True, session=replace(use, slow=True))
        if not self.in_tool_loop:
            scaled = f"; thresholds × {ratio:.2f} for what is cached"
            kept = down.decide(estimate, assignment)
            if session.agent is Role.SLOW and decision.path is Path.SIMPLE is not kept.path:
                # Only the cache favours the slow agent, so one answer is enough.
                return replace(slow, reason=kept.reason + scaled)
            reason = decision.reason + (scaled if ratio > 1 else "")
            return replace(decision, reason=reason, session=replace(use, slow=decision.path is not Path.SIMPLE))
        fast = replace(decision, path=Path.SIMPLE, session=replace(use, looks=not session.escalated))
        if session.agent is Role.FAST:
            return replace(fast, reason="tool loop of the fast agent")
        left = session.difficulty * DECAY**session.steps
        known, tau1 = _usable(prices), routing.thresholds_of(assignment.expert).tau1
        if left < tau1 and self.cost(Role.FAST, known[Role.FAST]) < self.cost(Role.SLOW, known[Role.SLOW]):
            over = f"the hard part is over: {left:.3f} < τ1 = {tau1:g} after {session.steps} steps"
            return replace(fast, reason=over)
        reason = f"tool loop of the slow agent, difficulty {session.difficulty:.3f}, step {session.steps + 1}"
        return replace(slow, reason=reason)

    def afford(self, decision: Decision, prices: Mapping[Role, Price | None]) -> Decision:
        """Return the decision, with the slow agent alone if the session has not saved what the path costs more."""
        begins = not self.session.requests and not self.has_tools
        if begins or decision.path is Path.SIMPLE or decision.alone:
            return decision
        known = _usable(prices)
        samples = decision.samples if decision.path is Path.HARD else 1
        fast = 0.0 if decision.posterior is not None else self.cost(Role.FAST, known[Role.FAST])
        slow = known[Role.SLOW]
        warm = _cost(slow, self.tokens, self._read_before, STEP_TOKENS)
        if fast + samples * self.cost(Role.SLOW, slow) - warm <= self.session.saved:
            return decision
        return replace(decision, alone=True, reason=f"{decision.reason}; the slow agent alone, within its own cost")

    def saving(self, calls: Sequence[Call], prices: Mapping[Role, Price | None]) -> float:
        """Return what the slow agent alone, with a warm cache, would have cost more than these calls."""
        known, spent = _usable(prices), 0.0
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
        """Return the decision with what came of it: which agent answers now, and what was read from a cache."""
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
        left = session.difficulty * DECAY**session.steps
        stays = use.slow and session.agent is Role.SLOW
        kept = stays and decision.alone and (self.in_tool_loop or decision.difficulty < left)
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
    """Return what one call costs in millionths of a dollar; what is not cached is written to the cache."""
    return (tokens - cached) * _fresh(price) + cached * price.cached + output * price.output


def _fresh(price: Price) -> float:
    """Return the price of a token that is not cached yet."""
    return price.input if price.written is None else price.written


def _usable(prices: Mapping[Role, Price | None]) -> Mapping[Role, Price]:
    """Return the prices, or nominal ones where they cannot be compared."""
    known = {role: price for role, price in prices.items() if price is not None and not price.free}
    return known if len(known) == len(Role) else _NOMINAL
