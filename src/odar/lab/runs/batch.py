"""The work of `odar batch`: each question becomes a row with its answer or its error."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from typing import Any

from odar.engine import Odar
from odar.errors import OdarError
from odar.lab.recording.header import digest_json
from odar.lab.recording.questions import Question
from odar.lab.runs.executor import Work, WorkResult, failure
from odar.lab.runs.journal import Memo, WorkItem, write_in_thread
from odar.lab.runs.limits import used_amounts, worst_case
from odar.options import AskOptions
from odar.providers.base import Provider, Reply, Request
from odar.providers.pool import GuardedSend, Send
from odar.providers.replay import reply_from_json, reply_to_json
from odar.settings import Settings
from odar.traces.database import Database
from odar.traces.record import NOTHING_SPENT, Record
from odar.traces.writer import CLOSE_S, TraceWriter
from odar.types import SLOW, Ask, Route, Spend


@asynccontextmanager
async def open_batch_work(settings: Settings, seed: int | None = None) -> AsyncIterator[Work]:
    """Open an engine and the store of traces; `seed` is for questions without their own.

    A `partial` of this can be sent to another machine, which needs its own keys.
    """
    async with AsyncExitStack() as stack:
        writer = None
        if settings.store.enabled:
            database = stack.enter_context(closing(Database(settings.store)))
            writer = TraceWriter(database, settings.store)
            stack.push_async_callback(asyncio.to_thread, writer.close, CLOSE_S)
        odar = await stack.enter_async_context(Odar(settings, guard=remember_replies))

        async def work(item: WorkItem, memo: Memo) -> WorkResult:
            with use_memo(memo):
                return await answer_question(odar, item, seed, writer)

        yield work


async def answer_question(
    odar: Odar, item: WorkItem, seed: int | None, writer: TraceWriter | None = None
) -> WorkResult:
    """Answer a question, and make its row; an `OdarError` becomes the error of the row."""
    question: Question = item.payload
    try:
        answer = await odar.aask(
            question.query,
            path=question.path,
            seed=seed if question.seed is None else question.seed,
            max_cost_usd=question.max_cost_usd,
            short=bool(question.gold),  # `final` is compared with it
        )
    except OdarError as error:
        unanswered = dict.fromkeys(("text", "final", "path", "difficulty"))
        spent = _spend_fields(error.spend or NOTHING_SPENT)
        return failure(item, error, **unanswered, **spent, degradations=[], trace_id=None)
    trace = answer.trace
    if writer is not None:
        writer.put(Record(question.query, trace))
    row = {
        "id": item.key,
        "text": answer.text,
        "final": answer.final,
        "path": trace.path.value,
        "difficulty": trace.plan.estimate.difficulty,
        **_spend_fields(trace.spend),
        "degradations": list(trace.degradations),
        "trace_id": trace.id,
        "error": None,
        "digest": item.digest,
    }
    return WorkResult(row, used_amounts(trace.calls, item.needs))


def _spend_fields(spend: Spend) -> dict[str, Any]:
    usage = asdict(spend.usage)
    seconds = round(spend.seconds, 3)
    return {"calls": spend.calls, "cost_usd": spend.cost_usd, "usage": usage, "seconds": seconds}


# --- the items of a run ------------------------------------------------------------------------------------------


def make_items(odar: Odar, questions: Iterable[Question], seed: int | None = None) -> list[WorkItem]:
    items = []
    for question in questions:
        needs, cost = worst_case(odar, question.query, _longest_walk(odar, question))
        bounds = [x for x in (question.max_cost_usd, odar.settings.limits.max_cost_usd, cost) if x is not None]
        digest = digest_question(question, odar, seed)
        items.append(WorkItem(question.id, question, digest, needs, min(bounds, default=None)))
    return items


def digest_question(question: Question, odar: Odar, seed: int | None) -> str:
    settings = odar.settings
    own_seed = seed if question.seed is None else question.seed
    asked = [question.query, question.path, question.max_cost_usd, own_seed, settings.seed]
    agents = map(settings.agent, settings.agent_names)
    decided = [settings.policy, settings.routing, settings.fusion, settings.limits]
    return digest_json([*asked, *agents, *decided, odar.agents.prompts.steps()])


def _longest_walk(odar: Odar, question: Question) -> list[Ask]:
    """The requests of the walk with the most calls; on the Simple path slow may replace fast (SPEC 6.3)."""
    n = question.query.parameters.n
    walks = odar.policy(AskOptions(path=question.path)).walks(n)
    walk = max(walks, key=lambda each: sum(stage.calls for stage in each))
    asks = [ask for stage in walk for ask in stage.asks]
    return [*asks, Ask(SLOW, n)] if question.path is Route.SIMPLE else asks


# --- replies that have been paid for -----------------------------------------------------------------------------

_current_item: ContextVar[tuple[Memo, Counter[str]] | None] = ContextVar("odar_batch_item", default=None)
"""The memo of the item that a task works on, and how often each request was made for it."""


@contextmanager
def use_memo(memo: Memo) -> Iterator[None]:
    """Answer requests from this memo if it holds a reply, in the context and in tasks started in it."""
    token = _current_item.set((memo, Counter()))
    try:
        yield
    finally:
        _current_item.reset(token)


def remember_replies(provider: Provider) -> GuardedSend:
    """A guard of `Odar` that sends no request twice for the same item."""

    async def recall_or_send(request: Request, send: Send) -> Reply:
        current = _current_item.get()
        if current is None:
            return await send()
        memo, made = current
        digest = digest_json([provider.name, replace(request, timeout_s=0.0)])
        name = f"{digest}:{made[digest]}"  # samples without a seed are several identical requests
        made[digest] += 1
        if (kept := memo.recall(name)) is not None:
            return reply_from_json(kept)
        reply = await send()
        if any(completion.text.strip() or completion.tool_calls for completion in reply.completions):
            await write_in_thread(memo.keep, name, reply_to_json(reply))  # an empty one is asked for again
        return reply

    return recall_or_send
