"""The engine: question → plan → stages, while another call is worth its price → answer. Start at `Odar.aask`.

Every decision is one call into `odar.policy`. What is optional (a conversation, a budget, images, a certificate)
changes the plan before the loop, or reads the trace after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Self, Unpack

from odar.agents.agents import Agents
from odar.agents.measure import count_served, size_of, state_after
from odar.agents.stream import StreamedAnswer
from odar.agents.team import Team
from odar.background import run_by_size, run_in_background, run_in_thread
from odar.calibration_file import load_calibration
from odar.config import load_settings
from odar.decisions import DryRun, GivenAnswers, NextStep, read_answers
from odar.difficulty.base import Estimator, open_estimator
from odar.errors import OdarError
from odar.inputs import Question, make_query
from odar.observer import Observer, observed
from odar.options import DEFAULT_OPTIONS, AskKeywords, AskOptions
from odar.planning import InstalledCertificate, Planner
from odar.policy.base import Policy
from odar.policy.cascade import CascadePolicy
from odar.policy.fusion import Fusion
from odar.policy.kinds import Kind, request_kind
from odar.policy.policies import choose_policy, forced_policy, rate_agents
from odar.providers.base import Provider
from odar.providers.pool import Guard
from odar.served.agreement import ServedAgreement
from odar.served.alignment import ServedAlignment
from odar.served.counts import sibling_file
from odar.served.targets import ServedTargets
from odar.settings import Settings
from odar.telemetry import telemetry_observer
from odar.traces.trace import make_trace
from odar.types import Answer, Decision, Query, State, Verdict


class Odar:
    """Answers questions with as much compute as each is worth.

    Args:
        settings: from `load_settings`; None loads them with no arguments.
        providers: providers by name, in place of the configured ones.
        estimator: a difficulty estimator, in place of the configured one.
        guard: stands between the engine and every provider, such as a circuit breaker.
        served: the file of statistics of served answers, shared by processes; None keeps them in memory.
        observer: receives an event for every step of a question; None: OpenTelemetry spans if `telemetry.enabled`.

    Use it as a context manager, or call `close`, to close connections and unload models.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        estimator: Estimator | None = None,
        guard: Guard | None = None,
        served: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.settings = settings = settings or load_settings()
        self.observer = observer or telemetry_observer(settings)
        self.calibration = calibration = load_calibration(settings.calibration)
        self.agents = Agents(settings, providers, guard)
        self.estimator = estimator or open_estimator(settings.routing.estimator)
        # measured by a calibration
        sources = self.agents.sources()
        self.fusion = Fusion.from_settings(settings.fusion, calibration.statistics, sources)
        self.rated_agents = rate_agents(settings, calibration, sources)
        # learned from served answers; skills only if no calibration has measured them
        self.alignment = ServedAlignment(calibration.statistics, served)
        self.targets = ServedTargets(sibling_file(served, "targets"))
        models = {agent: card.name for agent, card in self.agents.default_cards.items()}
        belief = None if calibration.has_skills else calibration.load_belief()
        self.agreement = ServedAgreement(self.rated_agents, models, belief, sibling_file(served, "agreement"))
        # used for every question
        choose = partial(choose_policy, settings, calibration, self.rated_agents)
        self._choose_policy = lru_cache(64)(choose)  # one for each set of skills learned from traffic
        self.certificate = None
        if calibration.made.get("certificate"):
            self.certificate = InstalledCertificate(calibration, self.agents, self.alignment)
        self.planner = Planner(self.agents, self.estimator, calibration, self.targets, self.certificate)

    @observed("query", outermost=True)
    async def aask(
        self, question: Question, options: AskOptions = DEFAULT_OPTIONS, **keywords: Unpack[AskKeywords]
    ) -> Answer:
        """Answer one question.

        Args:
            question: the text; or messages, as `[{"role": "user", "content": "…"}]`; or a whole `Query`.
            options: see `AskOptions`; as keywords, they can be given one by one, such as `max_calls=3`.

        Raises:
            InputError: the question cannot be asked.
            BudgetExceeded: not even one call fits the limits.
            ProviderError: no agent produced an answer.
        """
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        options = replace(options, **keywords)
        policy, team = self._open(question, options)
        ledger = team.ledger
        stream = StreamedAnswer(options.on_text, options.on_delta, progress=options.progress)
        decisions: list[Decision] = []
        try:
            # the plan; if it takes long, the call that every question begins with starts before it
            opening = policy.opening
            single = team.query.parameters.n == 1 and options.on_delta is None
            if opening is not None and single and self.planner.takes_long(team.query):
                team.ask_early(opening)
            plan = await self.planner.plan(team, policy, options)
            state = State(plan, calls_left=ledger.calls_left(), usd_left=ledger.usd_left())
            # stage after stage, until the policy stops
            while True:
                decision = self._decide(policy, state, options)
                decisions.append(decision)
                if (stage := decision.stage) is None:
                    break
                if not state.stages:  # before any call is paid for
                    team.check(*(stage.agents if decision.final else team.cards))
                team.final = decision.final
                stream.announce(decision, plan)
                proposal = policy.leading_candidate(state)
                candidates = await team.ask(stage, proposal, stream.handler_of(decision))
                if stream.committed and not candidates:  # no other agent can continue this text
                    raise team.error()
                measure = partial(state_after, state, stage, candidates, team, self.alignment)
                state = await run_by_size(size_of(state.candidates) + size_of(candidates), measure)
            # the winner
            if not state.candidates:
                raise team.error()
            verdict = await run_by_size(size_of(state.candidates), partial(self._verdict, policy, team, state))
            stream.finish(state.candidates[verdict.winner].text)
        except OdarError as error:
            await team.close()  # a call that was started early and is cancelled now may cost something too
            error.spend = ledger.spend()
            raise
        finally:
            await team.close()
            self.targets.count(options.scope, self.settings.dial(options.dial), ledger.spend())
        count_served(state.candidates, team, self.alignment)
        trace = make_trace(options, started_at, self.settings.profile, state, decisions, verdict, team)
        return Answer(trace.winner.text, trace.winner.answer, trace)

    async def adecide(
        self,
        question: Question,
        answers: GivenAnswers = (),
        options: AskOptions = DEFAULT_OPTIONS,
        **keywords: Unpack[AskKeywords],
    ) -> NextStep:
        """Decide without any call: the stage to ask next, or to stop and which answer to take.

        `answers` are all answers so far, see `GivenAnswer`. The limits of `options` hold for all calls of the
        question together. The rest is as for `aask`; an invalid answer raises InputError.
        """
        options = replace(options, **keywords)
        given = read_answers(answers)
        policy, team = self._open(question, options)
        team.check_images(*team.cards)
        plan = await self.planner.plan(team, policy, options)
        dry_run = DryRun(policy, team, self.alignment, partial(self._verdict, policy, team))
        return await dry_run.next_step(plan, given)

    def policy(self, options: AskOptions = DEFAULT_OPTIONS, query: Query | None = None) -> Policy:
        """The policy of one question: that of the settings, a path of the paper, or one model."""
        if options.forced:
            return forced_policy(self.settings, options.path, options.model)
        prefer_cascade = options.dial is not None
        if query is not None and self.settings.fixed_stages:
            prefer_cascade = prefer_cascade or request_kind(query).kind is Kind.OPEN_ENDED
        return self._choose_policy(self.agreement.skills(), prefer_cascade)

    def _open(self, question: Question, options: AskOptions) -> tuple[Policy, Team]:
        """Check the question, and choose its policy and agents."""
        query = make_query(question, options.images, {} if options.model else self.agents.contexts)
        policy = self.policy(options, query)
        team = self.planner.team(query, options)
        # a cascade has the skills that traffic corrected
        team.rated = policy.agents if isinstance(policy, CascadePolicy) else self.rated_agents
        return policy, team

    @observed("decision")
    def _decide(self, policy: Policy, state: State, options: AskOptions) -> Decision:
        """Ask the policy, and report its decision to the caller."""
        decision = policy.next_stage(state)
        if options.on_decision is not None:
            options.on_decision(decision, state.plan)
        return decision

    @observed("fusion")
    def _verdict(self, policy: Policy, team: Team, state: State) -> Verdict:
        """The winner: by the policy's own belief if it has one, else by the fusion rule."""
        return policy.verdict(state) or self.fusion.choose(state.candidates, team.query.text)

    async def warm_up(self) -> None:
        """Load everything that the first question needs."""
        await run_in_thread(self.alignment.read)
        await run_in_thread(self.agreement.sync)
        await self.planner.estimator.estimate(Query("Ready?"))

    async def aclose(self) -> None:
        """Close connections and unload models."""
        self.planner.estimator.close()
        for counts in (self.alignment, self.agreement, self.targets):
            await run_in_thread(counts.close)
        await self.agents.providers.close()

    def ask(
        self, question: Question, options: AskOptions = DEFAULT_OPTIONS, **keywords: Unpack[AskKeywords]
    ) -> Answer:
        """Call `aask` from code that is not async; this also works inside a running event loop."""
        return run_in_background(self.aask(question, options, **keywords))

    def decide(
        self,
        question: Question,
        answers: GivenAnswers = (),
        options: AskOptions = DEFAULT_OPTIONS,
        **keywords: Unpack[AskKeywords],
    ) -> NextStep:
        """Call `adecide` from code that is not async."""
        return run_in_background(self.adecide(question, answers, options, **keywords))

    def close(self) -> None:
        """Call `aclose` from code that is not async."""
        run_in_background(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
