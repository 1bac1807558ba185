"""Query → plan: what is known before the first call.

Everything optional is settled here: the conversation, budgets, images and the context length change the prices or
the agents of a plan, so that the loop of the engine has no branch for them (SPEC 9.7). So is whether the installed
certificate of accuracy holds (SPEC 5.14).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from odar.agents.agents import Agents
from odar.agents.ledger import Ledger
from odar.agents.team import Team
from odar.background import FairExecutor, run_by_size, run_in_thread
from odar.calibration_file import FITTED, Calibration
from odar.call_prices import Lengths, call_prices, is_nominal, reference_price, usual_lengths, without_prompts
from odar.catalogue import ModelCard
from odar.difficulty.base import MAX_EARLIER_TURNS, Estimator, LengthEstimator, estimate_turn
from odar.errors import DeadlineExceeded, SettingsError
from odar.observer import observed
from odar.options import AskOptions
from odar.policy.base import Policy
from odar.policy.cascade import CascadePolicy
from odar.policy.dial import NAMES, Dial
from odar.policy.experts import assign
from odar.policy.kinds import Kind, request_kind
from odar.policy.session import SessionRequest
from odar.served.alignment import ServedAlignment
from odar.served.targets import ServedTargets
from odar.types import DIRECT, SLOW, Assignment, Estimate, Plan, Query

LONG_TEXT = 1_500
"""Length in characters above which a text is estimated in a thread; a shorter one takes less than a millisecond."""
ESTIMATOR_THREADS = 2
_DRIFT_CHECK_S = 60.0
"""Seconds between two checks for drift of the served energies."""
_log = logging.getLogger(__name__)


class AsyncEstimator:
    """Runs an estimator without blocking the event loop.

    Short texts are estimated in the event loop. Loading and long texts run in a thread, so that one long prompt
    does not delay other estimates. If the estimator fails, the `length` estimator answers and the estimate says so.
    """

    def __init__(self, estimator: Estimator, *, parse: bool = True) -> None:
        self._estimator = estimator
        self._parse = parse
        self.loaded = False
        self._loading = threading.Lock()
        self._threads = FairExecutor(ESTIMATOR_THREADS, "odar-estimate")

    async def estimate(self, query: Query) -> Estimate:
        """The difficulty of the last turn, given the earlier ones."""
        if self.is_instant(query):
            return self.estimate_now(query)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.estimate_now, query)

    def estimate_now(self, query: Query) -> Estimate:
        """The same, computed in the calling thread."""
        try:
            if not self.loaded:
                with self._loading:  # other questions wait for it
                    self._estimator.estimate(Query("Ready?"))
                    self.loaded = True
            return estimate_turn(self._estimator, query, parse=self._parse)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a tokenizer written in Rust can panic, which is not an `Exception`
            failure = f"estimator {self._estimator.name} failed ({type(error).__name__})"
            why = f"{failure}; the length of the question decided"
            _log.warning(why)
            return dataclasses.replace(LengthEstimator().estimate(query), fallback=why)

    def is_instant(self, query: Query) -> bool:
        """Whether an estimate takes less than a millisecond, so that it needs no thread."""
        return self.loaded and len(query.text) + sum(map(len, query.earlier[-MAX_EARLIER_TURNS:])) <= LONG_TEXT

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class InstalledCertificate:
    """The certificate of a calibration file, which `odar certify` wrote.

    The test certified every dial from the most expensive down to `points`, with the settings, models and prompts of
    that time. Others, or a drift of the served energies, remove it.

    Raises:
        SettingsError: it cannot be read.
    """

    def __init__(self, calibration: Calibration, agents: Agents, alignment: ServedAlignment) -> None:
        document = calibration.made["certificate"]
        self._fitted = calibration.settings
        self._agents = agents
        self._alignment = alignment
        self._drift: list[str] = []
        self._drift_check_at = 0.0
        try:
            self.points = msgspec.convert(document["points"], float)
            """The cheapest dial that was certified, in points of accuracy."""
            self.sources = msgspec.convert(document["sources"], list[dict[str, Any]])
            """Model, prompt and sampling of each step."""
            self.promise = (
                f"at most {document['at_most_worse']:g} less accurate than {document['against']}, "
                f"{document['confidence']:.0%} confidence"
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"{agents.settings.calibration}: its certificate cannot be read ({error!r}); "
                "run odar calibrate again"
            ) from None

    def status(self, plan: Plan, dial: Dial) -> str:
        """Whether it holds for one question, as shown in a trace; reads a small file once a minute."""
        problems = []
        if dial.target or dial.value_usd is not None or dial.points > self.points:
            problems.append(f"the dial is {dial}")
        if plan.forced:
            problems.append("the caller chose the path")
        if plan.models != {agent: card.name for agent, card in self._agents.default_cards.items()}:
            problems.append("other models")
        return self.describe(problems + self.problems())

    def describe(self, problems: Sequence[str]) -> str:
        return f"removed: {'; '.join(problems)}" if problems else f"holds: {self.promise}"

    def problems(self) -> list[str]:
        """Why it holds for no question: other settings, models or prompts, or drift."""
        used = {key: attrgetter(key)(self._agents.settings) for key in FITTED}
        changed = {key: value for key, value in self._fitted.items() if used[key] != value}
        reasons = [f"{key} = {used[key]} in place of {value}" for key, value in changed.items()]
        current = [dataclasses.asdict(source) for source in self._agents.sources().values()]
        if current != self.sources:
            reasons.append(f"another {_difference(self.sources, current)} than it was certified with")
        if time.monotonic() >= self._drift_check_at:
            self._drift_check_at = time.monotonic() + _DRIFT_CHECK_S
            rows = [row for row in self._alignment.report(self._agents.prompt_steps()) if row.drifting]
            self._drift = [f"the energies of {row.model} {row.step} drift" for row in rows]
        return reasons + self._drift


def _difference(certified: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]) -> str:
    """The first field in which two lists of sources differ."""
    names = {"prompt_md5": "prompt"}
    for before, after in zip(certified, current, strict=False):
        if before != after:
            return next((names.get(key, key) for key in before if before[key] != after.get(key)), "source")
    return "number of steps"


class Planner:
    """Chooses the agents of a question, and makes its plan.

    Args:
        agents: all agents, with the settings.
        estimator: estimates d(x).
        calibration: the usual lengths of each agent's prompts and answers.
        targets: what was spent under each target.
        certificate: the installed certificate, if there is one.
    """

    def __init__(
        self,
        agents: Agents,
        estimator: Estimator,
        calibration: Calibration,
        targets: ServedTargets,
        certificate: InstalledCertificate | None = None,
    ) -> None:
        settings = agents.settings
        self._agents = agents
        self._lengths = usual_lengths(agents.cards, calibration, agents.sources())
        self._targets = targets
        self._certificate = certificate
        # only the paper's thresholds need d to the last digit
        self.estimator = AsyncEstimator(estimator, parse=settings.policy == "paper")
        self._fallbacks = {name for agent in settings.agent_names for name in settings.agent(agent).fallbacks}
        self.reference_usd = reference_price(agents.default_cards)
        """Price of a slow call of ordinary length."""

    def takes_long(self, query: Query) -> bool:
        """Whether the plan of a query takes so long that a call should be started meanwhile."""
        return self.estimator.loaded and not self.estimator.is_instant(query)

    def team(self, query: Query, options: AskOptions) -> Team:
        """The agents for a question, with their models and its limits."""
        agents = self._agents
        ledger = options.ledger or agents.ledger(options.max_calls, options.max_cost_usd, options.deadline_s)
        if options.model is not None:
            team = agents.plain_team(query, options.model, ledger, options.seed)
            models = {DIRECT: team.cards[DIRECT].name}
            team.assignment = Assignment(cue="model named by the caller", models=models)
            return team
        assignment = self.assign(query, options.session)
        team = agents.team(query, ledger, options.seed, assignment.models)
        team.assignment = assignment
        team.known_reply = options.known_reply
        team.short = options.short
        return team

    def assign(self, query: Query, session: SessionRequest | None = None) -> Assignment:
        """The expert and the models; a conversation keeps its models while they can be used."""
        assignment = assign(query, self._agents.cards, fallbacks=self._fallbacks)
        if session is None or not session.session.requests:
            return assignment
        kept = {
            agent: name
            for agent, name in session.session.models.items()
            if agent in assignment.models
            and any(card.name == name and (card.images or not query.images) for card in self._agents.cards[agent])
        }
        return dataclasses.replace(assignment, models={**assignment.models, **kept})

    async def plan(self, team: Team, policy: Policy, options: AskOptions) -> Plan:
        """Make the plan of a team's question within its deadline; what takes long is done in threads."""
        query = team.query
        dial = self._agents.settings.dial(options.dial)
        factor = await run_in_thread(partial(self._targets.factor, options.scope, dial)) if dial.target else 1.0
        estimate = await self._estimate(query, team.ledger)
        # kind and prices; a single call gets the user's prompt unchanged, without the tokens of ours
        cards = {} if team.plain else team.cards
        opening = policy.opening
        unchanged = opening is not None and opening.final and not options.short
        lengths = without_prompts(self._lengths) if unchanged else self._lengths
        plan = make_plan(query, estimate, team.assignment, cards, dial, options.session, lengths)
        # what the dial and the limits of this request add
        money_limited = not team.plain and team.ledger.max_cost_usd is not None
        plan = dataclasses.replace(
            plan,
            value_usd=value_of(plan, dial, self.reference_usd) * factor,
            worst_usd=await run_by_size(query.estimated_tokens, team.worst_usd) if money_limited else {},
            policy=policy.name,
            max_path=options.max_path,
            forced=options.forced,
        )
        # so that the loop of the engine need not wait for them
        if isinstance(policy, CascadePolicy) and not policy.has_values(plan):
            await run_in_thread(partial(policy.values, plan))
        if self._certificate is None:
            return plan
        return dataclasses.replace(
            plan, certificate=await run_in_thread(partial(self._certificate.status, plan, dial))
        )

    @observed("difficulty")
    async def _estimate(self, query: Query, ledger: Ledger) -> Estimate:
        try:
            async with asyncio.timeout(ledger.time_left()) as timeout:
                return await self.estimator.estimate(query)
        except TimeoutError:
            if not timeout.expired():
                raise
            passed = f"the deadline of {ledger.deadline_s:g} s passed"
            raise DeadlineExceeded(f"{passed} before the question was looked at; ask again") from None


def make_plan(
    query: Query,
    estimate: Estimate,
    assignment: Assignment,
    cards: Mapping[str, ModelCard],
    dial: Dial,
    session: SessionRequest | None = None,
    lengths: Lengths | None = None,
) -> Plan:
    """Make the plan of a question from its difficulty: kind, prices and conversation.

    What depends on the request's policy and limits is missing: `value_usd` (see `value_of`), `worst_usd`, `policy`,
    `max_path` and `forced`. `cards` are the models of the assignment.
    """
    kind, plausible = request_kind(query)
    cached = {} if session is None else session.cached
    in_tool_loop = session is not None and session.in_tool_loop
    # no recording teaches p for tool calls, so a second opinion on them is only for those who ask for quality
    has_tools = kind is Kind.TOOL_CALL or bool(query.parameters.tools)
    one_tool_call = has_tools and dial.points > NAMES["quality"]
    one_call = kind is Kind.OPEN_ENDED or one_tool_call or in_tool_loop or query.parameters.n > 1
    lengths = without_prompts(lengths or {}) if one_call else lengths
    prices, sample_prices = call_prices(cards, query.estimated_tokens, cached, lengths)
    return Plan(
        estimate=estimate,
        assignment=assignment,
        kind=kind,
        plausible=plausible,
        one_call=one_call,
        loop_agent=session.session.agent if session is not None and in_tool_loop else "",
        n=query.parameters.n,
        prices=prices,
        sample_prices=sample_prices,
        nominal=is_nominal(cards),
        dial=str(dial),
        session=None if session is None else session.use(),
    )


def value_of(plan: Plan, dial: Dial, reference_usd: float) -> float:
    """V, what a right answer is worth, in the unit of the prices (SPEC 9.5).

    A request that takes one call is compared with a slow call of its own length if that is longer, so that a coding
    agent's long instructions do not make a hard task look worthless.
    """
    own = plan.prices.get(SLOW, 0.0) if plan.one_call else 0.0
    return dial.value(max(reference_usd, own))
