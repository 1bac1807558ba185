"""The gateway without HTTP: one engine for conversations, its models, access, limits, metrics and records."""

from __future__ import annotations

import asyncio
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
from odar.gateway.access import AccessPolicy, ConcurrencyLimit
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.logs import Logs
from odar.gateway.metrics import (
    Metrics,
    breaker_metrics,
    certificate_metrics,
    connection_metrics,
    drift_metrics,
    store_metrics,
    target_metrics,
)
from odar.gateway.records import Entry
from odar.gateway.server import ConnectionLimits
from odar.gateway.sessions import SessionTable
from odar.observer import tell
from odar.policy.target import Target
from odar.providers.base import Provider
from odar.providers.breaker import Breaker, GuardedProvider
from odar.secrets import api_key
from odar.settings import AgentSettings, ProviderSettings, Settings
from odar.store.keys import Key, KeyCache
from odar.store.store import Store
from odar.types import Path, Role

ADAPTIVE = "odar"
MAX_RETRY_AFTER_S = 2.0
"""Longest `retry-after` of a provider that the gateway waits for; otherwise its 429 is passed on."""
SESSION_TTL_S = 3600.0
"""Seconds after its last request that a conversation is kept."""
_CHECK_AGAIN_S = 30.0
_CHECK_TIMEOUT_S = 3.0
_BUILT_IN_ORIGINS = frozenset(f"profile {name}" for name in PROFILES)
_PATH_MODELS = {f"{ADAPTIVE}-{path}": path for path in Path}


class Service:
    """The parts of a gateway that all endpoints share.

    Args:
        settings: the user's settings; the engine gets `chat_settings` of them.
        store: keys and traces; without one, only this machine has access and no trace is kept.
        logs: receives a line for each request.
        engine_options: for `Odar`, such as ready-made providers.
    """

    def __init__(
        self, settings: Settings, store: Store | None = None, logs: Logs | None = None, **engine_options: Any
    ) -> None:
        self.settings = settings
        self.store = store
        self.logs = logs
        self.access = AccessPolicy(KeyCache() if store is None else store.key_cache, settings.gateway)
        self.concurrency_limit = ConcurrencyLimit(settings.gateway.max_in_flight)
        self.sessions = SessionTable(settings.gateway.sessions, SESSION_TTL_S)
        self.connections = ConnectionLimits(settings.gateway)
        self.breakers: dict[str, Breaker] = {}
        self.odar = Odar(chat_settings(settings), guard=self._with_breaker, **engine_options)
        agents = (name for role in Role for name in settings.models_of(role))
        self._known_models = frozenset(["", ADAPTIVE, *_PATH_MODELS, *settings.models, *agents])
        self.metrics = Metrics(self.concurrency_limit)
        self.metrics.add_source(connection_metrics, self.connections)
        self.metrics.add_source(breaker_metrics, self.breakers)
        self.metrics.add_source(drift_metrics, self.odar.alignment_report)
        self.metrics.add_source(target_metrics, self.odar.targets.report)
        if self.odar.certificate is not None:
            self.metrics.add_source(certificate_metrics, self.odar.certificate_problems)
        if store is not None:
            self.metrics.add_source(store_metrics, store.health)
        self._configured = configured_providers(settings) | set(engine_options.get("providers") or ())
        self._usable = {name: self.usable(name) for name in settings.models}
        self._unreachable: frozenset[str] = frozenset()
        """Providers that did not answer the last check."""
        self._checked_at = -math.inf

    async def models(self, key: Key | None = None) -> list[tuple[str, str]]:
        """Return the name and the owner of every model that this key can use and whose server answers."""
        await self._check_providers()
        paths = key.limits.paths if key is not None else None
        models = [(ADAPTIVE, "odar")]
        models += [(name, "odar") for name, path in _PATH_MODELS.items() if paths is None or path in paths]
        models += [(name, owner) for name, owner in self._usable_models() if owner not in self._unreachable]
        allowed = key.limits.models if key is not None else None
        return [(name, owner) for name, owner in models if allowed is None or name in allowed]

    def _usable_models(self) -> list[tuple[str, str]]:
        """Return the name and the provider of every usable model."""
        return [(name, self.settings.card(name).provider) for name, usable in self._usable.items() if usable]

    async def agent_status_lines(self) -> list[str]:
        """Return a line for each agent: its model answers, or why not."""
        lines = []
        for role in Role:
            card = self.settings.card(self.settings.agent(role).model)
            try:
                found = await self.odar.providers[card.provider].check(card.id)
                lines.append(f"{role} agent: {card.name} answers ({card.provider}: {found})")
            except OdarError as error:
                lines.append(f"{role} agent: {card.name} does not answer: {one_line(error)}")
        return lines

    async def _check_providers(self) -> None:
        """Update the list of unreachable providers, unless it is recent."""
        if time.monotonic() - self._checked_at < _CHECK_AGAIN_S:
            return
        self._checked_at = time.monotonic()

        async def answers(name: str) -> bool:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self.odar.providers[name].check()
            except (ProviderUnreachable, ProviderTimeout, SettingsError, TimeoutError):
                return False
            except ProviderError:
                pass  # the server answers, but rejects the request or has no list of models
            return True

        names = {provider for _, provider in self._usable_models()}
        reachable = await asyncio.gather(*map(answers, names))
        self._unreachable = frozenset(name for name, answered in zip(names, reachable, strict=True) if not answered)

    def route(self, request: ChatRequest, key: Key | None) -> dict[str, Any]:
        """Return the engine's options for a request; raise ApiError if the key or the model does not allow it."""
        options: dict[str, Any] = {}
        if key is not None:
            if key.limits.models is not None and request.model not in key.limits.models:
                raise ApiError(403, f"this key may not use model {request.model!r}", "model_not_allowed", "model")
            if key.limits.paths is not None:
                options["paths"] = key.limits.paths
        if request.model == ADAPTIVE:
            requested = request.extras.target
            target, scope = scoped_target(requested.to_target() if requested else None, key)
            return options | {"path": request.extras.path, "target": target, "target_scope": scope}
        path = _PATH_MODELS.get(request.model)
        if path is None:
            self._check_model(request.model)
            options["model"] = request.model
        else:
            self.check_path(path, key)
            options["path"] = path
        if request.extras.path is not None:
            raise bad_field("odar.path", f"needs model {ADAPTIVE!r}; {request.model!r} has no choice of path")
        return options

    def check_path(self, path: Path, key: Key | None) -> None:
        """Raise ApiError if the key does not allow a path."""
        if key is not None and key.limits.paths is not None and path.value not in key.limits.paths:
            message = f"this question takes the {path} path, which this key may not use"
            raise ApiError(403, message, "path_not_allowed", "odar.path")

    def finish(self, entry: Entry) -> None:
        """Count, log and store a request that has ended; the store also charges its key."""
        anonymous = entry if entry.model in self._known_models else entry.without_model_name()
        self.metrics.count(anonymous)
        tell({"http.response.status_code": entry.status, "odar.request_id": entry.request_id})
        if self.logs is not None:
            self.logs.request(anonymous)
        if self.store is not None and entry.query is not None:  # invalid requests must not fill the store
            stored = entry if self.settings.store.content else anonymous
            self.store.put(stored.record(self.settings.profile))

    async def close(self) -> None:
        """Write queued traces and close connections."""
        if self.store is not None:
            await self.store.close()
        await self.odar.aclose()

    async def mark(self, trace_id: str, correct: bool, note: str | None, key: Key | None) -> bool:
        """Mark an answer; return False if the trace is unknown or another key's. An admin's key may mark all."""
        if self.store is None:
            return False
        try:
            if key is not None and not key.admin and (await self.store.get(trace_id))["key_id"] != key.id:
                return False
            await self.store.mark(trace_id, correct, note, None if key is None else key.id)
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
        try:
            provider = self.settings.card(name).provider
        except UnknownName:
            provider = None
        if provider not in self._configured:
            message = f"there is no model {name!r}; GET /v1/models lists them"
            raise ApiError(404, message, "model_not_found", "model")
        if not self.usable(name):
            raise SettingsError(f"model {name!r} was requested, but no API key is set for provider {provider}")

    def _with_breaker(self, provider: Provider) -> Provider:
        gateway = self.settings.gateway
        breaker = Breaker(gateway.breaker_failures, gateway.breaker_cooldown_s)
        self.breakers[provider.name] = breaker
        return GuardedProvider(provider, breaker)


def scoped_target(requested: Target | None, key: Key | None) -> tuple[Target | None, str]:
    """Return the target of a request, and the scope of the requests that share it.

    A key's target is a limit: its requests can ask for less of the same kind, not for more.
    """
    if key is None:
        return requested, "request"
    limit = Target.from_options(calls=key.limits.target_calls, cost_usd=key.limits.target_cost_usd)
    if limit is None or (requested and requested.kind == limit.kind and requested.value < limit.value):
        return requested, f"request of key {key.id}"
    return limit, f"key {key.id}"


def configured_providers(settings: Settings) -> set[str]:
    """Return the providers that clients can use, out of all in the catalogue.

    The settings name it, define a model of it or use it for an agent, or its API key is set.
    """
    names = [*settings.models_of(Role.FAST), *settings.models_of(Role.SLOW)]
    names += [settings.fusion.surrogate] if settings.fusion.surrogate else []
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


def chat_settings(settings: Settings) -> Settings:
    """Return the settings for conversations: prompts that do not prescribe a format, and room for long answers.

    The agents' stop strings are part of ODAR's own answer format, and would cut a client's answers short.
    """
    gateway = settings.gateway

    def with_room(agent: AgentSettings) -> AgentSettings:
        return dataclasses.replace(
            agent,
            max_tokens=max(agent.max_tokens, gateway.max_tokens),
            timeout_s=max(agent.timeout_s, gateway.reply_timeout_s),
            stop=(),
        )

    retry = dataclasses.replace(
        settings.retry, max_retry_after_s=min(settings.retry.max_retry_after_s, MAX_RETRY_AFTER_S)
    )
    return dataclasses.replace(
        settings, prompts=gateway.prompts, fast=with_room(settings.fast), slow=with_room(settings.slow), retry=retry
    )
