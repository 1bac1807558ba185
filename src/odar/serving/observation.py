"""Observation: a share of the questions is also answered in the background, to compare the cascade with slow.

With `observe.enabled` every request is passed through to slow, and the cascade answers in the background
(SPEC 10.3). Otherwise the cascade serves, and slow answers in the background (SPEC 10.4); if the cascade differs
from slow too often, requests are passed through until `odar observe --resume`. Both ways, the missing cheap agents
are asked too: how often all agents agree gives their skills (SPEC 9.3).

(An `odar.observer.Observer` is something else: it receives an event for every step of a question.)

No client waits for this work, and no failure of it reaches a client: it begins after the reply was sent, in a
bounded queue with few tasks, within a budget that is reserved before each call, and its failures do not open
circuit breakers.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from contextvars import Context
from dataclasses import replace
from functools import partial

from odar.agents.ledger import Ledger
from odar.agents.team import Team
from odar.background import CURRENT_KEY
from odar.engine import Odar
from odar.errors import BudgetExceeded, KeyRefused
from odar.options import AskOptions
from odar.policy.answers import answer_in_reply, same_reply
from odar.policy.equivalence import group_candidates
from odar.policy.kinds import Kind
from odar.providers.base import Completion
from odar.providers.breaker import BACKGROUND
from odar.serving.budgets import Need
from odar.serving.errors import ApiError
from odar.serving.request_cost import walk_needs, with_max_tokens
from odar.serving.store import Store
from odar.traces.database import OBSERVATION
from odar.traces.observations import EVERY_KEY, Observation
from odar.traces.record import Record
from odar.traces.trace import baseline_usd
from odar.types import CHEAP_AGENTS, DIRECT, SLOW, Ask, Call, Candidate, Query, Stage, Step, Trace

LOG = logging.getLogger("odar.observe")
MAX_TASKS = 4
"""Maximum number of questions that are observed at once."""
PAUSE_S = 0.4
"""Pause of a task after each question: at most ten a second, each 5 ms of CPU, so that requests do not wait."""
MAX_QUEUED = 200
MAX_QUEUED_BYTES = 32 << 20
"""Maximum number and size of waiting questions; further ones are dropped and counted."""
REPEAT_SHARE = 0.25
"""Share of observed questions that are passed through a second time, for slow's agreement with itself."""


class TrafficObserver:
    """Observes the questions of one gateway: `odar` answers them, `store` keeps the outcome and the budget."""

    def __init__(self, odar: Odar, store: Store) -> None:
        self._odar = odar
        self._store = store
        self._draw = random.random
        self._settings = odar.settings.observe
        self._slow_model = odar.settings.slow.model
        self._queue: deque[tuple[Record, int]] = deque()
        self._queued: Counter[str] = Counter()
        """Waiting questions of each key."""
        self._queued_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.observed = 0
        self.dropped: Counter[str] = Counter()
        """Questions that were chosen and not observed: queue, budget, failed."""

    def passes_through(self, key_id: str) -> bool:
        """Whether a key's requests go to slow: observation is enabled, or the cascade fell back to it."""
        return self._settings.enabled or self._store.observations.fell_back(key_id)

    def offer(self, record: Record) -> None:
        """Observe a question that was answered, if it is chosen; returns at once and never raises."""
        share = self._settings.used_share
        if not share or not self._can_observe(record) or self._draw() >= share:
            return
        assert record.query is not None
        size = record.memory_bytes() + 4 * record.query.estimated_tokens
        own = self._queued[record.key_id] if record.key_id else 0  # at most as many as it leaves free
        if own >= MAX_QUEUED - len(self._queue) or self._queued_bytes + size > MAX_QUEUED_BYTES:
            self.dropped["queue"] += 1
            return
        self._queue.append((record, size))
        self._queued[record.key_id] += 1
        self._queued_bytes += size
        if len(self._tasks) < MAX_TASKS:
            task = asyncio.get_running_loop().create_task(self._work(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the tasks; waiting questions are not observed."""
        self.dropped["queue"] += len(self._queue)
        self._queue.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _can_observe(self, record: Record) -> bool:
        trace = record.trace
        query = record.query
        if (
            not isinstance(trace, Trace)
            or query is None
            or record.http_status != 200
            or query.parameters.n > 1
            or trace.degradations
        ):
            return False
        if DIRECT in trace.plan.models:  # a reply of the slow model, in place of which the cascade could answer
            return self.passes_through(record.key_id) and trace.plan.models[DIRECT] == self._slow_model
        compares = not trace.plan.one_call and trace.plan.kind != Kind.OPEN_ENDED
        return compares and not trace.plan.forced and not self.passes_through(record.key_id)

    # ── in the background ───────────────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        BACKGROUND.set(True)
        while self._queue:
            record, size = self._queue.popleft()
            self._queued_bytes -= size
            self._queued[record.key_id] -= 1
            CURRENT_KEY.set(record.key_id)
            try:
                await self._observe(record)
                self.observed += 1
            except (KeyRefused, BudgetExceeded, ApiError):  # the budget is used up, or a price is unknown
                self.dropped["budget"] += 1
            except Exception as error:  # logged only: no client may notice
                self.dropped["failed"] += 1
                LOG.debug("a question was not observed: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_S)

    async def _observe(self, record: Record) -> None:
        """Reserve the most that it can cost, answer the question, compare, and store the outcome."""
        trace = record.trace
        query = record.query
        assert isinstance(trace, Trace) and query is not None
        paid = next(call for call in trace.calls if call.error is None) if DIRECT in trace.plan.models else None
        paid_usd = 0.0 if paid is None else paid.cost_usd or 0.0
        # a budget for the calls, beyond the one that the client paid for
        need = Need(self._worst_usd(query))
        lease_s = self._odar.settings.limits.deadline_s
        account = f"{OBSERVATION}:{record.key_id}" if record.key_id else OBSERVATION
        future = self._store.budgets.reserve(account, f"observe-{record.trace.id}", [need], lease_s)
        reserved = await asyncio.wrap_future(future)
        ledger = self._odar.agents.ledger(max_cost_usd=need.usd + paid_usd)
        try:
            if paid is None:
                row = await self._ask_slow(trace, query, ledger, record)
            else:
                row = await self._ask_cascade(trace, query, ledger, record, paid)
        finally:
            used = paid is not None and any(call.usage is paid.usage for call in ledger.calls)  # the client paid it
            spent_usd = max(0.0, ledger.charged_usd() - (paid_usd if used else 0.0))
            self._store.budgets.charge(reserved, spent_usd, None)
        # store the outcome; if the cascade differs too often, slow answers from now on
        limit = None if self.passes_through(record.key_id) else self._settings.at_most_differ
        add = partial(self._store.observations.add, replace(row, spent_usd=spent_usd), limit)
        crossed = await self._store.run(add)
        if crossed is not None:
            excess = crossed.excess(alpha=0.1)  # 5% at its lower end, by which it was decided
            for_all = not record.key_id or self._store.observations.fell_back(EVERY_KEY)
            LOG.warning(
                "answers differ from the slow model's more often than its own by %.3f in %d questions (with 95%%"
                " confidence by %.3f at least), more than observe.at_most_differ = %g:"
                " %s answers %s until `odar observe --resume`",
                excess.mean, crossed.questions, excess.low, limit, self._slow_model,
                "every request" if for_all else f"the requests of key {record.key_id}",
            )  # fmt: skip

    async def _ask_cascade(
        self, trace: Trace, query: Query, ledger: Ledger, record: Record, paid: Call
    ) -> Observation:
        """Answer a question that was passed through, with slow's reply in place of its first answer."""
        reply = trace.winner
        known = Completion(reply.text, reply.tokens, reply.finish, reply.tool_calls)
        answer = await self._odar.aask(
            query, AskOptions(ledger=ledger, known_reply=(known, paid), scope=OBSERVATION)
        )
        slow_same = None
        if answer.trace.plan.kind != Kind.OPEN_ENDED:
            await self._count_agreement(answer.trace, query, ledger, replace(reply, agent=SLOW))
            if self._draw() < REPEAT_SHARE:
                team = self._plain_team(query, ledger)
                team.skip_samples(DIRECT, 1)
                again = await team.ask(Stage((Ask(DIRECT),)))
                slow_same = same_reply(again[0], reply) if again else None
        return self._observation(record, answer.trace, reply, paid.cost_usd, slow_same)

    async def _ask_slow(self, trace: Trace, query: Query, ledger: Ledger, record: Record) -> Observation:
        """Ask slow what the cascade answered: twice, less what the cascade asked it itself."""
        team = self._odar.agents.team(query, ledger, models=trace.plan.models)
        own = [c for c in trace.candidates if c.agent == SLOW and c.step is not Step.VERIFY]
        team.skip_samples(SLOW, len(own))
        price = trace.baseline_usd
        if len(own) < 2:
            own += await team.ask(Stage((Ask(SLOW, 2 - len(own)),)))
            price = price if SLOW in {c.agent for c in trace.candidates} else baseline_usd(team)
        if len(own) < 2:
            raise team.error()
        await self._count_agreement(trace, query, ledger, own[0])
        return self._observation(record, trace, own[0], price, same_reply(own[1], own[0]))

    async def _count_agreement(self, trace: Trace, query: Query, ledger: Ledger, slow: Candidate) -> None:
        """Ask the cheap agents that the cascade did not ask, and count which agents agree."""
        plan = trace.plan
        if plan.one_call:
            return
        answers = {c.agent: c for c in reversed(trace.candidates) if c.agent in CHEAP_AGENTS}
        missing = [Ask(agent) for agent in plan.models if agent in CHEAP_AGENTS and agent not in answers]
        if missing:
            team = self._odar.agents.team(query, ledger, models=plan.models)
            answers |= {c.agent: c for c in await team.ask(Stage(tuple(missing)))}
        known = answer_in_reply(slow.answer, [c.answer for c in answers.values()])
        candidates = [*answers.values(), replace(slow, answer=known or slow.answer)]
        finished = [c for c in candidates if c.finish != "length" or c.stated]
        groups = group_candidates(finished)
        labels = {f"{c.agent} {c.model}": group for c, group in zip(finished, groups, strict=True)}
        self._odar.agreement.count(labels, plan.plausible, CURRENT_KEY.get())

    def _observation(
        self, record: Record, trace: Trace, slow: Candidate, slow_usd: float | None, slow_same: bool | None
    ) -> Observation:
        winner = trace.winner
        content = self._store.settings.content
        return Observation(
            id=record.trace.id,
            at=trace.started_at,
            key_id=record.key_id,
            kind=trace.plan.kind,
            stages=",".join(str(d.stage) for d in trace.decisions if d.stage is not None),
            slow_usd=slow_usd,
            cascade_usd=trace.spend.cost_usd,
            spent_usd=0.0,
            same=None if trace.plan.kind == Kind.OPEN_ENDED else same_reply(winner, slow),
            slow_same=slow_same,
            question=record.query.text if content and record.query is not None else None,
            slow_answer=_shown(slow) if content else None,
            cascade_answer=_shown(winner) if content else None,
        )

    def _plain_team(self, query: Query, ledger: Ledger | None = None) -> Team:
        limited = with_max_tokens(query, self._odar.settings.limits.max_tokens)
        return self._odar.agents.plain_team(limited, self._slow_model, ledger)

    def _worst_usd(self, query: Query) -> float:
        """The most that observing a question costs: the longest walk, all cheap agents, and slow twice."""
        _, longest = walk_needs(self._odar, query, AskOptions(), priced=True)[0]
        usd = self._odar.agents.team(query, self._odar.agents.ledger()).worst_usd()
        again = self._plain_team(query).worst_usd()
        cheap = sum(usd.get(agent, 0.0) for agent in CHEAP_AGENTS)
        return longest.usd + cheap + 2 * max(usd.get(SLOW, 0.0), again[DIRECT])


def _shown(candidate: Candidate) -> str:
    return "\n".join([candidate.text, *map(str, candidate.tool_calls)]).strip()
