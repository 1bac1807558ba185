"""Builds the parts of an engine from the settings. `odar.engine` shows how a question passes through them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Self

from odar.agents.flow import Sampler
from odar.agents.ledger import Ledger, Limits
from odar.agents.prompts import load_prompts, prompt_steps
from odar.agents.scoring import EnergyScorer, Judge, LLMJudge, Surrogate
from odar.agents.team import Team
from odar.background import run_in_background, run_in_thread
from odar.calibration_file import FITTED, load_calibration
from odar.config import load_settings
from odar.conversation import NO_OPTIONS
from odar.difficulty.base import MAX_EARLIER_TURNS, Estimator, LengthEstimator, estimate_turn, open_estimator
from odar.errors import InputError
from odar.inputs import check_length, check_text
from odar.observer import Observer
from odar.policy.alignment import AlignmentRow, Source
from odar.policy.certificate import InstalledCertificate
from odar.policy.experts import Dispatcher
from odar.policy.fusion import Fusion
from odar.policy.path import Routing
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.similarity import prepare_similarity
from odar.policy.stopping import Stopping
from odar.policy.target import Target, ThresholdPath
from odar.providers.base import Provider, Request
from odar.providers.pool import Guard, ProviderPool, observed_guard
from odar.settings import Settings
from odar.store.alignment import ServedAlignment
from odar.store.targets import ServedTargets, targets_file
from odar.telemetry import telemetry_observer
from odar.types import Assignment, Decision, Estimate, Image, Query, Role, Step

LONG_TEXT = 1_500
"""Length in characters above which a text is estimated in a thread; a shorter one takes less than a millisecond."""
THREADS = 2
MAX_RETRIES = 6
"""Maximum number of retries of all calls of one question."""
_DRIFT_CHECK_S = 60.0
"""Seconds between two checks of a certificate for drift of the served energies."""
_log = logging.getLogger(__name__)


class InProcessEstimator:
    """Runs an estimator for the engine.

    Short texts are estimated in the event loop. Loading and long texts run in a thread, so that one long prompt
    does not delay other estimates. If the estimator fails, the `length` estimator answers and the estimate says so.
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._loaded = False
        self._loading = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, "odar-estimate")

    async def __call__(self, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
        """Return the estimate of the last turn, given the earlier ones.

        It is exact if d could lie on either side of one of the `thresholds`, and always exact without thresholds.
        """
        if self.is_fast(query):
            return self.estimate(query, thresholds)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.estimate, query, thresholds)

    def estimate(self, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
        """Return the estimate, computed in the calling thread."""
        try:
            if not self._loaded:
                with self._loading:  # other questions wait for it
                    self._estimator.estimate(Query("Ready?"))
                    self._loaded = True
            return estimate_turn(self._estimator, query, thresholds)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a tokenizer written in Rust can panic, which is not an `Exception`
            name, kind = self._estimator.name, type(error).__name__
            _log.warning("estimator %s failed (%s); the length of the question decides", name, kind)
            why = f"estimator {name} failed ({kind}); the length of the question decided"
            return dataclasses.replace(LengthEstimator().estimate(query), fallback=why)

    def is_fast(self, query: Query) -> bool:
        """Return whether the estimate is fast enough for the event loop."""
        return self._loaded and len(query.text) + sum(map(len, query.earlier[-MAX_EARLIER_TURNS:])) <= LONG_TEXT

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Components:
    """The parts of an engine.

    Args:
        settings: from `load_settings`; None loads them with no arguments.
        providers: providers by name, in place of the configured ones.
        estimator: a difficulty estimator, in place of the configured one.
        guard: a wrapper for every provider, such as a circuit breaker.
        served: the file of served energies, shared by processes; None keeps them in memory.
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
        self.settings = settings or load_settings()
        self.observer = observer or telemetry_observer(self.settings)
        self.warm = False
        """Whether everything that the first question needs is loaded."""
        limits = self.settings.limits
        self._limits = Limits(limits.deadline_s, limits.max_calls, limits.max_cost_usd, MAX_RETRIES)

        # models and prompts
        self._request_templates: dict[tuple[Role, str], Request] = {}
        self.providers = ProviderPool(self.settings, providers, observed_guard(guard, self.observer))
        self.prompts = load_prompts(self.settings.prompts)
        self.plain_prompts = load_prompts("chat")
        self.cards = {role: [self.settings.card(m) for m in self.settings.models_of(role)] for role in Role}
        longest = [max(cards, key=lambda card: card.context or math.inf) for cards in self.cards.values()]
        self._contexts = {card.name: card.context for card in longest if card.context}
        dispatch = self.settings.dispatch
        fallbacks = {*self.settings.fast.fallbacks, *self.settings.slow.fallbacks}
        self.dispatcher = Dispatcher(self.cards, dispatch.expert, dispatch.models, fallbacks)

        # difficulty → path
        routing, file = self.settings.routing, self.settings.calibration
        self.calibration = load_calibration(file)
        self.estimator = estimator or open_estimator(routing.estimator, self.calibration.estimator, file)
        self.estimates = InProcessEstimator(self.estimator)
        self.posterior = PosteriorDifficulty.load(self.calibration.posterior, file)
        self.routing = Routing.from_settings(routing, dispatch.strategy)
        self.target = Target.from_options(calls=routing.target_calls, cost_usd=routing.target_cost_usd)
        threshold_path = ThresholdPath.medium_first(routing.tau1, routing.tau2)
        self.targets = ServedTargets(threshold_path, (1.0, 2.0, 1.0 + routing.samples), targets_file(served))
        self.certificate = InstalledCertificate.from_dict(self.calibration.made.get("certificate"), file)
        self._drift: list[str] = []
        self._drift_check_at = 0.0

        # candidates → energies → answer
        fusion, calibrated = self.settings.fusion, self.calibration.statistics
        self.alignment = ServedAlignment(self.settings.alignment, calibrated, served)
        self.scorer = EnergyScorer(fusion.varentropy_weight, self.alignment)
        scorers = ("", self.settings.card(fusion.surrogate).name) if fusion.surrogate else ("",)
        skills = {
            (card.name, step): known.skill
            for step in Step
            for card in self.cards[step.role]
            for scorer in scorers
            if (known := calibrated.get(self.source(card.name, step, scorer))) is not None
        }
        prepare_similarity(fusion.similarity)
        self.fusion = Fusion(fusion.rule, fusion.beta, skills, fusion.similarity)
        surrogate = Surrogate.from_settings(self.settings, self.scorer, self.fusion)
        self.judge = Judge(self.fusion, self.scorer, surrogate, LLMJudge.from_settings(self.settings, self.fusion))
        self.sampler = Sampler(Stopping(fusion.stop_confidence, fusion.first_wave), self.fusion)

    async def warm_up(self) -> None:
        """Load everything that the first question needs."""
        await asyncio.to_thread(self.alignment.warm_up)
        await self.estimates(Query("Ready?"))
        self.warm = True

    def team(
        self, query: Query, ledger: Ledger, seed: int | None = None, assignment: Assignment | None = None
    ) -> Team:
        """Return the two agents for one query, with the assigned models or their default models."""
        pair = {role: cards[0] for role, cards in self.cards.items()}
        if assignment is not None:
            names = {Role.FAST: assignment.fast, Role.SLOW: assignment.slow}
            pair = {role: next(c for c in self.cards[role] if c.name == name) for role, name in names.items()}
        team = Team(self.settings, pair, self.prompts, self.providers, query, ledger)
        team.seed = self.settings.seed if seed is None else seed
        if query.options is NO_OPTIONS and seed is None:
            team.request_templates = self._request_templates
        return team

    def plain_team(self, query: Query, model: str, ledger: Ledger | None = None, seed: int | None = None) -> Team:
        """Return a single agent that passes a request through, without ODAR's prompts and settings."""
        cards = {Role.FAST: self.settings.card(model)}
        ledger = ledger or self.ledger()
        return Team(self.settings, cards, self.plain_prompts, self.providers, query, ledger, seed, plain=True)

    def source(self, model: str, step: Step, scorer: str = "") -> Source:
        """Return the source of free energies of a model at one step; `scorer` names a surrogate."""
        agent, weight = self.settings.agent(step.role), self.settings.fusion.varentropy_weight
        md5 = self.prompts[step].md5
        return Source(model, md5, agent.temperature, agent.top_p, agent.max_tokens, weight, scorer)

    def ledger(
        self, max_calls: int | None = None, max_cost_usd: float | None = None, deadline_s: float | None = None
    ) -> Ledger:
        """Return a new ledger with the configured limits, which a request can lower but not raise."""
        if max_calls is None and max_cost_usd is None and deadline_s is None:
            return Ledger(self._limits)
        given = {"max_calls": max_calls, "max_cost_usd": max_cost_usd, "deadline_s": deadline_s}
        if bad := [f"{name} = {value}" for name, value in given.items() if value is not None and not value >= 0]:
            raise InputError(f"{bad[0]} is not a limit; it must be a number of at least 0")
        return Ledger(self._limits.tightened(deadline_s, max_calls, max_cost_usd))

    def make_query(
        self, question: str | Query, images: Iterable[Image] = (), *, check_context: bool = True
    ) -> Query:
        """Return the question with its images; raise InputError if it is not valid, or too long for the models."""
        query = question if isinstance(question, Query) else Query(question)
        if added := tuple(images):
            query = dataclasses.replace(query, images=(*query.images, *added))
        check_text(query.text, in_conversation=bool(query.turns))
        if check_context:
            check_length(query, self._contexts)
        return query

    def alignment_report(self) -> list[AlignmentRow]:
        """Return μ and σ of every source, calibrated and served, and whether they drift; can read a small file."""
        return self.alignment.report(prompt_steps(self.settings.prompts, self.settings.gateway.prompts))

    def certificate_state(self, decision: Decision, target: Target | None) -> str:
        """Return whether the installed certificate holds for one question; reads a small file once a minute."""
        assert self.certificate is not None
        problems = []
        if target is not None:
            problems.append(f"a target of {target} chose the thresholds")
        if decision.forced:
            problems.append("the caller chose the path")
        default_pair = tuple(cards[0].name for cards in self.cards.values())
        if (decision.assignment.fast, decision.assignment.slow) != default_pair:
            problems.append("another pair of models")
        return self.certificate.state(problems + self.certificate_problems())

    def certificate_problems(self) -> list[str]:
        """Return why the installed certificate does not hold: other settings, models or prompts, or drift."""
        certificate = self.certificate
        if certificate is None:
            return []
        used = {key: attrgetter(key)(self.settings) for key in FITTED}
        sources = [self.source(self.cards[step.role][0].name, step) for step in Step]
        if time.monotonic() >= self._drift_check_at:
            self._drift_check_at = time.monotonic() + _DRIFT_CHECK_S
            rows = [row for row in self.alignment_report() if row.drifting]
            self._drift = [f"the energies of {row.model} {row.step} drift" for row in rows]
        experts = bool(self.settings.routing.tau1_by_expert or self.settings.routing.tau2_by_expert)
        fixed = certificate.violations(self.calibration.settings, used, map(dataclasses.asdict, sources), experts)
        return fixed + self._drift

    @property
    def learning_certificate(self) -> InstalledCertificate | None:
        """The certificate within which feedback moves the thresholds; None if feedback does not move them."""
        learns = self.settings.routing.learn and self.certificate is not None and not self.certificate_problems()
        return self.certificate if learns else None

    def use_learned(self, t: float) -> None:
        """Use the certified thresholds at t from the next question on."""
        if self.certificate is not None:
            self.routing = dataclasses.replace(self.routing, thresholds=self.certificate.thresholds(t))

    async def aclose(self) -> None:
        """Close connections and unload models."""
        self.estimates.close()
        await run_in_thread(self.alignment.close)
        await run_in_thread(self.targets.close)
        await self.providers.close()

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
