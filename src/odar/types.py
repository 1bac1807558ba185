"""The data types of ODAR, all immutable: a query leads to a decision, calls, candidates and an answer.

Token counts and costs are None if they were not reported, and a sum with an unknown part is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from odar.conversation import NO_OPTIONS, Message, Options, ToolCall, Wire
from odar.conversation import Image as Image


class Path(StrEnum):
    """The levels of compute for a query (SPEC 1)."""

    SIMPLE = "simple"
    MEDIUM = "medium"
    HARD = "hard"


class Role(StrEnum):
    """The two agents."""

    FAST = "fast"
    SLOW = "slow"


class Step(StrEnum):
    """The tasks of agents; each step has one prompt (SPEC 3.1)."""

    ANSWER = "answer"
    VERIFY = "verify"
    SOLVE = "solve"

    @property
    def role(self) -> Role:
        """The agent that does this step."""
        return Role.FAST if self is Step.ANSWER else Role.SLOW


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
    options: Options = NO_OPTIONS

    @classmethod
    def from_messages(cls, turns: tuple[Message, ...], options: Options = NO_OPTIONS) -> Query:
        """Return the query of a conversation: its last user turn.

        >>> Query.from_messages((Message("user", "Hello"), Message("assistant", "Hi"))).text
        'Hello'
        """
        last = next((turn for turn in reversed(turns) if turn.role == "user"), Message("user", ""))
        images = tuple(image for turn in turns for image in turn.images)
        return cls(last.text, images, turns, options)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation; a plain question has one turn."""
        return self.turns or (Message("user", self.text, self.images),)

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the conversation, at four characters each."""
        return sum(len(message.text) for message in self.messages) // 4

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
    """The value for posterior and targets: d at the middle of the interval, if there is one."""
    estimator: str
    contributions: tuple[tuple[str, float, float], ...] = ()
    """(feature, value, W·φ) for linear estimators; empty for the others."""
    interval: tuple[float, float] | None = None
    """Bounds of d before the dependency parse; None for an estimator without a parse."""
    exact: float | None = None
    """d after the parse, which runs only if the interval crosses a threshold or features are requested."""
    fallback: str = ""
    """Reason for using another estimator than the configured one; empty normally."""

    @property
    def exact_or_middle(self) -> float:
        """The value that is compared with thresholds; exact d and the middle lie on the same side of each."""
        return self.difficulty if self.exact is None else self.exact

    def crosses(self, thresholds: Iterable[float]) -> bool:
        """Return whether d can lie on either side of a threshold, so that a parse is needed."""
        if self.interval is None or self.exact is not None:
            return False
        low, high = self.interval
        return any(low < threshold <= high for threshold in thresholds)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The expert and the models for a query (SPEC 4)."""

    expert: str = "general"
    cue: str = ""
    """Reason for this expert."""
    fast: str = ""
    """The fast agent's model."""
    slow: str = ""
    """The slow agent's model."""


@dataclass(frozen=True, slots=True)
class Look:
    """Findings about the fast answer, from which the path was chosen again (SPEC 5.11)."""

    kind: str
    """direct, reasoned or free_text."""
    stated: bool
    """Whether it marked its answer, if the prompt asks for that."""
    signals: tuple[tuple[str, float, float | None], ...] = ()
    """(signal, value, rank among the model's answers of this kind)."""
    terms: tuple[tuple[str, float, float], ...] = ()
    """(term, value in [0, 1], its share of the score)."""
    quantiles: str = ""
    """Origin of the ranks: calibrated, served or shipped."""
    finished: bool = True
    """Whether it is complete; an answer that was cut off has the maximum difficulty."""


@dataclass(frozen=True, slots=True)
class TargetUse:
    """The target that chose the thresholds of one question (SPEC 5.13)."""

    kind: str
    """calls or cost_usd."""
    value: float
    t: float
    """Position on the path from always Simple (0) to always Hard (1)."""
    tau1: float
    tau2: float
    actual: float | None
    """Mean under this target before this question; None for the first."""


@dataclass(frozen=True, slots=True)
class SessionUse:
    """The influence of the earlier conversation on a decision (SPEC 4.5)."""

    event: str = "start"
    """start, stay, escalate or return."""
    slow: bool = False
    """Whether the slow agent continues the conversation."""
    looks: bool = True
    """Whether the look at the fast answer may change the path."""
    ratio: float = 1.0
    """Factor of the thresholds, which accounts for cached prompts."""
    requests: int = 0
    """Requests of the session, including this one."""
    switches: int = 0
    """Changes of the agent in the session."""
    cached_tokens: int | None = None
    """Prompt tokens that providers read from a cache for this request; None if not reported."""
    saved: float = 0.0
    """Savings of the session so far against the slow agent alone, in millionths of a dollar."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The path of a query, its reason and its models."""

    path: Path
    estimate: Estimate
    samples: int
    """Slow samples on the Hard path."""
    reason: str
    assignment: Assignment = Assignment()
    forced: bool = False
    """Whether the caller chose the path: then it is taken in full, without stopping early."""
    posterior: float | None = None
    """d(x, y_fast), if the path was chosen again after the fast answer (SPEC 5.11)."""
    look: Look | None = None
    """Findings about the fast answer, if the path was chosen again after it."""
    target: TargetUse | None = None
    """The target that chose the thresholds; None if they are those of the settings."""
    certificate: str = ""
    """Whether the installed certificate (SPEC 5.14) holds for this question, and why not; empty without one."""
    alone: bool = False
    """Whether the slow agent answers alone, with one call: it continues a conversation, or only it reads images."""
    session: SessionUse | None = None
    """The session of the question, if the caller keeps sessions."""

    @property
    def difficulty(self) -> float:
        """The difficulty that chose the path: the posterior if there is one, else the estimate."""
        return self.estimate.difficulty if self.posterior is None else self.posterior


@dataclass(frozen=True, slots=True)
class Energy:
    """The free energy of one candidate (SPEC 5.1-5.5)."""

    energy: float
    varentropy: float
    free_energy: float
    aligned: float | None
    """F̃, or None if the model has no alignment statistics."""
    origin: str = ""
    """Origin of these statistics: calibrated, or running for served traffic; empty if there are none."""
    scorer: str = ""
    """The surrogate that computed the log-probabilities; empty for the model itself."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One answer by one agent."""

    step: Step
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
    wire: Wire | None = field(default=None, repr=False, compare=False)
    """The choice as the provider sent it, for a gateway to pass on. It holds text, so it is not stored."""

    @property
    def role(self) -> Role:
        """The agent that wrote it."""
        return self.step.role


CANCELLED = "cancelled"
"""The `error` of a call whose answer was no longer needed."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a provider, successful or not."""

    step: Step
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
    """Seconds from the start of the query; None in old records."""
    scoring: bool = False
    """Whether a surrogate scored the answer of this step, instead of a model writing one."""

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
    scorer: str
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
    decision: Decision
    candidates: tuple[Candidate, ...]
    verdict: Verdict
    calls: tuple[Call, ...]
    spend: Spend
    prompts: tuple[tuple[str, str], ...]
    """(step, MD5 of its prompt)."""
    degradations: tuple[str, ...] = ()
    """Failures and shortcuts on the path; empty if all went well (SPEC 6.3)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query, with its trace."""

    answer: str
    text: str = field(repr=False)
    trace: Trace = field(repr=False)

    @property
    def path(self) -> Path:
        """The path that was taken."""
        return self.trace.decision.path

    @property
    def degraded(self) -> bool:
        """Whether something on the path failed or was cut short."""
        return bool(self.trace.degradations)

    def __str__(self) -> str:
        return self.answer


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
