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
    """A ledger from `Odar.ledger`, used instead of one made from the three limits."""
    on_delta: OnDelta | None = None
    """Receives every part of the answer while it is generated, tool calls included; Simple path only."""
    on_decision: Callable[[Decision], None] | None = None
    """Receives the decision, and again if the fast answer changes it."""
    model: str | None = None
    """Send the request unchanged to this model, without ODAR's prompts, settings or second opinion."""
    final: bool = False
    """Streamed text cannot be taken back: a failure after the first text is raised, not repaired."""
    progress: bool = False
    """Send drafts and progress messages to `on_delta` as thinking, while there is no answer yet."""
    trace_id: str | None = None
    paths: Collection[str] = tuple(Path)
    """The paths that may be chosen after the fast answer."""
    target_scope: str = "request"
    """Questions with the same scope and target meet it together, such as those of one API key."""
    max_path: Path | None = None
    """Take this path if a more expensive one was due; the trace says so."""
    session: SessionRequest | None = None
    """The conversation that the question continues: it keeps its models if a change costs more than it is worth."""


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
        """The paths that may be chosen after the fast answer."""
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
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        ledger = serving.ledger or self.ledger(max_calls, max_cost_usd, deadline_s)
        stream = StreamedAnswer(on_text, serving.on_delta, final=serving.final, progress=serving.progress)
        assignment = self._assign(query, serving)
        if assignment.slow:
            team = self.team(query, ledger, seed, assignment)
        else:
            team = self.plain_team(query, assignment.fast, ledger, seed)
        team.continues = self.settings.limits.continue_cut_off and not team.plain
        aim = Aim(self.targets, target or self.target, serving.target_scope if target else "settings", self.routing)
        if forced is not None or not assignment.slow:
            aim.target = None
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

        winner, cut_off = candidates[verdict.winner], []
        if any(candidate.finish == "length" for candidate in candidates):
            limits = {role: team.request_template(role).sampling.max_tokens for role in team.cards}
            cut_off = cut_off_notes(cut_off_counts(candidates, query.options), limits)
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

    def _assign(self, query: Query, serving: ServingOptions) -> Assignment:
        """Choose expert and models; a model that the caller names is the only one, and a session keeps its pair."""
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
            simple = [Role.FAST] if decision.path is Path.SIMPLE else Role
            team.check(*([Role.SLOW] if decision.alone else simple))
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
        limits = tuple(limit for each in used for limit in each.boundaries(assignment.expert))
        estimate = await self._estimate(team.query, team.ledger, limits)
        if session is None:
            decision = self._decide(estimate, assignment, run.forced, routing)
        else:
            decision, routing = session.decide(routing, estimate, assignment, prices), scaled[0]
            if not team.cards[Role.FAST].logprobs:  # its answer shows too little to change the path
                decision = session.afford(decision, prices)
        if self.certificate is not None:
            certified = await run_in_thread(partial(self.certificate_state, decision, aim.target))
            decision = dataclasses.replace(decision, certificate=certified)
        decision, notes = restrict_path(
            decision if aim.use is None else dataclasses.replace(decision, target=aim.use),
            [role for role, card in team.cards.items() if card.images or not team.query.images],
            run.serving.max_path,
        )
        team.notes += notes
        return decision, routing

    async def _look_at_fast_answer(
        self, run: _Run, decision: Decision, routing: Routing, fast_answer: FastAnswer
    ) -> Decision:
        """Wait for the fast answer and choose the path again."""
        session, stream = run.serving.session, run.stream
        # In a tool loop the fast answer is held back until it is known to be the answer.
        straight = decision.path is Path.SIMPLE and not (session is not None and session.in_tool_loop)
        fast = await fast_answer(stream.handler if straight else stream.draft)
        samples = [*fast, *([fast_answer.second] if fast_answer.second else [])]
        after = self._reconsider(run, decision, samples, routing)
        if after.path is not decision.path:
            run.report(after)
        return after

    def _asks_ahead(self, run: _Run) -> bool:
        """Return whether the fast model is asked while the difficulty is estimated, which hides that time.

        Not for a stream, which needs another kind of request, and not for a key that may not take every path,
        because its question may be rejected and must then cost nothing.
        """
        session, every_path = run.serving.session, len(run.serving.paths) == len(Path)
        single = run.stream.handler is None and run.team.query.options.n == 1
        if not self.warm or not single or not every_path or (session is not None and session.may_skip_fast):
            return False
        waits = run.aim.target is not None or self.certificate is not None
        return waits or not self.estimates.at_once(run.team.query)

    def _wants_second_sample(self, run: _Run) -> bool:
        """Return whether a second fast sample is bought: only the look at the fast answer uses it."""
        target, routing = run.aim.target, self.routing
        if target is not None and not target.allows_second_opinion:
            return False
        uses_posterior = routing.uses_posterior and routing.enabled and run.forced is None and not run.team.plain
        return uses_posterior and self.settings.routing.second_opinion and run.team.query.options.n == 1

    @observed("difficulty")
    async def _estimate(self, query: Query, ledger: Ledger, limits: tuple[float, ...]) -> Estimate:
        """Estimate d(x), given the turns before the question, as exactly as these limits need it."""
        if ledger.time_left() > 0 and self.estimates.at_once(query):
            return self.estimates.now(query, limits)
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
        if decision.path is Path.SIMPLE is not after.path:
            try:
                team.check(Role.SLOW)
            except OdarError as error:  # without a slow agent, the answer that exists is returned
                team.failures.append(Failure(Role.SLOW, error))
                return dataclasses.replace(after, path=Path.SIMPLE)
        return after

    async def _run_path(
        self, decision: Decision, team: Team, stream: StreamedAnswer, fast_answer: FastAnswer
    ) -> list[Candidate]:
        """Run the path (SPEC 1); if one agent fails, the other's answer is used (SPEC 6.3).

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
    return _default().ask(question, **options)


async def aask(question: str | Query, **options: Any) -> Answer:
    """Answer one question with the default settings, for async code; see `Odar.aask` for the options."""
    return await _default().aask(question, **options)


@cache
def _default() -> Odar:
    odar = Odar()
    atexit.register(odar.close)
    return odar


def _path(path: Path | str | None) -> Path | None:
    try:
        return None if path is None else Path(path)
    except ValueError:
        raise InputError(f"path {path!r} is not one of: {', '.join(Path)}") from None
