"""What a panel keeps of an item: every answer that was paid for, with its tokens, its score and its price."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from odar.catalogue import Price
from odar.types import Candidate, Step, Token, Usage


class Key(NamedTuple):
    """What makes an entry unique in a panel."""

    benchmark: str
    id: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer by one agent."""

    step: Step
    index: int
    """Which of the slow samples; 0 for the other steps."""
    model: str
    text: str
    answer: str
    judgment: bool | None
    finish: str
    score: float | None
    """By the benchmark's own metric, from 0 to 1; None until its item is finished."""
    tokens: tuple[str, ...]
    logprobs: tuple[float | None, ...]
    """In single precision, as they are stored: what is derived from them is the same before and after a reload."""
    control: tuple[bool, ...]
    request: int
    """Samples of one request share a number, and a prompt that was billed once."""
    usage: Usage
    """Input is that of the whole request, output that of this sample."""
    prompt_usd: float | None
    """What reading the prompt cost; the same for all samples of the request."""
    output_usd: float | None
    """What this sample's own tokens cost."""
    seconds: float
    """How long its request took."""
    stated: bool = True
    """Whether it marked its final answer, where it was told to."""

    @property
    def candidate(self) -> Candidate:
        """The answer as fusion and agents know it."""
        triples = zip(self.tokens, self.logprobs, self.control, strict=True)
        tokens = tuple(Token(*triple) for triple in triples)
        said = (self.text, self.answer, tokens, self.judgment, self.finish)
        return Candidate(self.step, self.model, *said, stated=self.stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One item, answered in every way a policy may want."""

    key: Key
    category: str
    metric: str
    stratum: str
    fold: int
    """Which fold of its benchmark it was drawn into (SPEC 7.4)."""
    query: str
    gold: Any
    effort: float | None
    features: tuple[float, ...]
    """φ(x), the 24 features of SPEC 2.1."""
    difficulty: float
    """The prior d(x)."""
    expert: str
    attempts: tuple[Attempt, ...]
    """The fast answer, the slow verification, the slow samples in order."""


@dataclass(frozen=True, slots=True)
class Bill:
    """One request as the ledger has it, for the samples that came of it."""

    number: int
    usage: Usage
    price: Price | None
    seconds: float


def attempt(candidate: Candidate, index: int, score: float | None, bill: Bill, output: int | None) -> Attempt:
    """A candidate as it is kept; `output` is its own part of the request's generated tokens."""
    usage = Usage(bill.usage.input, bill.usage.cached, output, None)
    price = bill.price
    return Attempt(
        step=candidate.step,
        index=index,
        model=candidate.model,
        text=candidate.text,
        answer=candidate.answer,
        judgment=candidate.judgment,
        finish=candidate.finish,
        score=score,
        tokens=tuple(token.text for token in candidate.tokens),
        logprobs=tuple(_single(token.logprob) for token in candidate.tokens),
        control=tuple(token.control for token in candidate.tokens),
        request=bill.number,
        usage=usage,
        prompt_usd=price.cost(Usage(usage.input, usage.cached, 0, 0)) if price else None,
        output_usd=price.cost(Usage(0, 0, output, None)) if price else None,
        seconds=bill.seconds,
        stated=candidate.stated,
    )


def shares(total: int | None, candidates: Sequence[Candidate]) -> list[int | None]:
    """A request's generated tokens, divided among its samples: as listed where the lists add up, else by length.

    >>> shares(10, [Candidate(Step.SOLVE, "m", "abc", ""), Candidate(Step.SOLVE, "m", "abcdefg", "")])
    [3, 7]
    """
    if total is None:
        return [None] * len(candidates)
    listed = [len(candidate.tokens) for candidate in candidates]
    weights = listed if all(listed) else [max(1, len(candidate.text)) for candidate in candidates]
    ends = [round(total * sum(weights[: i + 1]) / sum(weights)) for i in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    """As one JSON object."""
    return asdict(attempt)


def attempt_from_json(row: Mapping[str, Any]) -> Attempt:
    """What `attempt_to_json` wrote; raises KeyError, TypeError or ValueError where it is something else."""
    lists = {name: tuple(row[name]) for name in ("tokens", "logprobs", "control")}
    return Attempt(**{**row, **lists, "step": Step(row["step"]), "usage": Usage(**row["usage"])})


def row_id(key: Key) -> str:
    """The name of an item's row in the journal; `key_of` reads it.

    >>> key_of(row_id(Key("gsm8k", "17", 42)))
    Key(benchmark='gsm8k', id='17', seed=42)
    """
    return json.dumps(key, ensure_ascii=False)


def key_of(row_id: str) -> Key:
    """The key that `row_id` was given."""
    return Key(*json.loads(row_id))


def row_of(entry: Entry) -> dict[str, Any]:
    """What a row of the journal holds of a finished item, beside its name."""
    rest = {name: value for name, value in asdict(entry).items() if name not in ("attempts", "key")}
    return {"item": rest, "attempts": [attempt_to_json(each) for each in entry.attempts]}


def entry_of(row: Mapping[str, Any]) -> Entry:
    """The item of a row; raises KeyError, TypeError or ValueError where it is something else."""
    rest = {**row["item"], "features": tuple(row["item"]["features"])}
    return Entry(**rest, key=key_of(row["id"]), attempts=tuple(map(attempt_from_json, row["attempts"])))


def in_order(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The fast answer, the verification, the samples."""
    order = list(Step)
    return sorted(attempts, key=lambda each: (order.index(each.step), each.index))


def bill(attempts: Iterable[Attempt]) -> float | None:
    """What answers to one item cost together; None where a price is unknown."""
    return add_up((each.request, each.prompt_usd, each.output_usd) for each in attempts)


def add_up(prices: Iterable[tuple[int, float | None, float | None]]) -> float | None:
    """The sum of (request, price of its prompt, price of the answer): a prompt counts once for each request.

    >>> add_up([(0, 1.0, 0.5), (2, 3.0, 0.25), (2, 3.0, 0.25)])
    5.0
    """
    prompts: dict[int, float] = {}
    total = 0.0
    for request, prompt, answer in prices:
        if prompt is None or answer is None:
            return None
        prompts[request] = prompt
        total += answer
    return total + sum(prompts.values())


def _single(logprob: float | None) -> float | None:
    return None if logprob is None else float(np.float32(logprob))
