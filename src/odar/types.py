"""The data types of ODAR, all immutable: a query, its plan, decisions, candidates and an answer.

A plan holds what is known before the first call. A state holds the plan and the candidates so far; for each state
a policy makes a decision: ask a further stage, or stop.

Token counts and costs are None if they were not reported, and a sum with an unknown part is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from odar.conversation import NO_PARAMETERS, ChatParameters, Message, ToolCall, Wire
from odar.conversation import Image as Image
from odar.errors import InputError

if TYPE_CHECKING:
    from odar.policy.belief import Opinion


class Route(StrEnum):
    """The paths of a question, which are levels of compute (SPEC 1)."""

    SIMPLE = "simple"
    MEDIUM = "medium"
    HARD = "hard"


FAST = "fast"
SECOND = "second"
SLOW = "slow"
DIRECT = "direct"
"""The agent of a request that names a model: it goes to that model unchanged."""
MAX_STAGES = 8
"""Maximum number of stages of a cascade: what may happen doubles with each of them."""
CHEAP_AGENTS = (FAST, SECOND, DIRECT)
"""Agents with the short prompt; the others are asked to reason, and count as slow."""


class Step(StrEnum):
    """The tasks of agents; each step has one prompt (SPEC 3.1)."""

    ANSWER = "answer"
    VERIFY = "verify"
    SOLVE = "solve"


class Ask(NamedTuple):
    """A request to one agent, as part of a stage."""

    agent: str
    samples: int = 1
    verify: bool = False
    """Whether the agent is shown the leading answer and asked to check it."""

    @property
    def step(self) -> Step:
        if self.verify:
            return Step.VERIFY
        return Step.ANSWER if self.agent in CHEAP_AGENTS else Step.SOLVE

    def __str__(self) -> str:
        return self.agent + (":verify" if self.verify else "") + (f"*{self.samples}" if self.samples > 1 else "")


@dataclass(frozen=True, slots=True)
class Stage:
    """Agents that are asked at the same time (SPEC 9.2).

    >>> stage = Stage.parse("fast+slow*5")
    >>> stage.asks[1].samples, stage.calls, str(stage)
    (5, 6, 'fast+slow*5')
    """

    asks: tuple[Ask, ...]

    @classmethod
    def parse(cls, text: str) -> Stage:
        """Read a stage: agents joined by `+`, each with `:verify` and `*samples` if needed."""
        asks = []
        for part in text.replace(" ", "").split("+"):
            match = _ASK.fullmatch(part)
            if match is None:
                raise InputError(
                    f"stage {text!r} is not valid; write agents joined by +, such as fast, slow*2, fast+second"
                )
            asks.append(Ask(match[1], int(match[3] or 1), match[2] is not None))
        return cls(tuple(asks))

    @property
    def agents(self) -> frozenset[str]:
        """The agents of this stage."""
        return frozenset(ask.agent for ask in self.asks)

    @property
    def calls(self) -> int:
        """Number of model calls."""
        return sum(ask.samples for ask in self.asks)

    @property
    def slow_calls(self) -> int:
        """Number of calls to agents that are not cheap."""
        return sum(ask.samples for ask in self.asks if ask.agent not in CHEAP_AGENTS)

    def times(self, n: int) -> Stage:
        """The stage with n times as many samples, for a client that wants n answers."""
        return Stage(tuple(ask._replace(samples=ask.samples * n) for ask in self.asks)) if n > 1 else self

    def __str__(self) -> str:
        return "+".join(map(str, self.asks))


_ASK = re.compile(r"([a-z][a-z0-9_-]{0,31})(:verify)?(?:\*([1-9]\d?))?")


IMAGE_TOKENS = 1_500
"""Tokens of an ordinary image, for estimates."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, or a conversation with its last user turn as the question.

    >>> Query("Is Paris the capital of France?").messages[0].role
    'user'
    """

    text: str
    images: tuple[Image, ...] = ()
    turns: tuple[Message, ...] = ()
    """The whole conversation, if there is one; `text` and `images` are those of its last user turn."""
    parameters: ChatParameters = NO_PARAMETERS
    core: Any = field(default=None, init=False, repr=False, compare=False)
    """The result of `core_question`, which several steps need and which takes long for a long text."""

    @classmethod
    def from_messages(cls, turns: tuple[Message, ...], parameters: ChatParameters = NO_PARAMETERS) -> Query:
        """The query of a conversation: its last user turn.

        >>> Query.from_messages((Message("user", "Hello"), Message("assistant", "Hi"))).text
        'Hello'
        """
        last = next((turn for turn in reversed(turns) if turn.role == "user"), Message("user", ""))
        images = tuple(image for turn in turns for image in turn.images)
        return cls(last.text, images, turns, parameters)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation; a plain question has one turn."""
        return self.turns or (Message("user", self.text, self.images),)

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the conversation, at four characters each and `IMAGE_TOKENS` for an image."""
        return sum(len(message.text) for message in self.messages) // 4 + IMAGE_TOKENS * len(self.images)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The user's turns before the last one, oldest first."""
        if len(self.turns) < 2:
            return ()
        return tuple(turn.text for turn in self.turns if turn.role == "user")[:-1]


class Token(NamedTuple):
    """A sampled token and its log-probability; None if the provider did not report it."""

    text: str
    logprob: float | None
    control: bool = False
    """Whether it is BOS, EOS, padding or similar, which energy and varentropy ignore (SPEC 5.4)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; None is unknown, not zero.

    >>> (Usage(10, 0, 5, 0) + Usage(1, 0, 1, 0)).input
    11
    >>> (Usage(10, 0, 5, 0) + Usage()).input is None
    True
    """

    input: int | None = None
    """All prompt tokens, cached ones included."""
    cached: int | None = None
    """The part of `input` that was read from the provider's cache."""
    output: int | None = None
    """All generated tokens, reasoning ones included."""
    reasoning: int | None = None
    """The part of `output` spent on hidden reasoning."""
    written: int | None = None
    """The part of `input` that was written to the provider's cache, often at a higher price."""
    written_1h: int | None = None
    """The part of `written` that is kept for an hour, often at a still higher price."""
    unpriced: bool = False
    """Whether the bill includes items without a price per token: audio, a server's tools, a service tier."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            _sum(self.input, other.input),
            _sum(self.cached, other.cached),
            _sum(self.output, other.output),
            _sum(self.reasoning, other.reasoning),
            _sum(self.written, other.written),
            _sum(self.written_1h, other.written_1h),
            self.unpriced or other.unpriced,
        )


NO_USAGE = Usage(0, 0, 0, 0, 0, 0)
"""The start of every sum."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The difficulty of a query, d(x) in [0, 1], with its estimator and the share of each feature."""

    difficulty: float
    estimator: str
    contributions: tuple[tuple[str, float, float], ...] = ()
    """(feature, value, W·φ) for linear estimators; empty for the others."""
    fallback: str = ""
    """Reason for using another estimator than the configured one; empty normally."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The expert and the models for a query (SPEC 4)."""

    expert: str = "general"
    cue: str = ""
    """Reason for this expert."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model of each agent that can answer this query."""


@dataclass(frozen=True, slots=True)
class SessionUse:
    """The place of a question in its conversation (SPEC 9.7)."""

    event: str = "start"
    """start, stay, escalate or return."""
    agent: str = FAST
    """The agent whose answer was returned."""
    requests: int = 0
    """Requests of the session, including this one."""
    switches: int = 0
    """Changes of the agent in the session."""
    cached_tokens: int | None = None
    """Prompt tokens that providers read from a cache for this request; None if not reported."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before the first call: the question's difficulty and kind, the agents and their prices."""

    estimate: Estimate
    assignment: Assignment = Assignment()
    policy: str = "paper"
    """Name of the policy that decides."""

    # the form of its answer
    kind: str = "short answer"
    """Kind of answer that the question asks for (SPEC 9.3); see `odar.policy.kinds`."""
    plausible: int = 0
    """Number of plausible answers: 2 for yes or no, the number of options, 0 for many."""
    one_call: bool = False
    """Whether one call is enough: open-ended requests, tool calls, and several choices for the client."""
    loop_agent: str = ""
    """The agent that began a tool loop and continues it, with one call at a time."""
    n: int = 1
    """Number of choices that the client asked for."""

    # prices and the value of an answer, in dollars
    prices: Mapping[str, float] = field(default_factory=dict)
    """Expected dollars of one call to each agent; relative prices if one of them is unknown."""
    sample_prices: Mapping[str, float] = field(default_factory=dict)
    """Expected dollars of each further sample of the same request, which shares its prompt."""
    nominal: bool = False
    """Whether `prices` are relative, because a price is unknown or zero."""
    worst_usd: Mapping[str, float] = field(default_factory=dict)
    """The most that one call to each agent can cost; empty if money is not limited."""
    value_usd: float = 0.0
    """What a right answer in place of a wrong one is worth, in the same unit as `prices` (SPEC 9.4)."""
    dial: str = ""
    """The setting behind `value_usd`, such as balanced."""

    # what the caller allows, and keeps
    max_path: Route | None = None
    """The most expensive path that key and budget allow."""
    forced: bool = False
    """Whether the caller chose the path or the model."""
    session: SessionUse | None = None
    """The conversation so far, if the caller keeps sessions."""
    certificate: str = ""
    """Whether the installed certificate (SPEC 5.14) holds for this question, and why not; empty without one."""

    @property
    def models(self) -> Mapping[str, str]:
        """The model of each agent that can answer."""
        return self.assignment.models


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decided in one state: the next stage, or to stop."""

    stage: Stage | None
    """The stage to ask; None to stop."""
    reason: str
    final: bool = False
    """Whether its text is the answer, so that it can be streamed: no other stage was asked, and none can follow."""
    p: float | None = None
    """Probability that the leading answer is right; None if unknown or before the first answer."""
    q: float | None = None
    """Probability that the agent of the next stage would be right."""
    price_usd: float | None = None
    """Expected price of the next stage: the one that is asked, or the best of those that are not."""
    gain: float | None = None
    """Expected gain of that stage, in points of accuracy (0 to 1)."""


@dataclass(frozen=True, slots=True)
class State:
    """A question and the answers to it so far."""

    plan: Plan
    stages: tuple[Stage, ...] = ()
    """The stages that were asked."""
    candidates: tuple[Candidate, ...] = ()
    failed: frozenset[str] = frozenset()
    """Agents that were asked and gave no answer."""
    calls_left: int | None = None
    """Calls that are left; None without a limit."""
    opinions: tuple[Opinion, ...] = ()
    """What a policy sees of each candidate, see `odar.policy.belief`."""
    usd_left: float | None = None
    """Dollars that are left; None without a limit."""

    def fits(self, stage: Stage) -> bool:
        """Whether a stage is within the calls and dollars that are left, and the longest path allowed."""
        plan = self.plan
        if self.calls_left is not None and stage.calls > self.calls_left:
            return False
        if self.usd_left is not None:
            worst = sum(plan.worst_usd.get(ask.agent, 0.0) * ask.samples for ask in stage.asks)
            if worst > self.usd_left + 1e-12:  # with a tolerance for rounding errors
                return False
        return within_path((*self.stages, stage), plan.max_path)


MAX_SLOW_CALLS = {Route.SIMPLE: 0, Route.MEDIUM: 1}
"""Number of slow calls of the paths; Hard has no limit."""


def within_path(stages: Iterable[Stage], max_path: Route | None) -> bool:
    """Whether these stages make no more slow calls than the longest path allowed; None allows all."""
    most = None if max_path is None else MAX_SLOW_CALLS.get(max_path)
    return most is None or sum(stage.slow_calls for stage in stages) <= most


def path_of(stages: Iterable[Stage]) -> Route:
    """The name for what happened: no slow call, one, or several (SPEC 9.7).

    >>> path_of([Stage.parse("fast"), Stage.parse("slow:verify")])
    <Route.MEDIUM: 'medium'>
    """
    slow = sum(stage.slow_calls for stage in stages)
    return Route.HARD if slow > 1 else Route.MEDIUM if slow else Route.SIMPLE


def path_name(plan: Plan, decisions: Iterable[Decision]) -> str:
    """The path of a question, or `DIRECT` if the caller named the model."""
    if DIRECT in plan.models:
        return DIRECT
    return path_of(decision.stage for decision in decisions if decision.stage is not None).value


@dataclass(frozen=True, slots=True)
class Energy:
    """The free energy of one candidate (SPEC 5.1-5.5)."""

    energy: float
    varentropy: float
    free_energy: float
    aligned: float | None
    """F̃, or None if the model has no alignment statistics."""


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """Numbers that fusion computes from the tokens of a candidate; None without log-probabilities."""

    total: int
    """Tokens, without control tokens; an estimate if the provider lists none."""
    missing: int
    """Number of tokens without a log-probability."""
    energy: float | None = None
    """E (SPEC 5.1)."""
    varentropy: float | None = None
    """V (SPEC 5.2)."""
    mean_logprob: float | None = None
    mean_probability: float | None = None
    lowest_window: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One answer by one agent."""

    step: Step
    agent: str
    model: str
    text: str
    """The raw text."""
    answer: str
    """The final answer, parsed from the text."""
    tokens: tuple[Token, ...] = ()
    judgment: bool | None = None
    """A verifier's judgment of the fast answer: True for CORRECT, None if it gave none."""
    finish: str = "stop"
    energy: Energy | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    stated: bool = True
    """Whether it marked its final answer, if the prompt asks for that."""
    fault: str = ""
    """Violation of the client's response_format or tools; any candidate without one is preferred."""
    figures: TokenFigures | None = None
    """In place of `tokens`, for a recorded answer whose tokens are not in memory."""
    stage: int = 0
    """Number of the stage that it answers, from 0."""
    wire: Wire | None = field(default=None, repr=False, compare=False)
    """The choice as the provider sent it, for a gateway to pass on. It holds text, so it is not stored."""


CANCELLED = "cancelled"
"""The `error` of a call whose answer was no longer needed."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a provider, successful or not."""

    step: Step
    agent: str
    provider: str
    model: str
    samples: int
    """Model invocations of this request; each counts as a call (SPEC 6.1). 0 if it did not reach the provider."""
    usage: Usage
    cost_usd: float | None
    seconds: float
    retries: int = 0
    error: str | None = None
    began_s: float | None = None
    """Seconds from the start of the query; None if the caller made the call."""
    error_summary: str | None = None
    """The error without what the provider said, which may quote the request."""

    @property
    def failed(self) -> bool:
        """Whether it failed; a cancelled call did not."""
        return self.error not in (None, CANCELLED)


@dataclass(frozen=True, slots=True)
class Spend:
    """The total cost of a query."""

    calls: int
    usage: Usage
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The winning candidate, and the rule that chose it."""

    winner: int
    """Index into the candidates."""
    rule: str
    """The rule that decided, which can differ from the configured one (SPEC 5.6)."""
    reason: str
    weights: tuple[float, ...] = ()
    """Weight of each candidate; empty if the rule has none."""
    energies: tuple[float, ...] = ()
    """F(a), the free energy of each candidate's answer (SPEC 5.10), if free energy decided; NaN if unknown."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The full record of one query."""

    id: str
    started_at: str
    """UTC, ISO 8601."""
    profile: str
    plan: Plan
    decisions: tuple[Decision, ...]
    """What the policy decided in each state; the last one is to stop."""
    candidates: tuple[Candidate, ...]
    verdict: Verdict
    calls: tuple[Call, ...]
    spend: Spend
    prompts: tuple[tuple[str, str], ...]
    """(step, MD5 of its prompt)."""
    degradations: tuple[str, ...] = ()
    """Failures and shortcuts; empty if all went well (SPEC 6.3)."""
    degradation_summaries: tuple[str, ...] = ()
    """The same without what providers said, which may quote the request: for logs, and a store without content."""
    notes: tuple[str, ...] = ()
    """Parts of the request that a model did not get, such as fields that its server does not know."""
    baseline_usd: float | None = None
    """What one call to the slow agent would have cost for this question; None if unknown."""

    @property
    def winner(self) -> Candidate:
        return self.candidates[self.verdict.winner]

    @property
    def path(self) -> Route:
        """Simple, medium or hard: no slow call, one, or several."""
        return path_of(decision.stage for decision in self.decisions if decision.stage is not None)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query, with its trace."""

    text: str
    """The whole reply of the chosen candidate."""
    final: str = field(repr=False)
    """Its final answer in short, which is compared and graded; the text itself if it states none."""
    trace: Trace = field(repr=False)

    @property
    def path(self) -> Route:
        """Simple, medium or hard: no slow call, one, or several."""
        return self.trace.path

    @property
    def degraded(self) -> bool:
        """Whether something on the path failed or was cut short."""
        return bool(self.trace.degradations)

    def __str__(self) -> str:
        return self.text


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
