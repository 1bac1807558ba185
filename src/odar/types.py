"""The nouns that travel through ODAR, all immutable: a query becomes a decision, calls, candidates, an answer.

Unknown is a value of its own: token counts and money are None if they were not reported, and a sum
with an unknown part is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from odar.conversation import NO_OPTIONS, Message, Options, ToolCall, Wire
from odar.conversation import Image as Image


class Path(StrEnum):
    """How much compute a query gets (SPEC 1)."""

    SIMPLE = "simple"
    MEDIUM = "medium"
    HARD = "hard"


class Role(StrEnum):
    """Which agent acts."""

    FAST = "fast"
    SLOW = "slow"


class Step(StrEnum):
    """What an agent is asked to do; each step has one prompt (SPEC 3.1)."""

    ANSWER = "answer"
    VERIFY = "verify"
    SOLVE = "solve"

    @property
    def role(self) -> Role:
        """The agent that does this step."""
        return Role.FAST if self is Step.ANSWER else Role.SLOW


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: a question, or the last user turn of a whole conversation.

    >>> Query("Is Paris the capital of France?").messages[0].role
    'user'
    """

    text: str
    images: tuple[Image, ...] = ()
    turns: tuple[Message, ...] = ()
    """The whole conversation, if there is one; `text` and `images` are those of its last user turn."""
    options: Options = NO_OPTIONS

    @classmethod
    def from_messages(cls, turns: tuple[Message, ...], options: Options | None = None) -> Query:
        """Return the query of a conversation: its last user turn.

        >>> Query.from_messages((Message("user", "Hello"), Message("assistant", "Hi"))).text
        'Hello'
        """
        last = next((turn for turn in reversed(turns) if turn.role == "user"), Message("user", ""))
        images = tuple(image for turn in turns for image in turn.images)
        return cls(last.text, images, turns, options or NO_OPTIONS)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation; of a plain question, its one turn."""
        return self.turns or (Message("user", self.text, self.images),)

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the conversation, at four characters each."""
        return sum(len(message.text) for message in self.messages) // 4

    @property
    def earlier(self) -> tuple[str, ...]:
        """What the user said before the last turn, the oldest first."""
        if len(self.turns) < 2:
            return ()
        return tuple(turn.text for turn in self.turns if turn.role == "user")[:-1]


class Token(NamedTuple):
    """A sampled token and its log-probability; None if the provider did not say."""

    text: str
    logprob: float | None
    control: bool = False
    """BOS, EOS, padding and similar: part of neither energy nor varentropy (SPEC 5.4)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them. None is unknown, not zero.

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
    """The part of `input` that was written to the provider's cache, which may cost more than reading it."""
    written_1h: int | None = None
    """The part of `written` that is kept for an hour, which may cost more still."""
    unpriced: bool = False
    """Whether something was billed that no price per token covers: audio, a server's tools, a service tier."""

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
"""Nothing spent: the start of every sum."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How hard a query looks: d(x) in [0, 1], which estimator says so, and the share of each feature."""

    difficulty: float
    """The number that posterior and targets use: d at the middle of the interval, if there is one."""
    estimator: str
    contributions: tuple[tuple[str, float, float], ...] = ()
    """(feature, value, W·φ) for linear estimators; empty for the others."""
    interval: tuple[float, float] | None = None
    """The bounds of d before the dependency parse; None for an estimator that needs none."""
    exact: float | None = None
    """d after the parse, which is made only where the interval crosses a threshold or features are asked for."""
    fallback: str = ""
    """Why another estimator than the configured one answered; empty if none had to."""

    @property
    def exact_or_middle(self) -> float:
        """The number that thresholds are compared with: both lie on the same side of each threshold."""
        return self.difficulty if self.exact is None else self.exact

    def crosses(self, thresholds: Iterable[float]) -> bool:
        """Return whether only a parse can tell on which side of a threshold d lies."""
        if self.interval is None or self.exact is not None:
            return False
        low, high = self.interval
        return any(low < threshold <= high for threshold in thresholds)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who works on a query (SPEC 4)."""

    expert: str = "general"
    cue: str = ""
    """What made it this expert."""
    fast: str = ""
    """The fast agent's model."""
    slow: str = ""
    """The slow agent's model."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the fast answer showed before the path was chosen (SPEC 5.11)."""

    kind: str
    """direct, reasoned or free_text."""
    stated: bool
    """Whether it marked its answer, if it was told to."""
    signals: tuple[tuple[str, float, float | None], ...] = ()
    """(signal, value, rank within that model's own answers of this kind)."""
    terms: tuple[tuple[str, float, float], ...] = ()
    """(term, value in [0, 1], its share of the score)."""
    quantiles: str = ""
    """Where the ranks come from: calibrated, served or shipped."""
    finished: bool = True
    """Whether it came to an answer; one that was cut off did not, and has the maximum difficulty."""


@dataclass(frozen=True, slots=True)
class TargetUse:
    """The target that chose the thresholds of one question (SPEC 5.13)."""

    kind: str
    """calls or cost_usd."""
    value: float
    t: float
    """Where on the path from always Simple (0) to always Hard (1)."""
    tau1: float
    tau2: float
    actual: float | None
    """Mean under this target before this question; None before the first."""


@dataclass(frozen=True, slots=True)
class SessionUse:
    """What the conversation so far had to do with a decision (SPEC 4.5)."""

    event: str = "start"
    """start, stay, escalate or return."""
    slow: bool = False
    """Whether the slow agent continues the conversation."""
    looks: bool = True
    """Whether the look at the fast answer may change the path."""
    ratio: float = 1.0
    """The thresholds were multiplied by this, for what is in the prompt caches."""
    requests: int = 0
    """Requests of the session, with this one."""
    switches: int = 0
    """Changes of the agent in the session."""
    cached_tokens: int | None = None
    """Prompt tokens that providers read from a cache for this request; None if none of them said."""
    saved: float = 0.0
    """What the slow agent alone would have cost more in the session so far, in millionths of a dollar."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which path, why, and who takes it."""

    path: Path
    estimate: Estimate
    samples: int
    """Slow samples on the Hard path."""
    reason: str
    assignment: Assignment = Assignment()
    forced: bool = False
    """Whether the caller insisted on the path: then it is taken in full, without stopping early."""
    posterior: float | None = None
    """d(x, y_fast), where the fast answer was looked at before the path was chosen (SPEC 5.11)."""
    look: Look | None = None
    """What it showed."""
    target: TargetUse | None = None
    """What chose the thresholds, if they are not those of the settings."""
    certificate: str = ""
    """Whether the installed certificate (SPEC 5.14) holds for this question, and why not; empty without one."""
    alone: bool = False
    """Whether the slow agent answers alone, with one call: it has the conversation already, or only it sees."""
    session: SessionUse | None = None
    """The session that the question belongs to, if the caller keeps sessions."""

    @property
    def difficulty(self) -> float:
        """The difficulty that counted: the posterior where there is one, else the estimate."""
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
    """Where those statistics are from: calibrated, or running for served traffic; empty if there are none."""
    scorer: str = ""
    """The surrogate whose log-probabilities these are; empty for the model's own."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One answer by one agent."""

    step: Step
    model: str
    text: str
    """The raw text, always kept."""
    answer: str
    """The final answer parsed from it."""
    tokens: tuple[Token, ...] = ()
    judgment: bool | None = None
    """A verifier's verdict on the fast answer: True for CORRECT, None if it gave none."""
    finish: str = "stop"
    energy: Energy | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    stated: bool = True
    """Whether it marked its final answer, if it was told to."""
    fault: str = ""
    """What the client's response_format or tools forbid about it; it loses to any candidate without one."""
    wire: Wire | None = field(default=None, repr=False, compare=False)
    """The choice as the provider sent it, for a gateway to pass on. It holds text: no store may keep it unasked."""

    @property
    def role(self) -> Role:
        """The agent that wrote it."""
        return self.step.role


CANCELLED = "cancelled"
"""The `error` of a call whose answer was no longer needed."""


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the bill: a request to a provider, whether it succeeded or not."""

    step: Step
    provider: str
    model: str
    samples: int
    """Model invocations of this request; each counts as a call (SPEC 6.1). 0 if it never arrived."""
    usage: Usage
    cost_usd: float | None
    seconds: float
    retries: int = 0
    error: str | None = None
    began_s: float | None = None
    """Seconds after the query came in; None in records from before this was noted."""
    scoring: bool = False
    """Whether a surrogate scored the answer of this step, instead of a model writing one."""

    @property
    def failed(self) -> bool:
        """Whether it went wrong; one that was cancelled did not."""
        return self.error not in (None, CANCELLED)


@dataclass(frozen=True, slots=True)
class Spend:
    """What a query cost in all."""

    calls: int
    usage: Usage
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which candidate won, and by which rule."""

    winner: int
    """Index into the candidates."""
    scorer: str
    """The rule that really decided, not the one asked for (SPEC 5.6)."""
    reason: str
    weights: tuple[float, ...] = ()
    """One per candidate where the rule has them."""
    energies: tuple[float, ...] = ()
    """F(a), the free energy of each candidate's answer (SPEC 5.10), where free energy decided; NaN if unknown."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that happened to one query."""

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
    """Why this is less than the path promises; empty when all went well (SPEC 6.3)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user gets, with the trace behind it."""

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
