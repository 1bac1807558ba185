"""The gateway without HTTP: one engine for conversations, its models, access, limits, metrics and records."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from typing import Any

from odar.config import PROFILES
from odar.engine import Odar
from odar.errors import (
    OdarError,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    SettingsError,
    UnknownName,
    one_line,
)
from odar.observer import tell
from odar.options import AskOptions
from odar.policy.alignment import AlignmentRow
from odar.policy.dial import Dial
from odar.providers.base import Provider
from odar.providers.breaker import BREAKER_STATES, Breaker, BreakerReport, GuardedProvider
from odar.providers.http import HttpProvider
from odar.secrets import api_key
from odar.serving.access import AccessPolicy, ConcurrencyLimit
from odar.serving.errors import ApiError, bad_field
from odar.serving.keys import Key, KeyCache
from odar.serving.logs import Logs
from odar.serving.metrics import Metrics
from odar.serving.observation import TrafficObserver
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.server import ConnectionLimits
from odar.serving.store import Store
from odar.serving.turns import Turns
from odar.serving.workers import PUBLISH_S, Workers
from odar.settings import ProviderSettings, Settings
from odar.traces.observations import EVERY_KEY
from odar.traces.record import Record
from odar.types import CHEAP_AGENTS, Route

ADAPTIVE = "odar"
MAX_RETRY_AFTER_S = 2.0
"""Longest `retry-after` of a provider that the gateway waits for; otherwise its 429 is passed on."""
BODIES_IN_MEMORY = 8
"""Size of all concurrent requests together, in bodies of `gateway.max_body_mb`."""
_CHECK_AGAIN_S = 30.0
_CHECK_TIMEOUT_S = 3.0
_BUILT_IN_ORIGINS = frozenset(f"profile {name}" for name in PROFILES)
DIAL_MODELS = {ADAPTIVE: None, f"{ADAPTIVE}-economy": "economy", f"{ADAPTIVE}-quality": "quality"}
"""Models whose stages ODAR chooses, and their dial; None is the one of the request or the settings."""
_PATH_MODELS = {f"{ADAPTIVE}-{path}": path for path in Route}
"""The paths of the paper (SPEC 1)."""


class Service:
    """The parts of a gateway that all endpoints share.

    Args:
        settings: the user's settings; the engine waits less long for a provider that is too busy.
        store: keys and traces; without one, only this machine has access and no trace is kept.
        logs: receives a line for each request.
        workers: shared with the other workers of the gateway.
        engine_options: for `Odar`, such as ready-made providers.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        logs: Logs | None = None,
        workers: Workers | None = None,
        **engine_options: Any,
    ) -> None:
        self.settings = settings
        self.store = store
        self.logs = logs
        gateway = settings.gateway
        self.workers = workers or Workers(sessions=gateway.sessions)
        keys = KeyCache() if store is None else store.key_cache
        self.access = AccessPolicy(keys, gateway, self.workers)
        max_bytes = BODIES_IN_MEMORY * 1e6 * gateway.max_body_mb
        self.concurrency_limit = ConcurrencyLimit(gateway.max_in_flight, max_bytes=max_bytes, workers=self.workers)
        self.reads = Turns("odar-reads", 2)
        """Of the dashboard and of feedback."""
        self.counts = Turns("odar-counts", 2)
        """Of tokens; and decisions without a call."""
        self.sessions = self.workers.sessions
        self.sessions.stored = None if store is None else store.sessions
        self.sessions.explicit = {name for name, each in settings.providers.items() if each.kind == "anthropic"}
        self.connections = ConnectionLimits(workers=self.workers)
        self.breakers: dict[str, Breaker] = {}
        self.odar = Odar(settings, guard=self._with_breaker, **engine_options)
        agents = (name for agent in settings.agent_names for name in settings.models_of(agent))
        models = dict.fromkeys([*settings.models, *agents])
        self._known_models = frozenset(["", *DIAL_MODELS, *_PATH_MODELS, *models])
        self.metrics = Metrics(self.concurrency_limit, self.workers, self)
        self.observer = None
        if store is not None and settings.store.enabled:
            self.observer = TrafficObserver(self.odar, store)
        elif settings.observe.used_share:
            raise SettingsError("observe.enabled and observe.share need a store; set store.enabled = true")
        self._configured = configured_providers(settings) | set(engine_options.get("providers") or ())
        self._usable = {name: self.usable(name) for name in models}
        self._unreachable: frozenset[str] = frozenset()
        """Providers that did not answer the last check."""
        self._checked_at = -math.inf

    async def models(self, key: Key | None = None) -> list[str]:
        """Return the name of every model that this key can use and whose server answers."""
        await self._check_providers()
        models = [*DIAL_MODELS, *(name for name, path in _PATH_MODELS.items() if _allows(key, path))]
        models += [name for name, owner in self._usable_models() if owner not in self._unreachable]
        allowed = key.limits.models if key is not None else None
        return [name for name in models if allowed is None or name in allowed]

    def model_facts(self, name: str) -> dict[str, Any]:
        """Return what a model can do, its price, and its role in the cascade; ODAR's own models have all roles."""
        settings = self.settings
        roles = {agent: settings.models_of(agent) for agent in settings.agent_names}
        own = name in DIAL_MODELS or name in _PATH_MODELS
        cards = [settings.card(model) for model in (models[0] for models in roles.values())] if own else []
        cards = cards or [settings.card(name)]
        contexts = [card.context for card in cards]
        kinds = {provider.kind for card in cards if (provider := settings.providers.get(card.provider))}
        price = None if own else cards[0].price
        return {
            "owned_by": "odar" if own else cards[0].provider,
            "context_length": None if None in contexts else max(filter(None, contexts)),
            "input_modalities": ["text", "image"] if any(card.images for card in cards) else ["text"],
            "tools": kinds != {"local"},  # models in this process get none
            "logprobs": any(card.logprobs for card in cards),
            "price": price and {**dataclasses.asdict(price), "unit": "USD per million tokens"},
            "price_date": None if own else cards[0].price_date,
            "agents": [agent for agent, models in roles.items() if own or name in models],
        }

    def _usable_models(self) -> list[tuple[str, str]]:
        return [(name, self.settings.card(name).provider) for name, usable in self._usable.items() if usable]

    async def status_lines(self) -> list[str]:
        """Return a line for each agent, its model answers or why not, and one if questions are observed."""
        lines = []
        for agent, (card, *_) in self.odar.agents.cards.items():
            try:
                found = await self.odar.agents.providers[card.provider].check(card.id)
                lines.append(f"{agent} agent: {card.name} answers ({card.provider}: {found})")
            except OdarError as error:
                lines.append(f"{agent} agent: {card.name} cannot be used: {one_line(error)}")
        if self.observer is not None and (share := self.settings.observe.used_share):
            slow = self.settings.slow.model
            who, other = (slow, "the cascade") if self.observer.passes_through(EVERY_KEY) else ("the cascade", slow)
            most = f"for at most ${self.settings.observe.budget_usd_day:g} a day (odar observe)"
            lines.append(f"{who} answers; a share of {share:g} is answered by {other} too, {most}")
        return lines

    def alignment_report(self) -> list[AlignmentRow]:
        """Return the served energies of each model; can read a file."""
        return self.odar.alignment.report(self.odar.agents.prompt_steps())

    async def _check_providers(self) -> None:
        """Update the list of unreachable providers, unless it is recent."""
        if time.monotonic() - self._checked_at < _CHECK_AGAIN_S:
            return
        self._checked_at = time.monotonic()

        async def answers(name: str) -> bool:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self.odar.agents.providers[name].check()
            except (ProviderUnreachable, ProviderTimeout, SettingsError, TimeoutError):
                return False
            except ProviderError:
                pass  # the server answers, but rejects the request or has no list of models
            return True

        names = {provider for _, provider in self._usable_models()}
        reachable = await asyncio.gather(*map(answers, names))
        self._unreachable = frozenset(name for name, answered in zip(names, reachable, strict=True) if not answered)

    def route(self, request: ChatRequest, key: Key | None) -> AskOptions:
        """Return the engine's options for a request; raise ApiError if the key or the model does not allow it."""
        name, extras = request.model, request.extras
        if key is not None and key.limits.models is not None and name not in key.limits.models:
            raise ApiError(403, f"this key may not use model {name!r}", "model_not_allowed", "model")
        max_path = None if key is None or key.limits.max_path is None else Route(key.limits.max_path)
        dial, path = extras.read_dial(), None if extras.path is None else Route(extras.path)
        if self._passes_through(name, key):
            return AskOptions(model=self.settings.slow.model, max_path=max_path)
        if name not in DIAL_MODELS:
            if path is not None:
                raise bad_field("odar.path", f"needs model {ADAPTIVE!r}; {name!r} has no choice of path")
            path = _PATH_MODELS.get(name)
            if path is None:
                self._check_model(name)
                self._check_agents(name, key)
                return AskOptions(model=name, max_path=max_path)
        elif (preset := DIAL_MODELS[name]) is not None:
            if dial is not None:
                raise bad_field("odar.dial", f"needs model {ADAPTIVE!r}; the dial of {name!r} is {preset}")
            dial = Dial.parse(preset)
        if path is not None and not _allows(key, path):
            message = f"this question takes the {path} path, which this key may not use"
            raise ApiError(403, message, "path_not_allowed", "odar.path")
        dial, scope = scoped_dial(dial, key)
        return AskOptions(path=path, dial=dial, scope=scope, max_path=max_path)

    def _passes_through(self, model: str, key: Key | None) -> bool:
        """Return whether a request to one of ODAR's models goes to slow unchanged; keys must allow a slow call."""
        routed = model in DIAL_MODELS or model in _PATH_MODELS
        if not routed or self.observer is None or not _allows(key, Route.MEDIUM):
            return False
        return self.observer.passes_through(None if key is None else key.id)

    def _check_agents(self, model: str, key: Key | None) -> None:
        """Raise ApiError if no cheap agent has this model, under any name, and the key may not ask the others."""
        if key is None or key.limits.max_path != Route.SIMPLE:
            return
        settings = self.settings
        asked = settings.card(model)
        agents = settings.agent_names
        named = [(agent, settings.card(name)) for agent in agents for name in settings.models_of(agent)]
        same = [(agent, card) for agent, card in named if (card.provider, card.id) == (asked.provider, asked.id)]
        cheap = any(agent in CHEAP_AGENTS and card.effort == asked.effort for agent, card in same)
        if not cheap and any(agent not in CHEAP_AGENTS for agent, _ in same):
            message = f"model {model!r} is the slow agent's, which this key may not ask"
            raise ApiError(403, message, "path_not_allowed", "model")

    def finish(self, record: Record) -> None:
        """Count, log and store a request that has ended; the store also charges its key."""
        anonymous = record if record.model in self._known_models else record.without_model_name()
        self.metrics.count(anonymous)
        tell({"http.response.status_code": record.http_status, "odar.request_id": record.request_id})
        if self.logs is not None:
            self.logs.request(anonymous)
        if self.store is not None and record.query is not None:  # invalid requests must not fill the store
            stored = record if self.settings.store.content else anonymous
            self.store.put(stored.without_conversation())
        if self.observer is not None:
            self.observer.offer(record)

    def breaker_reports(self) -> dict[str, BreakerReport]:
        """Return the circuit breaker of each provider that was used; of several workers' the worst."""
        reports = {name: breaker.report() for name, breaker in self.breakers.items()}
        for other in self.metrics.breakers_elsewhere():
            for name, report in other.items():
                known = reports.get(name, report)
                reports[name] = max(known, report, key=lambda each: BREAKER_STATES.index(each.state))
        return reports

    def publish(self) -> None:
        """Show the counts and breakers of this worker to the others."""
        self.workers.publish(self.metrics.snapshot({name: each.report() for name, each in self.breakers.items()}))

    async def keep_publishing(self) -> None:
        """Show them again every second, until it is cancelled."""
        while self.workers.count > 1:
            self.metrics.count_tasks()
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    async def close(self) -> None:
        if self.observer is not None:
            await self.observer.close()
        if self.store is not None:
            await self.store.close()
        await self.odar.aclose()
        if self.workers.count > 1:
            self.publish()

    async def mark(self, trace_id: str, correct: bool, note: str | None, key: Key | None) -> bool:
        """Mark an answer; return False if the trace is unknown or another key's. An admin's key may mark all."""
        if self.store is None:
            return False
        try:
            if key is not None and not key.admin and (await self.store.get(trace_id))["key_id"] != key.id:
                return False
            await self.store.mark(trace_id, correct, note)
        except UnknownName:
            return False
        return True

    def usable(self, name: str) -> bool:
        """Return whether a model of the catalogue can be used: its provider is configured and has its key."""
        card = self.settings.card(name)
        provider = self.settings.providers.get(card.provider)
        if provider is None or card.provider not in self._configured:
            return False
        try:
            return not provider.api_key_env or api_key(card.provider, provider) is not None
        except SettingsError:
            return False

    def _check_model(self, name: str) -> None:
        if self._usable.get(name):
            return
        message = f"there is no model {name!r}; GET /v1/models lists them"
        with contextlib.suppress(UnknownName, SettingsError):
            if self.usable(name):  # provider/model
                return
            provider = self.settings.providers.get(self.settings.card(name).provider)
            if provider is not None and provider.api_key_env:
                message = f"model {name!r} cannot be used: {provider.api_key_env} is not set for `odar serve`"
        raise ApiError(404, message, "model_not_found", "model")

    def _with_breaker(self, provider: Provider) -> Provider:
        if isinstance(provider, HttpProvider):
            provider.retry = dataclasses.replace(provider.retry, max_retry_after_s=MAX_RETRY_AFTER_S)
        self.breakers[provider.name] = breaker = Breaker()
        return GuardedProvider(provider, breaker)


def _allows(key: Key | None, path: Route) -> bool:
    """Return whether a key may use a path."""
    paths = list(Route)
    most = None if key is None else key.limits.max_path
    return most is None or paths.index(path) <= paths.index(Route(most))


def scoped_dial(requested: Dial | None, key: Key | None) -> tuple[Dial | None, str]:
    """Return the dial of a request, and the scope of the requests that meet its target together.

    A key's target is a limit: its requests can have a lower target of the same kind, but no other dial.
    """
    if key is None:
        return requested, "request"
    limits = key.limits
    limit = Dial.from_options(target_calls=limits.target_calls, target_cost_usd=limits.target_cost_usd)
    if limit is None:
        return requested, f"request of key {key.id}"
    lower = requested and requested.target == limit.target and requested.target_value < limit.target_value
    return (requested, f"request of key {key.id}") if lower else (limit, f"key {key.id}")


def configured_providers(settings: Settings) -> set[str]:
    """Return the providers that clients can use, out of all in the catalogue.

    The settings name it, define a model of it or use it for an agent, or its API key is set.
    """
    names = {name for agent in settings.agent_names for name in settings.models_of(agent)}
    found = {settings.card(name).provider for name in names}
    for path, origin in settings.origins.items():
        if origin == "catalogue" or origin in _BUILT_IN_ORIGINS:
            continue
        if path[0] == "providers":
            found.add(path[1])
        elif path[0] == "models":
            found.add(settings.models[path[1]].provider)
    return found | {name for name, provider in settings.providers.items() if _has_key(name, provider)}


def _has_key(name: str, provider: ProviderSettings) -> bool:
    try:
        return api_key(name, provider) is not None
    except SettingsError:
        return True  # a key is configured but cannot be read: reported when it is needed
