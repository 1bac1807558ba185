"""The engine: question → difficulty → path → agents → fusion → answer. Start reading at `Odar.aask`.

Every decision is one call into `odar.policy`; the parts themselves are built in `odar.components`.
"""

from __future__ import annotations

import asyncio
import atexit
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
from odar.observer import observed
from odar.policy.cut_off import cut_off_counts, cut_off_notes
from odar.policy.path import PATHS, Routing, restrict_path
from odar.policy.session import SessionRequest
from odar.policy.signals import answer_signals, sample_agreement
from odar.policy.target import Target
from odar.providers.base import OnDelta
from odar.store.targets import Aim
from odar.types import Answer, Assignment, Candidate, Decision, Estimate, Image, Path, Query, Role, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """Options of `Odar.aask` that only a server needs."""

    ledger: Ledger | None = None
    """A ledger from `Odar.ledger`, in place of a new one with the three limits."""
    on_delta: OnDelta | None = None
    """Receives every part of the answer while it is generated, including tool calls; Simple path only."""
    on_decision: Callable[[Decision], None] | None = None
    """Receives the decision, and again if the fast answer changes it."""
    model: str | None = None
    """Send the request unchanged to this model, without ODAR's prompts, settings or second opinion."""
    final: bool = False
    """Whether streamed text is final: a failure after the first text is raised, not repaired."""
    progress: bool = False
    """Send drafts and progress messages to `on_delta` as thinking, while there is no answer yet."""
    trace_id: str | None = None
    paths: Collection[str] = tuple(Path)
    """Paths that may be chosen after the fast answer."""
    target_scope: str = "request"
    """Questions with the same scope and target meet it together, such as those of one API key."""
    max_path: Path | None = None
    """Most expensive path; it replaces a more expensive one, and the trace says so."""
    session: SessionRequest | None = None
    """The conversation of the question: it keeps its models if a change would cost more than it saves."""


NO_SERVING_OPTIONS = ServingOptions()


@dataclass(frozen=True, slots=True)
class _Run:
    """The state of one question in the engine."""

    team: Team
    assignment: Assignment
    forced: Path | None
    stream: StreamedAnswer
    serving: ServingOptions
    aim: Aim

    @property
    def allowed_paths(self) -> list[str]:
        """Paths that may be chosen after the fast answer."""
        most = len(PATHS) if self.serving.max_path is None else PATHS.index(self.serving.max_path) + 1
        return [path for path in PATHS[:most] if path in self.serving.paths]

    def report(self, decision: Decision) -> None:
        """Report the chosen path to the server."""
        if self.serving.on_decision is not None:
            self.serving.on_decision(decision)


class Odar(Components):
    """Answers questions with as much compute as each needs; `Components` describes the arguments."""

    @observed("query", outermost=True)
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
        serving: ServingOptions = NO_SERVING_OPTIONS,
    ) -> Answer:
        """Answer one question.

        Args:
            question: the text, or a whole `Query`.
            images: images of the question.
            path: simple, medium or hard; None lets the difficulty decide.
            seed: makes sampling repeatable if the provider can.
            max_calls: model invocations, at most.
            max_cost_usd: US dollars, at most.
            deadline_s: wall time, at most; answers that are ready by then are used.
            on_text: receives the text while it is generated, on the Simple path.
            target: mean calls or dollars that questions with this target meet together, in place of the settings'.
            serving: options for servers.

        Raises:
            InputError: the question cannot be asked.
            BudgetExceeded: not even one call fits the limits.
            ProviderError: no agent produced an answer.
        """
        query = self.make_query(question, images, check_context=serving.model is None)
        forced = _parse_path(path)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        ledger = serving.ledger or self.ledger(max_calls, max_cost_usd, deadline_s)
        stream = StreamedAnswer(on_text, serving.on_delta, final=serving.final, progress=serving.progress)
        assignment = self._assign(query, serving)
        if assignment.slow:
            team = self.team(query, ledger, seed, assignment)
        else:
            team = self.plain_team(query, assignment.fast, ledger, seed)
        team.continues = self.settings.limits.continue_cut_off and not team.plain
        scope = serving.target_scope if target else "settings"
        is_routed = forced is None and bool(assignment.slow)
        aim = Aim(self.targets, (target or self.target) if is_routed else None, scope, self.routing)
        try:
            decision, candidates = await self._candidates(_Run(team, assignment, forced, stream, serving, aim))
            if serving.session is not None:
                decision = serving.session.settle(decision, ledger.calls, team.prices)
            candidates, verdict = await self.judge.decide(candidates, team, decision.path)
        except OdarError as error:
            error.spend = ledger.spend()
            raise
        finally:
            if aim.target is not None:
                aim.settle(ledger.spend())

        winner = candidates[verdict.winner]
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
            degradations=_degradations(team, decision, candidates, winner),
        )
        return Answer(winner.answer, winner.text, trace)

    def _assign(self, query: Query, serving: ServingOptions) -> Assignment:
        """Choose expert and models, unless the caller names a model or a session keeps its pair."""
        if serving.model is not None:
            return Assignment(cue="model named by the caller", fast=self.settings.card(serving.model).name)
        assignment = self.dispatcher.assign(query)
        if serving.session is None or not serving.session.session.requests:
            return assignment
        able = {role: [c.name for c in cards if c.images or not query.images] for role, cards in self.cards.items()}
        return serving.session.keep_pair(assignment, able)

    async def _candidates(self, run: _Run) -> tuple[Decision, list[Candidate]]:
        """Choose the path, possibly after the fast answer (SPEC 5.11), and run it."""
        team, stream = run.team, run.stream
        await team.prepare(Role.FAST)
        async with FastAnswer(
            team, ahead=self._asks_ahead(run), second_opinion=self._wants_second_sample(run)
        ) as fast_answer:
            decision, routing = await self._choose_path(run)
            run.report(decision)
            if decision.alone:
                team.check(Role.SLOW)
            elif decision.path is Path.SIMPLE:
                team.check(Role.FAST)
            else:
                team.check(*Role)
            stream.announce(decision)
            if not team.plain and team.query.options.n == 1 and routing.needs_fast_answer(decision):
                decision = await self._look_at_fast_answer(run, decision, routing, fast_answer)
            if run.serving.session is not None:
                decision = run.serving.session.afford(decision, team.prices)
            run.aim.book(decision)
            if decision.path is not Path.SIMPLE:
                await team.prepare(Role.SLOW)
            return decision, await self._run_path(decision, team, stream, fast_answer)

    async def _choose_path(self, run: _Run) -> tuple[Decision, Routing]:
        """Choose the path by the question alone; also return the routing for the choice after the fast answer."""
        team, aim, session, assignment = run.team, run.aim, run.serving.session, run.assignment
        routing = aim.routing() if aim.target is None else await run_in_thread(aim.routing)
        prices = team.prices
        scaled: tuple[Routing, ...] = () if session is None else session.routings(routing, prices)
        used = scaled if run.forced else (routing, *scaled)
        thresholds = tuple(value for each in used for value in each.boundaries(assignment.expert))
        estimate = await self._estimate(team.query, team.ledger, thresholds)
        if session is None:
            decision = self._decide(estimate, assignment, run.forced, routing)
        else:
            decision, routing = session.decide(routing, estimate, assignment, prices), scaled[0]
            if not team.cards[Role.FAST].logprobs:  # without them the fast answer cannot change the path
                decision = session.afford(decision, prices)
        if self.certificate is not None:
            certified = await run_in_thread(partial(self.certificate_state, decision, aim.target))
            decision = dataclasses.replace(decision, certificate=certified)
        if aim.use is not None:
            decision = dataclasses.replace(decision, target=aim.use)
        able = [role for role, card in team.cards.items() if card.images or not team.query.images]
        decision, notes = restrict_path(decision, able, run.serving.max_path)
        team.notes += notes
        return decision, routing

    async def _look_at_fast_answer(
        self, run: _Run, decision: Decision, routing: Routing, fast_answer: FastAnswer
    ) -> Decision:
        """Wait for the fast answer and choose the path again."""
        session, stream = run.serving.session, run.stream
        # In a tool loop the fast answer is not streamed before it is known to be the answer.
        in_tool_loop = session is not None and session.in_tool_loop
        is_streamed = decision.path is Path.SIMPLE and not in_tool_loop
        fast = await fast_answer(stream.handler if is_streamed else stream.draft)
        samples = [*fast, fast_answer.second] if fast_answer.second else fast
        after = self._reconsider(run, decision, samples, routing)
        if after.path is not decision.path:
            run.report(after)
        return after

    def _asks_ahead(self, run: _Run) -> bool:
        """Return whether the fast model is asked while the difficulty is estimated, which saves that time.

        Not for a stream, which needs another kind of request, and not for a key without access to every path,
        because its question may be rejected and must then cost nothing.
        """
        session, all_paths = run.serving.session, len(run.serving.paths) == len(Path)
        single = run.stream.handler is None and run.team.query.options.n == 1
        if not self.warm or not single or not all_paths or (session is not None and session.may_skip_fast):
            return False
        reads_file = run.aim.target is not None or self.certificate is not None
        return reads_file or not self.estimates.is_fast(run.team.query)

    def _wants_second_sample(self, run: _Run) -> bool:
        """Return whether a second fast sample is needed, for the look at the fast answer."""
        target, routing = run.aim.target, self.routing
        if target is not None and not target.allows_second_opinion:
            return False
        uses_posterior = routing.uses_posterior and routing.enabled and run.forced is None and not run.team.plain
        return uses_posterior and self.settings.routing.second_opinion and run.team.query.options.n == 1

    @observed("difficulty")
    async def _estimate(self, query: Query, ledger: Ledger, thresholds: tuple[float, ...]) -> Estimate:
        """Estimate d(x), given the turns before the question, as exactly as these thresholds need it."""
        if ledger.time_left() > 0 and self.estimates.is_fast(query):
            return self.estimates.estimate(query, thresholds)
        try:
            async with asyncio.timeout(ledger.time_left()) as timeout:
                estimate = await self.estimates(query, thresholds)
        except TimeoutError:
            if not timeout.expired():
                raise
            passed = f"the deadline of {ledger.limits.deadline_s:g} s passed"
            raise DeadlineExceeded(f"{passed} before the question was looked at; ask again") from None
        self.warm = True
        return estimate

    @observed("dispatch")
    def _decide(self, estimate: Estimate, assignment: Assignment, path: Path | None, routing: Routing) -> Decision:
        """Choose the path by the estimate, or take the requested one."""
        if assignment.slow:
            return routing.decide(estimate, assignment, path)
        return Decision(Path.SIMPLE, estimate, 0, assignment.cue, assignment)

    @observed("posterior")
    def _reconsider(self, run: _Run, decision: Decision, fast: list[Candidate], routing: Routing) -> Decision:
        """Choose the path again, given one or two fast answers; it stays if they show nothing or were streamed."""
        if not fast:
            return decision
        team = run.team
        answer = answer_signals(fast[0], decision.estimate.difficulty, sample_agreement(fast))
        d, look = self.posterior.look(answer, *self.scorer.tables(team))
        self.scorer.observe_signals(answer, team)
        decision = dataclasses.replace(decision, look=look)
        if d is None or run.stream.committed:
            return decision
        after = routing.reconsider(decision, d, run.allowed_paths)
        if decision.path is Path.SIMPLE and after.path is not Path.SIMPLE:
            try:
                team.check(Role.SLOW)
            except OdarError as error:  # without a slow agent, the fast answer is returned
                team.failures.append(Failure(Role.SLOW, error))
                return dataclasses.replace(after, path=Path.SIMPLE)
        return after

    async def _run_path(
        self, decision: Decision, team: Team, stream: StreamedAnswer, fast_answer: FastAnswer
    ) -> list[Candidate]:
        """Run the path (SPEC 1); if one agent fails, the other's answer is used (SPEC 6.3).

        With n > 1 the client gets n fast answers (Simple), one answer verified n times (Medium), or the n best of
        at least n samples (Hard).
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
                    await team.prepare(Role.SLOW)
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

    def ask(self, question: str | Query, **options: Any) -> Answer:
        """Call `aask` from code that is not async; this also works inside a running event loop."""
        return run_in_background(self.aask(question, **options))


def ask(question: str | Query, **options: Any) -> Answer:
    """Answer one question with the default settings; see `Odar.aask` for the options."""
    return _default_engine().ask(question, **options)


async def aask(question: str | Query, **options: Any) -> Answer:
    """Answer one question with the default settings, for async code; see `Odar.aask` for the options."""
    return await _default_engine().aask(question, **options)


@cache
def _default_engine() -> Odar:
    odar = Odar()
    atexit.register(odar.close)
    return odar


def _degradations(
    team: Team, decision: Decision, candidates: list[Candidate], winner: Candidate
) -> tuple[str, ...]:
    """Return the failures and shortcuts on the path (SPEC 6.3)."""
    reasons = [decision.estimate.fallback, *team.notes, *map(str, team.failures), winner.fault]
    if any(candidate.finish == "length" for candidate in candidates):
        limits = {role: team.request_template(role).sampling.max_tokens for role in team.cards}
        reasons += cut_off_notes(cut_off_counts(candidates, team.query.options), limits)
    return tuple(dict.fromkeys(filter(None, reasons)))


def _parse_path(path: Path | str | None) -> Path | None:
    try:
        return None if path is None else Path(path)
    except ValueError:
        raise InputError(f"path {path!r} is not one of: {', '.join(Path)}") from None
