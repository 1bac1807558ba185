"""A decision without a call (SPEC 11.1): what ODAR would do with a question, given the answers so far.

For callers that reach the models themselves: they send a question, make the calls of `NextStep.requests`, and send
the question again with the answers, until `NextStep.stage` is None. Plan, policy and measurements are the engine's,
so the same answers lead to the same decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from odar.agents.measure import state_after
from odar.agents.team import Team, is_usable
from odar.background import MAX_INLINE_BYTES, run_by_size, run_in_thread
from odar.errors import InputError, one_line
from odar.policy.base import Policy, stage_price
from odar.providers.base import Completion
from odar.providers.openai import chat_body, read_reply
from odar.served.alignment import ServedAlignment
from odar.types import SLOW, Ask, Call, Candidate, Decision, Plan, Stage, State, Usage, Verdict

MAX_ANSWERS = 32
"""Most answers to one question; the policy is asked after each of them, and a cascade makes far fewer calls."""


class TokenLogprob(Struct, frozen=True):
    """A token of an answer, as in `logprobs.content` of OpenAI's API."""

    token: str
    logprob: float | None = None
    bytes: list[Annotated[int, Meta(ge=0, le=255)]] | None = None


class FunctionCall(Struct, frozen=True):
    """Name and arguments of a tool call."""

    name: str
    arguments: str = "{}"


class GivenToolCall(Struct, frozen=True):
    """A tool call, as in `message.tool_calls` of OpenAI's API."""

    function: FunctionCall


class GivenAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer that the caller got from an agent's model; without text and tool calls, the agent failed."""

    agent: str
    text: str = ""
    finish: str = "stop"
    logprobs: Annotated[list[TokenLogprob], Meta(description="`logprobs.content` of the choice.")] | None = None
    tool_calls: list[GivenToolCall] | None = None
    cost_usd: Annotated[float, Meta(ge=0, description="If unknown, the most that it can have cost.")] | None = None

    def completion(self) -> Completion:
        """The answer as a provider does that gets it from a server."""
        choice = {
            "message": {"content": self.text, "tool_calls": msgspec.to_builtins(self.tool_calls)},
            "finish_reason": self.finish,
            "logprobs": {"content": msgspec.to_builtins(self.logprobs)},
        }
        return read_reply({"choices": [choice]}, alternatives=False).completions[0]


AnswerList = Annotated[list[GivenAnswer], Meta(max_length=MAX_ANSWERS)]
GivenAnswers = Iterable[GivenAnswer | Mapping[str, Any]]


def read_answers(answers: GivenAnswers) -> list[GivenAnswer]:
    """Read answers that are given as mappings, such as `{"agent": "fast", "text": "Answer: 4"}`."""
    try:
        return msgspec.convert(list(answers), AnswerList, from_attributes=True)
    except msgspec.ValidationError as error:
        raise InputError(f"answers: {one_line(error)}") from None


@dataclass(frozen=True, slots=True)
class NextStep:
    """What ODAR would do next with a question."""

    plan: Plan
    """Difficulty, kind, models and prices."""
    decision: Decision
    """The stage to ask, or to stop; p, q, the price of the stage and the reason."""
    thresholds: tuple[str, ...]
    """When the policy stops or goes on, in words."""
    expected_usd: float
    """Expected price of all further calls for this question."""
    requests: Mapping[Ask, Mapping[str, Any]]
    """What the agents of the stage would be sent, as bodies of OpenAI's chat completions."""
    candidates: tuple[Candidate, ...] = ()
    """The answers so far that can be used."""
    verdict: Verdict | None = None
    """The winning candidate, if the decision is to stop and there is one."""
    answer: int | None = None
    """The number of the winning answer among those that were given."""

    @property
    def stage(self) -> Stage | None:
        """The stage to ask next; None to stop."""
        return self.decision.stage

    @property
    def next_usd(self) -> float:
        """Expected price of the stage to ask next; 0 to stop."""
        return 0.0 if self.stage is None else stage_price(self.stage, self.plan)

    @property
    def slow_usd(self) -> float | None:
        return self.plan.prices.get(SLOW)

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON, as `POST /v1/decision` does."""
        plan = self.plan
        decision = self.decision
        winner = None if self.verdict is None else self.candidates[self.verdict.winner]
        return {
            "object": "odar.decision",
            "action": "stop" if decision.stage is None else "ask",
            "stage": None if decision.stage is None else str(decision.stage),
            "ask": [
                {"agent": ask.agent, "model": plan.models[ask.agent], "samples": ask.samples, "request": request}
                for ask, request in self.requests.items()
            ],
            "answer": None
            if winner is None
            else {"index": self.answer, "agent": winner.agent, "text": winner.text, "final": winner.answer},
            "p": decision.p,
            "q": decision.q,
            "reason": decision.reason,
            "difficulty": plan.estimate.difficulty,
            "kind": plan.kind,
            "policy": plan.policy,
            "dial": plan.dial,
            "cost_usd": {"next": self.next_usd, "expected": self.expected_usd, "slow": self.slow_usd},
            "nominal": plan.nominal,
            "thresholds": list(self.thresholds),
        }


@dataclass(frozen=True, slots=True)
class DryRun:
    """The loop of the engine, with answers that the caller gives in place of calls."""

    policy: Policy
    team: Team
    alignment: ServedAlignment
    verdict: Callable[[State], Verdict]

    async def next_step(self, plan: Plan, answers: Sequence[GivenAnswer]) -> NextStep:
        """What to do after these answers, which are read in a thread."""
        work = partial(self._next_step, plan, answers)
        size = sum(len(answer.text) for answer in answers)
        return await (run_in_thread(work) if size <= MAX_INLINE_BYTES else run_by_size(size, work))

    def _next_step(self, plan: Plan, answers: Sequence[GivenAnswer]) -> NextStep:
        ledger = self.team.ledger
        start = State(plan, calls_left=ledger.calls_left(), usd_left=ledger.usd_left())
        state, numbers = self._state_after(start, answers)
        decision = self.policy.next_stage(state)
        stops = decision.stage is None and bool(state.candidates)
        verdict = self.verdict(state) if stops else None
        return NextStep(
            plan,
            decision,
            thresholds=tuple(self.policy.describe_thresholds(plan)),
            expected_usd=self.policy.expected_usd(state),
            requests=self._requests(state, decision),
            candidates=state.candidates,
            verdict=verdict,
            answer=None if verdict is None else numbers[verdict.winner],
        )

    def _state_after(self, state: State, answers: Sequence[GivenAnswer]) -> tuple[State, list[int]]:
        """The state after these answers, and the number of each of its candidates among them.

        An answer belongs to the stage that the policy asks for in that state, or is a stage of its own.
        """
        self._check_agents(answers)
        left = dict(enumerate(answers))  # those that belong to no stage yet
        numbers: list[int] = []
        while left:
            stage = self._stage(state, next(iter(left.values())).agent)
            proposal = self.policy.leading_candidate(state)
            found = []
            for ask in stage.asks:
                own = [number for number, given in left.items() if given.agent == ask.agent]
                for number in own[: ask.samples]:
                    given = left.pop(number)
                    self._count(ask, given, state.plan)
                    if is_usable(completion := given.completion()):
                        card = self.team.cards[ask.agent]
                        found.append(self.team.candidate(ask, card, completion, proposal))
                        numbers.append(number)
            state = state_after(state, stage, found, self.team, self.alignment)
        return state, numbers

    def _check_agents(self, answers: Sequence[GivenAnswer]) -> None:
        """Raise InputError for an answer of an agent that is not in the team."""
        for number, given in enumerate(answers):
            if given.agent not in self.team.cards:
                known = ", ".join(self.team.cards)
                raise InputError(f"answers[{number}].agent: {one_line(given.agent, 60)!r} is not one of: {known}")

    def _stage(self, state: State, agent: str) -> Stage:
        """The stage that the policy asks for if the agent is in it, else one call to the agent."""
        decision = self.policy.next_stage(state)
        if decision.stage is not None and agent in decision.stage.agents:
            self.team.final = decision.final
            return decision.stage
        self.team.final = False
        return Stage((Ask(agent),))

    def _count(self, ask: Ask, given: GivenAnswer, plan: Plan) -> None:
        """Add the call to the ledger, so that the limits hold for all calls of the question together."""
        card = self.team.cards[ask.agent]
        cost = plan.worst_usd.get(ask.agent, 0.0) if given.cost_usd is None else given.cost_usd
        self.team.ledger.calls.append(Call(ask.step, ask.agent, card.provider, card.name, 1, Usage(), cost, 0.0))

    def _requests(self, state: State, decision: Decision) -> dict[Ask, dict[str, Any]]:
        """What each agent of the next stage would be sent."""
        self.team.final = decision.final
        proposal = self.policy.leading_candidate(state)
        asked = Counter(call.agent for call in self.team.ledger.calls)
        requests = {}
        for ask in () if decision.stage is None else decision.stage.asks:
            request = self.team.request(ask, self.team.cards[ask.agent], proposal, asked[ask.agent])
            requests[ask] = chat_body(request)
        return requests
