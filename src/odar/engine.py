"""The engine: query → difficulty → path → agents → fusion → answer, one step a line.

Read `Odar.aask` first; everything else in the package is one of its lines.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Self

from odar.agents.first import FirstAnswer
from odar.agents.judge import Judge
from odar.agents.ledger import Ledger, Limits
from odar.agents.prompts import load_prompts, prompt_steps
from odar.agents.scales import Scales
from odar.agents.stream import Stream
from odar.agents.surrogate import Surrogate
from odar.agents.team import Failure, Team
from odar.agents.together import both
from odar.agents.waves import Waves
from odar.background import run_in_background, run_in_thread
from odar.calibration_file import load_calibration
from odar.config import load_settings
from odar.difficulty.base import Estimator, open_estimator
from odar.errors import AllAgentsFailed, DeadlineExceeded, InputError, OdarError, ProviderError
from odar.estimation import InProcessEstimator
from odar.observer import Observer, observed, observing
from odar.policy.alignment import AlignmentRow, Source
from odar.policy.experts import Dispatcher
from odar.policy.fusion import Fusion
from odar.policy.path import Routing
from odar.policy.posterior import PosteriorDifficulty, features_of
from odar.policy.stopping import Stopping
from odar.providers.base import OnText, Provider, prepare_model
from odar.providers.observed import observed_guard
from odar.providers.pool import Guard, ProviderPool
from odar.question import check_length, check_text
from odar.settings import Settings
from odar.store.alignment import ServedAlignment
from odar.store.alignment_file import AlignmentFile
from odar.telemetry import telemetry_of
from odar.types import Answer, Assignment, Candidate, Decision, Estimate, Image, Path, Query, Role, Step, Trace


class Odar:
    """Answers questions with as much compute as each needs.

    Args:
        settings: from `load_settings`; None loads them with no arguments.
        providers: ready-made providers by name, in place of the configured ones.
        estimator: a difficulty estimator, in place of the configured one.
        guard: put around every provider, such as a circuit breaker.
        served: where served energies are kept between processes; None keeps them in memory.
        observer: watches every step; None: spans, where `telemetry.enabled` says so.

    Use it as a context manager, or call `close`, to let go of connections and weights.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        estimator: Estimator | None = None,
        guard: Guard | None = None,
        served: AlignmentFile | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings or load_settings()
        self.observer = observer or telemetry_of(self.settings)
        self.providers = ProviderPool(self.settings, providers, observed_guard(guard, self.observer))
        self.prompts = load_prompts(self.settings.prompts)
        self.plain_prompts = load_prompts("chat")
        routing, switches = self.settings.routing, self.settings.dispatch
        self.cards = {role: [self.settings.card(m) for m in self.settings.models_of(role)] for role in Role}
        self._contexts = {
            card.name: card.context for cards in self.cards.values() for card in cards if card.context
        }
        self.dispatcher = Dispatcher(self.cards, switches.expert, switches.models)
        self.routing = Routing.configured(routing, switches.strategy)
        self.calibration = load_calibration(fitted_in := self.settings.calibration)
        self.estimator = estimator or open_estimator(routing.estimator, self.calibration.estimator, fitted_in)
        self.estimates = InProcessEstimator(self.estimator)
        self.warm = False  # whether what the first question needs is loaded
        self.posterior = PosteriorDifficulty.fitted(self.calibration.posterior, fitted_in)
        fusion, calibrated = self.settings.fusion, self.calibration.statistics
        self.alignment = ServedAlignment(self.settings.alignment, calibrated, served)
        self.scales = Scales(fusion.varentropy_weight, self.alignment)
        scorers = ("", self.settings.card(fusion.surrogate).name) if fusion.surrogate else ("",)
        skills = {
            (card.name, step): known.skill
            for step in Step
            for card in self.cards[step.role]
            for scorer in scorers
            if (known := calibrated.find(self.source(card.name, step, scorer))) is not None
        }
        self.fusion = Fusion(fusion.rule, fusion.beta, fusion.missing_limit, skills)
        self.judge = Judge(self.fusion, self.scales, Surrogate.of(self.settings, self.scales, self.fusion))
        self.waves = Waves(Stopping(fusion.stop_confidence, fusion.first_wave), self.fusion.votes)

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
        ledger: Ledger | None = None,
        on_text: OnText | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        model: str | None = None,
        final: bool = False,
        trace_id: str | None = None,
        paths: Collection[str] = tuple(Path),
        max_path: Path | None = None,
    ) -> Answer:
        """Answer one question.

        Args:
            question: the text, or a whole `Query`.
            images: pictures that belong to it.
            path: simple, medium or hard; None lets the difficulty decide.
            seed: makes sampling repeatable where the provider can.
            max_calls: model invocations, at most.
            max_cost_usd: US dollars, at most.
            deadline_s: wall time, at most; what is finished by then is used.
            ledger: a bill to write on, from `ledger()`, in place of one made from the three limits.
            on_text: gets the text as it is generated, on the Simple path.
            on_decision: gets the decision as soon as it is made, and again if the fast answer changes it.
            model: ask this model plainly, with no settings, prompts or second opinion of ODAR's.
            final: what `on_text` got cannot be taken back: a failure after that is raised, not mended.
            trace_id: what to call the trace.
            paths: the only paths that a look at the fast answer may lead to.
            max_path: take this path where a dearer one was due; the trace says so.

        Raises:
            InputError: the question cannot be asked.
            BudgetExceeded: not even one call fits the limits.
            ProviderError: no agent produced an answer.
        """
        query, forced = self.checked(question, images, fit=model is None), _path(path)
        ledger = ledger or self.ledger(max_calls, max_cost_usd, deadline_s)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")

        assignment = self._assign(query, model)
        team, stream = self._assemble(assignment, query, ledger, seed), Stream(on_text, final=final)
        await self._prepare(team, Role.FAST)
        # a stream is asked for otherwise than an answer, and a key that may not take every path is looked at first
        ahead = self.warm and on_text is None and query.options.n == 1 and len(paths) == len(Path)
        try:
            async with FirstAnswer(team, ahead=ahead) as first:
                estimate = await self._estimate(
                    query, ledger, () if forced else self.routing.limits(assignment.expert)
                )
                decision = self._decide(estimate, assignment, forced)
                if max_path is not None:
                    paths = [path for path in paths if _ORDER[Path(path)] <= _ORDER[max_path]]
                    decision = _at_most(decision, max_path, team)
                if on_decision is not None:
                    on_decision(decision)
                team.check(*([Role.FAST] if decision.path is Path.SIMPLE else Role))
                if self._looks_first(decision, team):
                    fast = await first(stream.handler if decision.path is Path.SIMPLE else None)
                    before, decision = decision, self._reconsider(decision, fast, team, stream, paths)
                    if on_decision is not None and decision.path is not before.path:
                        on_decision(decision)
                if decision.path is not Path.SIMPLE:
                    await self._prepare(team, Role.SLOW)
                candidates = await self._take(decision, team, stream, first)
        except OdarError as error:
            error.spend = ledger.spend()
            raise
        candidates, verdict = await self.judge.decide(candidates, team)

        winner = candidates[verdict.winner]
        trace = Trace(
            id=trace_id or uuid.uuid4().hex,
            started_at=started_at,
            profile=self.settings.profile,
            decision=decision,
            candidates=tuple(candidates),
            verdict=verdict,
            calls=tuple(ledger.calls),
            spend=ledger.spend(),
            prompts=tuple((step.value, prompt.md5) for step, prompt in team.prompts.items()),
            degradations=tuple(
                dict.fromkeys(
                    filter(
                        None,
                        [decision.estimate.fallback, *team.notes, *map(str, team.failures), winner.fault],
                    )
                )
            ),
        )
        return Answer(winner.answer, winner.text, trace)

    def _assign(self, query: Query, model: str | None) -> Assignment:
        """Which models; where the caller names one, that one and nothing else."""
        if model is None:
            return self.dispatcher.assign(query)
        return Assignment(cue="model named by the caller", fast=self.settings.card(model).name)

    @observed("dispatch")
    def _decide(self, estimate: Estimate, assignment: Assignment, path: Path | None) -> Decision:
        """Which path, and with whom."""
        if assignment.slow:
            return self.routing.decide(estimate, assignment, path)
        return Decision(Path.SIMPLE, estimate, 0, assignment.cue, assignment)

    def _assemble(self, assignment: Assignment, query: Query, ledger: Ledger, seed: int | None) -> Team:
        """The agents that were assigned; a model that the caller named is asked plainly."""
        if assignment.slow:
            return self.team(query, ledger, seed, assignment)
        return self.plain_team(query, assignment.fast, ledger, seed)

    def plain_team(self, query: Query, model: str, ledger: Ledger | None = None, seed: int | None = None) -> Team:
        """The one model that the caller named, asked plainly."""
        cards = {Role.FAST: self.settings.card(model)}
        ledger = ledger or self.ledger()
        return Team(self.settings, cards, self.plain_prompts, self.providers, query, ledger, seed, plain=True)

    async def _prepare(self, team: Team, role: Role) -> None:
        """Download and load the role's model before its first use; the deadline does not run meanwhile."""
        started, card = team.ledger.clock(), team.cards[role]
        with contextlib.suppress(OdarError):  # a provider that cannot be opened is reported by the call
            await prepare_model(self.providers[card.provider], card.id)
        team.ledger.exclude(team.ledger.clock() - started)

    def _looks_first(self, decision: Decision, team: Team) -> bool:
        """Whether the fast answer is worth waiting for: it may change the path, and can be scored (SPEC 5.11)."""
        if team.plain or team.query.options.n > 1 or not self.routing.looks_first(decision):
            return False
        known = self.scales.known(Step.ANSWER, team)
        return known is not None and known.length_score(0) is not None

    @observed("posterior")
    def _reconsider(
        self, decision: Decision, fast: list[Candidate], team: Team, stream: Stream, paths: Collection[str]
    ) -> Decision:
        """The decision in the light of the fast answer; as it was where that says nothing, or is out for good."""
        known = self.scales.known(Step.ANSWER, team)
        energy = self.scales.weigh(fast[0], team).energy if fast else None
        if known is None or energy is None or energy.aligned is None or stream.committed:
            return decision
        length = known.length_score(sum(not token.control for token in fast[0].tokens))
        assert length is not None, "_looks_first saw to it"
        d = self.posterior.update(
            decision.estimate.difficulty,
            unsureness=energy.aligned,
            log_tokens=length,
            unanswered=not fast[0].stated,
            features=features_of(decision.estimate),
        )
        after = self.routing.reconsider(decision, d, paths)
        if decision.path is Path.SIMPLE is not after.path:
            try:
                team.check(Role.SLOW)
            except OdarError as error:  # a slow agent that cannot be had must not cost us the answer we have
                team.failures.append(Failure(Role.SLOW, error))
                return dataclasses.replace(after, path=Path.SIMPLE)
        return after

    async def _take(self, decision: Decision, team: Team, stream: Stream, first: FirstAnswer) -> list[Candidate]:
        """Walk the path (SPEC 1); where one agent fails, the other's answer stands (SPEC 6.3).

        A client that wants n answers gets n of the fast agent's (Simple), one verified n times (Medium), or the
        n best of at least n samples (Hard).
        """
        n = team.query.options.n
        match decision.path:
            case Path.SIMPLE:
                candidates = await first(stream.handler, n)
                if not candidates and not team.plain and not stream.committed:
                    await self._prepare(team, Role.SLOW)
                    candidates = await team.solve(n, stream.handler)
            case Path.MEDIUM:
                proposals = await first()
                candidates = proposals + await (team.verify(proposals[0], n) if proposals else team.solve(n))
            case Path.HARD:
                wanted = max(decision.samples, n)
                in_full = decision.forced or n > 1
                solve = team.solve(wanted) if in_full else self.waves.sample(team, wanted)
                proposals, slow = await both(first(), solve)
                candidates = proposals + slow
        if not candidates:
            causes = [failure.error for failure in team.failures]
            if team.plain or stream.committed:
                raise causes[0]
            if any(isinstance(cause, ProviderError) for cause in causes):
                raise AllAgentsFailed(map(str, team.failures), causes)
            raise causes[0]
        return candidates

    async def warm_up(self) -> None:
        """Load now what the first question would else wait for."""
        await asyncio.to_thread(self.alignment.load)
        await self.estimates(Query("Ready?"))
        self.warm = True

    @observed("difficulty")
    async def _estimate(self, query: Query, ledger: Ledger, limits: tuple[float, ...]) -> Estimate:
        """How hard it looks, given the turns before it; loading does not move the deadline."""
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

    def team(
        self, query: Query, ledger: Ledger, seed: int | None = None, assignment: Assignment | None = None
    ) -> Team:
        """The two agents for one query, with the models they were assigned, or else their default ones."""
        pair = {role: cards[0] for role, cards in self.cards.items()}
        if assignment is not None:
            names = {Role.FAST: assignment.fast, Role.SLOW: assignment.slow}
            pair = {role: next(c for c in self.cards[role] if c.name == name) for role, name in names.items()}
        seed = self.settings.seed if seed is None else seed
        return Team(self.settings, pair, self.prompts, self.providers, query, ledger, seed)

    def alignment_report(self) -> list[AlignmentRow]:
        """μ and σ of every source, calibrated and served, and whether the two drift apart; reads a small file."""
        return self.alignment.report(prompt_steps(self.settings.prompts, self.settings.gateway.prompts))

    def source(self, model: str, step: Step, scorer: str = "") -> Source:
        """What the free energies of a model's answers at one step depend on; `scorer` is a surrogate's name."""
        agent, weight = self.settings.agent(step.role), self.settings.fusion.varentropy_weight
        md5 = self.prompts[step].md5
        return Source(model, md5, agent.temperature, agent.top_p, agent.max_tokens, weight, scorer)

    def ledger(
        self, max_calls: int | None = None, max_cost_usd: float | None = None, deadline_s: float | None = None
    ) -> Ledger:
        """A new bill under the configured limits, tightened but never loosened by the request's own."""
        given = {"max_calls": max_calls, "max_cost_usd": max_cost_usd, "deadline_s": deadline_s}
        if bad := [f"{name} = {value}" for name, value in given.items() if value is not None and not value >= 0]:
            raise InputError(f"{bad[0]} is not a limit; it must be a number of at least 0")
        own = self.settings.limits
        limits = Limits(own.deadline_s, own.max_calls, own.max_cost_usd, self.settings.retry.per_question)
        return Ledger(limits.tightened(deadline_s, max_calls, max_cost_usd))

    def checked(self, question: str | Query, images: Iterable[Image] = (), *, fit: bool = True) -> Query:
        """The question with its images, as something that can be asked; `fit` is of every model it may go to."""
        query = question if isinstance(question, Query) else Query(question)
        if added := tuple(images):
            query = dataclasses.replace(query, images=(*query.images, *added))
        check_text(query.text, in_conversation=bool(query.turns))
        if fit:
            check_length(query, self._contexts)
        return query

    def ask(self, question: str | Query, **options: Any) -> Answer:
        """`aask` for code that is not async; works inside a running event loop too."""
        return run_in_background(self.aask(question, **options))

    async def aclose(self) -> None:
        """Let go of connections and weights."""
        self.estimates.close()
        await run_in_thread(self.alignment.close)
        await self.providers.close()

    def close(self) -> None:
        """`aclose` for code that is not async."""
        run_in_background(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


_ORDER = {path: place for place, path in enumerate(Path)}


def _at_most(decision: Decision, max_path: Path, team: Team) -> Decision:
    """The decision, or the dearest path that is allowed; the trace says so."""
    if _ORDER[decision.path] <= _ORDER[max_path]:
        return decision
    note = f"the {decision.path} path does not fit the budget; the {max_path} path was taken"
    team.notes.append(note)
    return dataclasses.replace(decision, path=max_path, reason=f"{decision.reason}; {note}")


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


def _path(path: Path | str | None) -> Path | None:
    try:
        return None if path is None else Path(path)
    except ValueError:
        raise InputError(f"path {path!r} is not one of: {', '.join(Path)}") from None
