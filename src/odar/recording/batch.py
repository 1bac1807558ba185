"""The work of `odar batch`: each question becomes a row with its answer or its error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

from odar.engine import Odar
from odar.errors import OdarError
from odar.recording.executor import Item, Outcome, Work, failure
from odar.recording.journal import Memo, digest_of
from odar.recording.questions import Question
from odar.recording.work import RememberingProvider, use_memo, used_amounts, worst_case
from odar.settings import Settings
from odar.store.record import NOTHING_SPENT, Record
from odar.store.store import Store
from odar.types import Answer, Path, Spend, Step


@dataclass(frozen=True, slots=True)
class OpenBatchWork:
    """Opens an engine and the store of traces; can be sent to another machine, which needs keys of its own."""

    settings: Settings
    seed: int | None = None
    """Seed of questions without one of their own."""

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        """Open engine and store, and yield the work."""
        store = Store(self.settings) if self.settings.store.enabled else None
        try:
            async with Odar(self.settings, guard=RememberingProvider) as odar:

                async def work(item: Item, memo: Memo) -> Outcome:
                    with use_memo(memo):
                        return await answer_question(odar, item, self.seed, store)

                yield work
        finally:
            if store is not None:
                await store.close()


async def answer_question(odar: Odar, item: Item, seed: int | None, store: Store | None = None) -> Outcome:
    """Answer one question; an `OdarError` becomes the error of the row."""
    question: Question = item.payload
    try:
        answer = await odar.aask(
            question.query,
            path=question.path,
            seed=seed if question.seed is None else question.seed,
            max_cost_usd=question.max_cost_usd,
        )
    except OdarError as error:
        unanswered = dict.fromkeys(("answer", "text", "path", "difficulty"))
        spent = _spend_fields(error.spend or NOTHING_SPENT)
        return failure(item, error, **unanswered, **spent, degradations=[], trace_id=None)
    if store is not None:
        store.put(Record(question.query, answer))
    return Outcome(_row(item, answer), used_amounts(answer.trace.calls, item.needs, odar.settings.retry.attempts))


def make_items(odar: Odar, questions: Iterable[Question], seed: int | None = None) -> list[Item]:
    """Return the questions as work items, each with its maximum needs and cost."""
    items = []
    for question in questions:
        needs, cost = worst_case(odar, question.query, _longest_way(odar, question))
        bounds = [x for x in (question.max_cost_usd, odar.settings.limits.max_cost_usd, cost) if x is not None]
        digest = digest_question(question, odar, seed)
        items.append(Item(question.id, question, digest, needs, min(bounds, default=None)))
    return items


def digest_question(question: Question, odar: Odar, seed: int | None) -> str:
    """Return a hash of everything that an answer depends on: question, models, prompts and settings."""
    settings = odar.settings
    return digest_of(
        *(question.query, question.path, question.max_cost_usd),
        *(seed if question.seed is None else question.seed, settings.seed),
        *(settings.fast, settings.slow, settings.routing, settings.dispatch, settings.fusion, settings.limits),
        {step.value: prompt.md5 for step, prompt in odar.prompts.items()},
    )


def _longest_way(odar: Odar, question: Question) -> Sequence[tuple[Step, int]]:
    """Return the most steps that a question can take: if the fast agent fails, the slow one solves (SPEC 6.3)."""
    n, samples = question.query.options.n, odar.settings.routing.samples
    match question.path:
        case Path.SIMPLE:
            return (Step.ANSWER, n), (Step.SOLVE, n)
        case Path.MEDIUM:
            return (Step.ANSWER, 1), (Step.VERIFY, n)
        case _:
            return (Step.ANSWER, n), (Step.SOLVE, max(samples, n))


def _row(item: Item, answer: Answer) -> dict[str, Any]:
    trace = answer.trace
    return {
        "id": item.key,
        "answer": answer.answer,
        "text": answer.text,
        "path": trace.decision.path.value,
        "difficulty": trace.decision.difficulty,
        **_spend_fields(trace.spend),
        "degradations": list(trace.degradations),
        "trace_id": trace.id,
        "error": None,
        "digest": item.digest,
    }


def _spend_fields(spend: Spend) -> dict[str, Any]:
    usage, seconds = asdict(spend.usage), round(spend.seconds, 3)
    return {"calls": spend.calls, "cost_usd": spend.cost_usd, "usage": usage, "seconds": seconds}
