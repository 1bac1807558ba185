"""The gateway without HTTP: the parts that all endpoints share, the rights of a request, and its record."""

from __future__ import annotations

from typing import Any

from odar.engine import Odar
from odar.errors import OdarError, SettingsError, one_line
from odar.observer import tell
from odar.options import AskOptions
from odar.policy.dial import Dial
from odar.providers.base import Provider
from odar.providers.breaker import Breaker
from odar.providers.http import HttpProvider
from odar.providers.pool import GuardedSend
from odar.served.alignment import DriftReport
from odar.serving.access import AccessPolicy
from odar.serving.concurrency import ConcurrencyLimit, PerKeyThreads
from odar.serving.connections import ConnectionLimits
from odar.serving.errors import ApiError, bad_field
from odar.serving.keys import NO_KEY, Key
from odar.serving.logs import Logs
from odar.serving.metrics import Metrics
from odar.serving.models import CASCADE_MODEL, DIAL_MODELS, PATH_MODELS, ServedModels
from odar.serving.observation import TrafficObserver
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.store import Store
from odar.serving.workers import Workers
from odar.settings import Settings
from odar.traces.observations import EVERY_KEY
from odar.traces.record import Record
from odar.types import CHEAP_AGENTS, Route

MAX_RETRY_AFTER_S = 2.0
"""Longest `retry-after` of a provider that the gateway waits for; otherwise its 429 is passed on."""
BODIES_IN_MEMORY = 8
"""Size of all concurrent requests together, in bodies of `gateway.max_body_mb`."""


class Service:
    """The parts of a gateway that all endpoints share.

    Args:
        settings: the user's settings.
        store: keys and traces.
        logs: receives a line for each request.
        workers: shared with the other workers of the gateway.
        engine_options: for `Odar`, such as ready-made providers.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        logs: Logs | None = None,
        workers: Workers | None = None,
        **engine_options: Any,
    ) -> None:
        self.settings = settings
        self.store = store
        self.logs = logs
        gateway = settings.gateway
        self.workers = workers or Workers(sessions=gateway.sessions)
        self.access = AccessPolicy(store.key_cache, gateway, self.workers)
        max_bytes = BODIES_IN_MEMORY * 1e6 * gateway.max_body_mb
        self.concurrency_limit = ConcurrencyLimit(gateway.max_in_flight, max_bytes=max_bytes, workers=self.workers)
        self.read_threads = PerKeyThreads("odar-reads", 2)
        """For the dashboard and feedback."""
        self.count_threads = PerKeyThreads("odar-counts", 2)
        """For counting tokens, and for decisions without a call."""
        self.sessions = self.workers.sessions
        self.sessions.stored = store.sessions
        anthropic = {name for name, provider in settings.providers.items() if provider.kind == "anthropic"}
        self.sessions.explicit_caches = anthropic
        self.connection_limits = ConnectionLimits(workers=self.workers)
        self.breakers: dict[str, Breaker] = {}
        self.odar = Odar(settings, guard=self._open_breaker, **engine_options)
        self.models = ServedModels(self.odar, engine_options.get("providers") or ())
        self.metrics = Metrics(self)
        self.traffic_observer = TrafficObserver(self.odar, store)
        if settings.observe.used_share and not settings.store.enabled:
            raise SettingsError("observe.enabled and observe.share need a store; set store.enabled = true")

    async def status_lines(self) -> list[str]:
        """A line for each agent (whether its model answers, or why not), and one if questions are observed."""
        lines = []
        for agent, (card, *_) in self.odar.agents.cards.items():
            try:
                found = await self.odar.agents.providers[card.provider].check(card.id)
                lines.append(f"{agent} agent: {card.name} answers ({card.provider}: {found})")
            except OdarError as error:
                lines.append(f"{agent} agent: {card.name} cannot be used: {one_line(error)}")
        if share := self.settings.observe.used_share:
            slow = self.settings.slow.model
            slow_answers = self.traffic_observer.passes_through(EVERY_KEY)
            agents = (slow, "the cascade") if slow_answers else ("the cascade", slow)
            budget = f"for at most ${self.settings.observe.budget_usd_day:g} a day (odar observe)"
            lines.append(f"{agents[0]} answers; a share of {share:g} is answered by {agents[1]} too, {budget}")
        return lines

    def route(self, request: ChatRequest, key: Key) -> AskOptions:
        """The engine's options for a request; raises ApiError if the key or the model does not allow it."""
        name = request.model
        requested = request.odar
        if key.models is not None and name not in key.models:
            raise ApiError(403, f"this key may not use model {name!r}", "model_not_allowed", "model")
        max_path = None if key.max_path is None else Route(key.max_path)
        dial = requested.read_dial()
        path = None if requested.path is None else Route(requested.path)
        if self._passes_through(name, key):
            return AskOptions(model=self.settings.slow.model, max_path=max_path)
        # which of the three: one model, a path of the paper, or the cascade at a dial
        if name not in DIAL_MODELS:
            if path is not None:
                raise bad_field("odar.path", f"needs model {CASCADE_MODEL!r}; {name!r} has no choice of path")
            path = PATH_MODELS.get(name)
            if path is None:
                self.models.check(name)
                self._check_agents(name, key)
                return AskOptions(model=name, max_path=max_path)
        elif (preset := DIAL_MODELS[name]) is not None:
            if dial is not None:
                raise bad_field("odar.dial", f"needs model {CASCADE_MODEL!r}; the dial of {name!r} is {preset}")
            dial = Dial.parse(preset)
        if path is not None and not key.allows_path(path):
            message = f"this question takes the {path} path, which this key may not use"
            raise ApiError(403, message, "path_not_allowed", "odar.path")
        dial, scope = scoped_dial(dial, key)
        return AskOptions(path=path, dial=dial, scope=scope, max_path=max_path)

    def _passes_through(self, model: str, key: Key) -> bool:
        """Whether a request to one of ODAR's models goes to slow unchanged; its key must allow a slow call."""
        routed = model in DIAL_MODELS or model in PATH_MODELS
        return routed and key.allows_path(Route.MEDIUM) and self.traffic_observer.passes_through(key.id)

    def _check_agents(self, model: str, key: Key) -> None:
        """Raise ApiError if the key allows only cheap agents and none of them has this model, under any name."""
        if key.max_path != Route.SIMPLE:
            return
        settings = self.settings
        requested = settings.card(model)
        agents = settings.agent_names
        cards = [(agent, settings.card(name)) for agent in agents for name in settings.models_of(agent)]
        same = [(agent, c) for agent, c in cards if (c.provider, c.id) == (requested.provider, requested.id)]
        is_cheap = any(agent in CHEAP_AGENTS and card.effort == requested.effort for agent, card in same)
        if not is_cheap and any(agent not in CHEAP_AGENTS for agent, _ in same):
            message = f"model {model!r} is the slow agent's, which this key may not ask"
            raise ApiError(403, message, "path_not_allowed", "model")

    def finish(self, record: Record) -> None:
        """Count, log and store a request that has ended; the store also charges its key."""
        anonymous = record if record.model in self.models.known_names else record.without_model_name()
        self.metrics.count(anonymous)
        tell({"http.response.status_code": record.http_status, "odar.request_id": record.request_id})
        if self.logs is not None:
            self.logs.request(anonymous)
        if record.query is not None:  # invalid requests must not fill the store
            stored = record if self.settings.store.content else anonymous
            self.store.put(stored.without_conversation())
        self.traffic_observer.offer(record)

    def drift_report(self) -> list[DriftReport]:
        """The served energies of each model; may read a file."""
        return self.odar.alignment.report(self.odar.agents.prompt_steps())

    async def close(self) -> None:
        await self.traffic_observer.close()
        await self.store.close()
        await self.odar.aclose()
        self.metrics.publish()

    def _open_breaker(self, provider: Provider) -> GuardedSend:
        if isinstance(provider, HttpProvider):
            provider.max_retry_after_s = MAX_RETRY_AFTER_S
        self.breakers[provider.name] = breaker = Breaker(provider.name)
        return breaker.call


def scoped_dial(requested: Dial | None, key: Key) -> tuple[Dial | None, str]:
    """The dial of a request, and the scope of its target: requests of one scope meet it on average.

    A key's target is a limit: its requests can have a lower target of the same kind, but no other dial.
    """
    if key is NO_KEY:
        return requested, "request"
    limit = Dial.from_options(target_calls=key.target_calls, target_cost_usd=key.target_cost_usd)
    if limit is None:
        return requested, f"request of key {key.id}"
    lower = requested and requested.target == limit.target and requested.target_value < limit.target_value
    return (requested, f"request of key {key.id}") if lower else (limit, f"key {key.id}")
