"""The schema of a recording: items with attempts (SPEC 8.1).

An item is a question with its reference answer; an attempt is one answer that an agent gave to it, with tokens,
log-probabilities, score and price. Samples of one agent are numbered. Collected, imported and exported answers all
have this form, and calibration, replay, fusion studies and reports read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, NamedTuple

import msgspec

from odar.catalogue import Price
from odar.difficulty.features import FEATURES
from odar.policy.energy import token_figures
from odar.policy.signals import AnswerKind, AnswerSignals, answer_signals
from odar.types import FAST, SECOND, SLOW, Candidate, Estimate, Query, Step, Token, Usage

LOGPROB_DECIMALS = 4
"""Decimals of a recorded log-probability: enough for every reported figure, at a third of the size."""
_NEAR_ZERO = 0.05
"""Log-probabilities closer to 0 keep three significant digits: -1e-3 and -1e-5 are different ranks (SPEC 5.11)."""
MIN_RIGHT_SCORE = 0.5
"""The lowest score of an answer that counts as right."""
CHARACTERS_PER_TOKEN = 4.0
"""Average for ordinary English, used if a length is known in tokens only."""
_SCAFFOLD_TOKENS = 20
"""Tokens around a direct answer, such as "The answer is", before a text counts as reasoned."""


@dataclass(frozen=True, slots=True)
class Task:
    """A question to record answers for, with what its grader needs."""

    id: str
    """Unique within its set, the same on every load."""
    query: Query
    gold: Any
    """JSON: the reference that the grader of the set compares with."""
    stratum: str = ""
    """Subject, level or task within the set, for stratified sampling (SPEC 7.4)."""
    effort: float | None = None
    """Human time or length of the reference reasoning, if the data has it (SPEC 2.5)."""
    split: str = ""
    """Use of the item: empty for any, `calibrate` for fits only, `held-out` for judging fits only."""


Grader = Callable[[Task, str, str], float]
"""Scores a response from 0 to 1, given the task, the response, and the final answer that was parsed from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """A set of tasks with a grader: a benchmark, or a user's file."""

    name: str
    category: str
    """Category of the questions: one of the paper's eight for a benchmark."""
    metric: str
    """Name of the score: accuracy, EM, F1, …"""
    score: Grader
    form_is_scored: bool = False
    """Whether the form of the response is scored, so that prompts must not ask for a form of their own."""
    how_to_import: str = ""
    """Instructions for importing results of its own harness; empty if answers can be scored here."""


class ItemKey(NamedTuple):
    """The unique key of an item in a recording."""

    set: str
    """A benchmark, or the name of a user's file."""
    id: str
    seed: int


@dataclass(frozen=True, slots=True)
class Attempt(Candidate):
    """A recorded candidate: one answer by one agent, with its score and its price.

    Log-probabilities are rounded (`round_logprob`), so that figures derived from them are the same before and after
    a reload.
    """

    _: KW_ONLY
    index: int = 0
    """The number of the sample among those of the same agent and step."""
    score: float | None = None
    """Score by the metric of the set, from 0 to 1; None until the item is finished."""
    request: int = 0
    """Samples of one request share a number, and a prompt that was billed once."""
    usage: Usage = field(default=Usage())
    """Input tokens of the whole request, output tokens of this sample."""
    prompt_usd: float | None = None
    """Cost of the prompt; the same for all samples of the request."""
    output_usd: float | None = None
    """Cost of the tokens of this sample."""
    seconds: float | None = None
    """Duration of the request; None if unknown."""
    mean_logprob: float | None = None
    """Mean log-probability of the tokens of an imported answer whose tokens are unknown."""
    answer_logprob: float | None = None
    """Log-probability of the final answer of an imported answer."""
    signals: AnswerSignals | None = None
    """Together with `figures` what a replay needs of the tokens; see `without_tokens`."""

    def without_tokens(self) -> Attempt:
        """The attempt with `figures` and `signals`, all that a replay needs, in place of its tokens."""
        if self.figures is not None:
            return self
        return replace(self, figures=token_figures(self), signals=recorded_signals(self), tokens=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedItem:
    """One question with every recorded answer to it."""

    key: ItemKey
    category: str
    metric: str
    stratum: str = ""
    fold: int
    """Its fold within the set (SPEC 7.4)."""
    query: str
    gold: Any
    effort: float | None = None
    features: tuple[float, ...]
    """φ(x), the 24 features of SPEC 2.1; empty if they were not computed."""
    difficulty: float
    """The prior d(x)."""
    expert: str
    attempts: tuple[Attempt, ...]
    """In the order of `sort_attempts`; any of them may be missing."""
    split: str = ""
    """As in `Task`."""
    digest: str = ""
    """A hash of question and reference answer: a row with another one is never reused."""

    def without_tokens(self) -> RecordedItem:
        """The item with all attempts without their tokens."""
        return replace(self, attempts=tuple(attempt.without_tokens() for attempt in self.attempts))


def recorded_signals(attempt: Attempt) -> AnswerSignals:
    """The signals of a recorded answer (SPEC 5.11), as the engine would see them.

    A table may hold only the final answer and the number of generated tokens, which then give the length. An answer
    whose probability is all that is known is rated like a direct one.

    >>> row = Attempt(agent="fast", step=Step.ANSWER, model="m", text="B", answer="B", usage=Usage(output=300))
    >>> recorded_signals(row).kind, recorded_signals(row).length
    (<AnswerKind.REASONED: 'reasoned'>, 1200.0)
    """
    signals = answer_signals(attempt)
    if attempt.answer_logprob is not None:
        signals = replace(signals, answer_logprob=attempt.answer_logprob)
    if attempt.tokens:
        return signals
    kind = signals.kind
    length = signals.length
    answer_logprob = signals.answer_logprob
    generated = attempt.usage.output
    mean = attempt.mean_logprob
    if generated and attempt.text.strip() == attempt.answer.strip():
        length = CHARACTERS_PER_TOKEN * generated
        if generated > 2 * len(attempt.text.split()) + _SCAFFOLD_TOKENS:
            kind = AnswerKind.REASONED
    if mean is None and answer_logprob is not None and signals.finished:
        kind = AnswerKind.DIRECT
    if mean is not None and answer_logprob is None and kind is not AnswerKind.REASONED:
        tokens = generated or max(1.0, len(attempt.text) / CHARACTERS_PER_TOKEN)
        answer_logprob = mean * tokens  # the answer is nearly the whole text
    return replace(signals, kind=kind, length=length, mean_logprob=mean, answer_logprob=answer_logprob)


def features_of(estimate: Estimate) -> tuple[float, ...]:
    """φ(x) of an estimate; empty if its estimator uses other features."""
    values = {name: value for name, value, _ in estimate.contributions}
    return tuple(values[name] for name in FEATURES) if values.keys() >= set(FEATURES) else ()


def attempts_of(
    candidates: Sequence[Candidate], first: int, request: int, usage: Usage, price: Price | None, seconds: float
) -> list[Attempt]:
    """The answers to one request, numbered from `first`; its generated tokens are divided among them."""
    shares = output_shares(usage.output, candidates)
    prompt_usd = price.cost(Usage(usage.input, usage.cached, 0, 0)) if price else None
    return [
        Attempt(
            step=candidate.step,
            agent=candidate.agent,
            model=candidate.model,
            text=candidate.text,
            answer=candidate.answer,
            tokens=tuple(token._replace(logprob=round_logprob(token.logprob)) for token in candidate.tokens),
            judgment=candidate.judgment,
            finish=candidate.finish,
            stated=candidate.stated,
            index=index,
            request=request,
            usage=Usage(usage.input, usage.cached, output, None),
            prompt_usd=prompt_usd,
            output_usd=price.cost(Usage(0, 0, output, None)) if price else None,
            seconds=round(seconds, 4),
        )
        for index, (candidate, output) in enumerate(zip(candidates, shares, strict=True), start=first)
    ]


def output_shares(total: int | None, candidates: Sequence[Candidate]) -> list[int | None]:
    """Divide a request's generated tokens among its samples: by token lists if all have one, else by length.

    >>> output_shares(10, [Candidate(Step.SOLVE, "slow", "m", text, "") for text in ("abc", "abcdefg")])
    [3, 7]
    """
    if total is None:
        return [None] * len(candidates)
    listed = [len(candidate.tokens) for candidate in candidates]
    weights = listed if all(listed) else [max(1, len(candidate.text)) for candidate in candidates]
    ends = [round(total * sum(weights[: i + 1]) / sum(weights)) for i in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def sort_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    order = list(Step)
    agents = {FAST: 0, SECOND: 1, SLOW: 2}
    return sorted(
        attempts, key=lambda each: (order.index(each.step), agents.get(each.agent, 3), each.agent, each.index)
    )


def total_cost(attempts: Iterable[Attempt]) -> float | None:
    """The cost of all answers to one item; None if a price is unknown.

    Samples of one request share its prompt, which counts once.

    >>> row = Attempt(agent="slow", step=Step.SOLVE, model="m", text="", answer="", prompt_usd=3.0, output_usd=0.25)
    >>> total_cost([row, replace(row, index=1), replace(row, request=1)])
    6.75
    """
    attempts = list(attempts)
    prompts = {each.request: each.prompt_usd for each in attempts}
    return sum_costs([*(each.output_usd for each in attempts), *prompts.values()])


def sum_costs(costs: Sequence[float | None]) -> float | None:
    """None if one of them is unknown."""
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def round_logprob(logprob: float | None) -> float | None:
    """Round a log-probability to the precision of a recording.

    >>> round_logprob(-0.123456), round_logprob(-0.0000123456), round_logprob(None)
    (-0.1235, -1.23e-05, None)
    """
    if logprob is None:
        return None
    return (round(logprob, LOGPROB_DECIMALS) if abs(logprob) >= _NEAR_ZERO else float(f"{logprob:.2e}")) + 0.0


def row_id(key: ItemKey) -> str:
    """The id of an item's row in the journal; `key_of` reads it.

    >>> key_of(row_id(ItemKey("gsm8k", "17", 42)))
    ItemKey(set='gsm8k', id='17', seed=42)
    """
    return json.dumps(key, ensure_ascii=False)


def key_of(row_id: str) -> ItemKey:
    return ItemKey(*json.loads(row_id))


def without_defaults(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults, by name.

    >>> without_defaults(Usage(input=3))
    {'input': 3}
    """
    values = ((each, getattr(instance, each.name)) for each in fields(instance) if each.init)
    return {each.name: value for each, value in values if value != each.default}


def attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    """Values that are the default, or follow from others, are left out."""
    row = without_defaults(replace(attempt, figures=None, signals=None))
    tokens = row.pop("tokens", ())
    if attempt.text == _visible_text(tokens):
        del row["text"]
    if tokens:
        row["tokens"], row["logprobs"], _ = zip(*tokens, strict=True)
    if control := [i for i, token in enumerate(tokens) if token.control]:
        row["control"] = control
    if "usage" in row:
        row["usage"] = without_defaults(attempt.usage)
    return row


def attempt_from_json(row: Mapping[str, Any]) -> Attempt:
    """Raises KeyError, TypeError or ValueError for anything that `attempt_to_json` did not write."""
    texts = row.get("tokens", ())
    logprobs = row.get("logprobs", ())
    if len(logprobs) != len(texts):
        raise ValueError(f"{len(texts)} tokens, but {len(logprobs)} log-probabilities")
    if any(logprob is not None and logprob > 0 for logprob in logprobs):
        raise ValueError("a log-probability above 0")
    marked = set(row.get("control", ()))
    tokens = [Token(text, logprobs[i], i in marked) for i, text in enumerate(texts)]
    return msgspec.convert({"text": _visible_text(tokens), **row, "tokens": tokens}, Attempt)


def item_to_json(item: RecordedItem) -> dict[str, Any]:
    values = without_defaults(item)
    return {
        "id": row_id(item.key),
        "cost_usd": total_cost(item.attempts),
        "error": None,
        "digest": item.digest,
        "item": {name: values[name] for name in values if name not in ("key", "attempts", "digest")},
        "attempts": [attempt_to_json(each) for each in item.attempts],
    }


def item_from_json(row: Mapping[str, Any]) -> RecordedItem:
    """Raises KeyError, TypeError or ValueError for anything that `item_to_json` did not write."""
    own = {"key": key_of(row["id"]), "digest": str(row.get("digest") or ""), "attempts": []}
    item = msgspec.convert({**row["item"], **own}, RecordedItem)
    return replace(item, attempts=tuple(map(attempt_from_json, row["attempts"])))


def _visible_text(tokens: Iterable[Token]) -> str:
    return "".join(token.text for token in tokens if not token.control)
