"""The engine: question → difficulty → path → agents → fusion → answer. Start reading at `Odar.aask`.

Every decision is one call into `odar.policy`; the parts themselves are built in `odar.components`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from odar.agents.flow import FastAnswer, StreamedAnswer, gather_or_cancel
from odar.agents.ledger import Ledger
from odar.agents.team import Failure, Team
from odar.background import run_in_background, run_in_thread
from odar.components import Components
from odar.errors import AllAgentsFailed, DeadlineExceeded, InputError, OdarError, ProviderError
from odar.observer import observed, observing
from odar.policy.certificate import describe
from odar.policy.cut_off import cut_off_counts, cut_off_notes
from odar.policy.path import PATHS, Routing
from odar.policy.session import SessionRequest
from odar.policy.signals import agreement_of, signals_of
from odar.policy.target import Target
from odar.providers.base import OnDelta, prepare_model
from odar.store.targets import Aim
from odar.types import Answer, Assignment, Candidate, Decision, Estimate, Image, Path, Query, Role, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """What a server needs beyond what `Odar.aask` offers to everybody."""

    ledger: Ledger | None = None
    """The bill, from `Odar.ledger`, in place of one made from the three limits."""
    on_delta: OnDelta | None = None
    """Receives every part of the answer while it is generated, tool calls included; Simple path only."""
    on_decision: Callable[[Decision], None] | None = None
    """Receives the decision, and again if the fast answer changes it."""
    model: str | None = None
    """Ask this model as the client asks: no prompts, settings or second opinion of ODAR."""
    final: bool = False
    """Streamed text cannot be taken back: a failure after the first text is raised, not repaired."""
    progress: bool = False
    """Pass on drafts and what is being done to `on_delta` as thinking, while there is no answer yet."""
    trace_id: str | None = None
    paths: Collection[str] = tuple(Path)
    """The only paths that a look at the fast answer may lead to."""
    target_scope: str = "request"
    """Questions with the same scope and target meet it together, such as those of one API key."""
    max_path: Path | None = None
    """Take this path if a more expensive one was due; the trace says so."""
    session: SessionRequest | None = None
    """The conversation that the question continues: it keeps its models if a change costs more than it is worth."""


NOT_SERVING = ServingOptions()


class Odar(Components):
    """Answers questions with as much compute as each needs; `Components` describes the arguments."""

    @observing("query")
    async def aask(
        self,
        question: str | Query,
        *,
        images: Iterable[Image] = (),
        path: Path | str | None = None,
        seed: int | None = None,
        max_calls: int | None = None,
        max_cost_usd: float | None = None,
        deadline_s: float | None = None,
        on_text: Callable[[str], None] | None = None,
        target: Target | None = None,
        serving: ServingOptions = NOT_SERVING,
    ) -> Answer:
        """Answer one question.

        Args:
            question: the text, or a whole `Query`.
            images: pictures that belong to it.
            path: simple, medium or hard; None lets the difficulty decide.
            seed: makes sampling repeatable if the provider can.
            max_calls: model invocations, at most.
            max_cost_usd: US dollars, at most.
            deadline_s: wall time, at most; what is finished by then is used.
            on_text: receives the text while it is generated, on the Simple path.
            target: mean calls or dollars that questions with this target meet together, in place of the settings'.
            serving: what only a server needs.

        Raises:
            InputError: the question cannot be asked.
            BudgetExceeded: not even one call fits the limits.
            ProviderError: no agent produced an answer.
        """
        query, forced = self.checked(question, images, fit=serving.model is None), _path(path)
        ledger = serving.ledger or self.ledger(max_calls, max_cost_usd, deadline_s)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        stream = StreamedAnswer(on_text, serving.on_delta, final=serving.final, progress=serving.progress)

        assignment = self._assign(query, serving.model)
        if serving.session is not None:
            able = {
                role: [c.name for c in cards if c.images or not query.images] for role, cards in self.cards.items()
            }
            assignment = serving.session.keep_pair(assignment, able)
        team = (
            self.team(query, ledger, seed, assignment)
            if assignment.slow
            else self.plain_team(query, assignment.fast, ledger, seed)
        )
        team.continues = self.settings.limits.continue_cut_off and not team.plain
        aim = Aim(self.targets, target or self.target, serving.target_scope if target else "settings", self.routing)
        if forced is not None or not assignment.slow:
            aim.target = None
        try:
            decision, candidates = await self._candidates(team, assignment, forced, stream, serving, aim)
            if serving.session is not None:
                decision = serving.session.settle(decision, ledger.calls)
            candidates, verdict = await self.judge.decide(candidates, team, decision.path)
        except OdarError as error:
            error.spend = ledger.spend()
            raise
        finally:
            aim.settle(ledger.spend())

        winner = candidates[verdict.winner]
        cut_off = cut_off_notes(cut_off_counts(candidates, query.options), team.token_limits())
        faults = [decision.estimate.fallback, *team.notes, *map(str, team.failures), winner.fault, *cut_off]
        trace = Trace(
            id=serving.trace_id or uuid.uuid4().hex,
            started_at=started_at,
            profile=self.settings.profile,
            decision=decision,
            candidates=tuple(candidates),
            verdict=verdict,
            calls=tuple(ledger.calls),
            spend=ledger.spend(),
            prompts=(
                *((step.value, prompt.md5) for step, prompt in team.prompts.items()),
                *team.extra_prompts.items(),
            ),
            degradations=tuple(dict.fromkeys(filter(None, faults))),
        )
        return Answer(winner.answer, winner.text, trace)

    async def _candidates(
        self,
        team: Team,
        assignment: Assignment,
        forced: Path | None,
        stream: StreamedAnswer,
        serving: ServingOptions,
        aim: Aim,
    ) -> tuple[Decision, list[Candidate]]:
        """Choose the path, possibly after the fast answer (SPEC 5.11), and take it."""
        query, session = team.query, serving.session
        await self._prepare(team, Role.FAST)
        # Asking ahead hides the time of the estimate. Not with a stream, which is asked for in another way, nor for
        # a key that may not take every path, which may be refused before anything is paid.
        ahead = self.warm and stream.handler is None and query.options.n == 1 and len(serving.paths) == len(Path)
        ahead = ahead and (session is None or not session.alone)
        async with FastAnswer(
            team, ahead=ahead, second_opinion=self._wants_second(team, forced, aim.target)
        ) as fast_answer:
            routing = aim.routing() if aim.target is None else await run_in_thread(aim.routing)
            limits: tuple[float, ...] = () if forced else routing.limits(assignment.expert)
            prices = {role: card.price for role, card in team.cards.items()}
            up, down = (routing, routing) if session is None else session.routings(routing, prices)
            if up is not down:
                limits += up.limits(assignment.expert) + down.limits(assignment.expert)
            estimate = await self._estimate(query, team.ledger, limits)
            if session is None:
                decision = self._decide(estimate, assignment, forced, routing)
            else:
                decision, routing = session.decide(routing, estimate, assignment, prices), up
            paths = serving.paths
            certified = await run_in_thread(partial(self._certified, aim, decision)) if self.certificate else ""
            decision = dataclasses.replace(decision, target=aim.use, certificate=certified)
            decision = _for_those_who_see(decision, team)
            if serving.max_path is not None:
                paths = [path for path in paths if PATHS.index(Path(path)) <= PATHS.index(serving.max_path)]
                decision = _at_most(decision, serving.max_path, team)
            if serving.on_decision is not None:
                serving.on_decision(decision)
            simple = [Role.FAST] if decision.path is Path.SIMPLE else Role
            team.check(*([Role.SLOW] if decision.alone else simple))
            stream.progress(_progress(decision))
            if not team.plain and query.options.n == 1 and routing.looks_first(decision):
                # In a tool loop the fast answer is held back until it is known to be the answer.
                straight = decision.path is Path.SIMPLE and not (session is not None and session.in_tool_loop)
                fast = await fast_answer(stream.handler if straight else stream.draft)
                samples = [*fast, *([fast_answer.second] if fast_answer.second else [])]
                before, decision = decision, self._reconsider(decision, samples, team, stream, paths, routing)
                if serving.on_decision is not None and decision.path is not before.path:
                    serving.on_decision(decision)
            aim.book(decision)
            if decision.path is not Path.SIMPLE:
                await self._prepare(team, Role.SLOW)
            return decision, await self._take(decision, team, stream, fast_answer)

    def _certified(self, aim: Aim, decision: Decision) -> str:
        """Whether the installed certificate holds for this question; reads a small file once a minute."""
        assert self.certificate is not None
        own = [f"a target of {aim.target} chose the thresholds"] if aim.target else []
        own += ["the caller chose the path"] if decision.forced else []
        own += ["another pair of models"] if self._other_pair(decision.assignment) else []
        return describe(self.certificate, own + self.certificate_problems())

    def _other_pair(self, assignment: Assignment) -> bool:
        default = tuple(cards[0].name for cards in self.cards.values())
        return (assignment.fast, assignment.slow) != default

    def _assign(self, query: Query, model: str | None) -> Assignment:
        """Choose expert and models; a model that the caller names is the only one."""
        if model is None:
            return self.dispatcher.assign(query)
        return Assignment(cue="model named by the caller", fast=self.settings.card(model).name)

    @observed("difficulty")
    async def _estimate(self, query: Query, ledger: Ledger, limits: tuple[float, ...]) -> Estimate:
        """Estimate d(x), given the turns before the question, as exactly as these limits need it."""
        try:
            async with asyncio.timeout(ledger.time_left()) as limit:
                estimate = await self.estimates(query, limits)
        except TimeoutError:
            if not limit.expired():
                raise
            passed = f"the deadline of {ledger.limits.deadline_s:g} s passed"
            raise DeadlineExceeded(f"{passed} before the question was looked at; ask again") from None
        self.warm = True
        return estimate

    @observed("dispatch")
    def _decide(self, estimate: Estimate, assignment: Assignment, path: Path | None, routing: Routing) -> Decision:
        """Choose the path by the estimate, or take the one asked for."""
        if assignment.slow:
            return routing.decide(estimate, assignment, path)
        return Decision(Path.SIMPLE, estimate, 0, assignment.cue, assignment)

    def _wants_second(self, team: Team, forced: Path | None, target: Target | None) -> bool:
        """Return whether a second fast sample is bought: only the look at the fast answer uses it."""
        if target is not None and not target.allows_second_opinion:
            return False
        looks = self.routing.looks and self.routing.enabled and forced is None and not team.plain
        return looks and self.settings.routing.second_opinion and team.query.options.n == 1

    @observed("posterior")
    def _reconsider(
        self,
        decision: Decision,
        fast: list[Candidate],
        team: Team,
        stream: StreamedAnswer,
        paths: Collection[str],
        routing: Routing,
    ) -> Decision:
        """Choose the path again, given one or two fast answers; it stays if they show nothing or were streamed."""
        if not fast:
            return decision
        answer = signals_of(fast[0], decision.estimate.difficulty, agreement_of(fast))
        d, look = self.posterior.look(answer, *self.scorer.tables(team))
        self.scorer.observe_signals(answer, team)
        decision = dataclasses.replace(decision, look=look)
        if d is None or stream.committed:
            return decision
        after = routing.reconsider(decision, d, paths)
        if decision.path is Path.SIMPLE is not after.path:
            try:
                team.check(Role.SLOW)
            except OdarError as error:  # without a slow agent, the answer that exists is returned
                team.failures.append(Failure(Role.SLOW, error))
                return dataclasses.replace(after, path=Path.SIMPLE)
        return after

    async def _take(
        self, decision: Decision, team: Team, stream: StreamedAnswer, fast_answer: FastAnswer
    ) -> list[Candidate]:
        """Take the path (SPEC 1); if one agent fails, the other's answer is used (SPEC 6.3).

        A client that wants n answers gets n of the fast agent (Simple), one verified n times (Medium), or the
        n best of at least n samples (Hard).
        """
        n, assignment = team.query.options.n, decision.assignment
        match decision.path:
            case Path.MEDIUM | Path.HARD if decision.alone:
                candidates = await team.solve(n, stream.handler)
                if not candidates and not stream.committed:
                    candidates = await fast_answer(stream.handler, n)
            case Path.SIMPLE:
                candidates = await fast_answer(stream.handler, n)
                if not candidates and not team.plain and not stream.committed:
                    await self._prepare(team, Role.SLOW)
                    candidates = await team.solve(n, stream.handler)
            case Path.MEDIUM:
                proposals = await fast_answer(stream.draft)
                stream.progress(f"\n\n{assignment.slow} checks it.\n")
                candidates = proposals + await (team.verify(proposals[0], n) if proposals else team.solve(n))
            case Path.HARD:
                wanted = max(decision.samples, n)
                in_full = decision.forced or n > 1
                solve = team.solve(wanted) if in_full else self.sampler.sample(team, wanted)
                proposals, slow = await gather_or_cancel(fast_answer(stream.draft), solve)
                candidates = proposals + slow
        if not candidates:
            causes = [failure.error for failure in team.failures]
            if team.plain or stream.committed or not any(isinstance(cause, ProviderError) for cause in causes):
                raise causes[0]
            raise AllAgentsFailed(map(str, team.failures), causes)
        return candidates

    async def _prepare(self, team: Team, role: Role) -> None:
        """Download and load the role's model before its first use; the deadline does not run meanwhile."""
        started, card = team.ledger.clock(), team.cards[role]
        with contextlib.suppress(OdarError):  # a provider that cannot be opened is reported by the call
            await prepare_model(self.providers[card.provider], card.id)
        team.ledger.exclude(team.ledger.clock() - started)

    def ask(self, question: str | Query, **options: Any) -> Answer:
        """`aask` for code that is not async; works inside a running event loop too."""
        return run_in_background(self.aask(question, **options))


def ask(question: str | Query, **options: Any) -> Answer:
    """Answer one question with the default settings; see `Odar.aask` for the options."""
    return _default().ask(question, **options)


async def aask(question: str | Query, **options: Any) -> Answer:
    """`ask` for async code."""
    return await _default().aask(question, **options)


@cache
def _default() -> Odar:
    odar = Odar()
    atexit.register(odar.close)
    return odar


def _for_those_who_see(decision: Decision, team: Team) -> Decision:
    """Return the decision with the agent that sees alone, if the question has images and only one agent does."""
    blind = [role for role in team.cards if team.query.images and not team.cards[role].images]
    if team.plain or len(blind) != 1:
        return decision
    seeing = Role.SLOW if blind[0] is Role.FAST else Role.FAST
    note = f"{team.cards[blind[0]].name} cannot see images; the {seeing} agent answers alone"
    team.notes.append(note)
    reason = f"{decision.reason}; {note}"
    if blind[0] is Role.SLOW:
        return dataclasses.replace(decision, path=Path.SIMPLE, reason=reason, forced=True, alone=False)
    path = Path.MEDIUM if decision.path is Path.SIMPLE else decision.path
    return dataclasses.replace(decision, path=path, reason=reason, alone=True)


def _progress(decision: Decision) -> str:
    """What is about to be done, for somebody who waits for the answer; empty on the Simple path."""
    fast, slow = decision.assignment.fast, decision.assignment.slow
    if decision.alone:
        work = f"{slow} continues."
    else:
        work = f"{fast} drafts an answer, {slow} checks it."
        if decision.path is Path.HARD:
            work = f"{fast} drafts an answer, up to {decision.samples} of {slow} are compared with it."
    return (
        "" if decision.path is Path.SIMPLE else f"Difficulty {decision.difficulty:.2f}, {decision.path}: {work}\n\n"
    )


def _at_most(decision: Decision, max_path: Path, team: Team) -> Decision:
    """Return the decision, with the most expensive path that is allowed; the trace says so."""
    if PATHS.index(decision.path) <= PATHS.index(max_path):
        return decision
    note = f"the {decision.path} path does not fit the budget; the {max_path} path was taken"
    team.notes.append(note)
    return dataclasses.replace(decision, path=max_path, reason=f"{decision.reason}; {note}")


def _path(path: Path | str | None) -> Path | None:
    try:
        return None if path is None else Path(path)
    except ValueError:
        raise InputError(f"path {path!r} is not one of: {', '.join(Path)}") from None
