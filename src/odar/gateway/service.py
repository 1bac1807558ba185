"""The gateway without HTTP: one engine set up for conversations, its models by name, its breakers, its record."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from functools import cached_property
from typing import Any

from odar.agents.ledger import Ledger
from odar.catalogue import ModelCard
from odar.config import PROFILES
from odar.engine import Odar
from odar.errors import KeyRefused, OdarError, SettingsError, UnknownName, one_line
from odar.gateway.access import AccessPolicy, Gate
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.logs import Logs
from odar.gateway.metrics import OTHER, Metrics
from odar.gateway.records import ApiKey, Entry, Keys, Recorder
from odar.gateway.reservations import needs_of, rate_headers
from odar.gateway.sessions import SessionTable
from odar.observer import tell
from odar.policy.target import Target
from odar.providers.base import Provider
from odar.providers.breaker import Breaker, GuardedProvider
from odar.secrets import api_key
from odar.settings import AgentSettings, ProviderSettings, Settings
from odar.store.budgets import Need, Reservation
from odar.store.store import Store
from odar.types import Decision, Path, Role

ADAPTIVE = "odar"
MAX_RETRY_AFTER_S = 2.0
"""Longest pause that a provider may ask for while a client waits; otherwise its 429 is passed on."""
SESSION_TTL_S = 3600.0
"""How long a conversation is remembered after its last request."""
_CHECK_AGAIN_S = 30.0
_CHECK_TIMEOUT_S = 3.0
_SHIPPED = frozenset(f"profile {name}" for name in PROFILES)
_FORCED = {f"{ADAPTIVE}-{path}": path for path in Path}


class Service:
    """What every endpoint shares.

    Args:
        settings: the user's own; agents get room for long answers, and prompts that leave their form alone.
        keys: who may ask; without one, this machine only.
        recorder: where traces go.
        traces: where they can be read again, for the dashboard.
        logs: where each question gets a line; without one, nowhere.
        engine_options: for `Odar`, such as ready-made providers.
    """

    def __init__(
        self,
        settings: Settings,
        keys: Keys | None = None,
        recorder: Recorder | None = None,
        traces: Store | None = None,
        logs: Logs | None = None,
        **engine_options: Any,
    ) -> None:
        self.settings = settings
        self.keys = keys or Keys()
        self.access = AccessPolicy(self.keys, settings.gateway)
        self.recorder = recorder or Recorder()
        self.traces = traces
        self.logs = logs
        self.gate = Gate(settings.gateway.max_in_flight)
        self.sessions = SessionTable(settings.gateway.sessions, SESSION_TTL_S)
        agents = (name for role in Role for name in settings.models_of(role))
        self._named_models = frozenset([*settings.models, *agents])
        self.metrics = Metrics(self.gate, self._named_models)
        self._configured = configured_providers(settings) | set(engine_options.get("providers") or ())
        self.breakers: dict[str, Breaker] = {}
        self.odar = Odar(for_chat(settings), guard=self._guarded, **engine_options)
        self.metrics.watch_energies(self.odar.alignment_report)
        self.metrics.watch_targets(self.odar.targets.report)
        if self.odar.certificate is not None:
            self.metrics.watch_certificate(self.odar.certificate_problems)
        self._unreachable: frozenset[str] = frozenset()
        """Providers that did not answer when they were last looked at."""
        self._checked_at: float | None = None
        self._known = {name: self._usable(settings.card(name)) for name in settings.models}

    def models(self, key: ApiKey | None = None) -> list[tuple[str, str]]:
        """Every name that this key can ask for, and who is behind it; not those whose server was not there."""
        own = [(name, "odar") for name in (ADAPTIVE, *_FORCED)]
        if key is not None and key.paths is not None:
            own = [(name, owner) for name, owner in own if _FORCED.get(name, ADAPTIVE) in {*key.paths, ADAPTIVE}]
        named = [(n, self.settings.card(n).provider) for n, usable in self._known.items() if usable]
        reachable = [(name, provider) for name, provider in named if provider not in self._unreachable]
        allowed = key.models if key is not None else None
        return [entry for entry in own + reachable if allowed is None or entry[0] in allowed]

    async def agent_lines(self) -> list[str]:
        """For each agent's model, one line: its server answers and has it, or what is missing."""
        self._checked_at = time.monotonic()
        await self._check_providers()
        lines = []
        for role in Role:
            card = self.settings.card(self.settings.agent(role).model)
            try:
                found = await self.odar.providers[card.provider].check(card.id)
                lines.append(f"{role} agent: {card.name} answers ({card.provider}: {found})")
            except OdarError as error:
                lines.append(f"{role} agent: {card.name} does not answer: {one_line(error)}")
        return lines

    async def refresh_reachable(self) -> None:
        """Look again which servers are there, if the last look is old; nothing before the first one."""
        if self._checked_at is not None and time.monotonic() - self._checked_at > _CHECK_AGAIN_S:
            self._checked_at = time.monotonic()
            await self._check_providers()

    async def _check_providers(self) -> None:
        usable = {self.settings.card(name).provider for name, usable in self._known.items() if usable}

        async def missing(name: str) -> str | None:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self.odar.providers[name].check()
            except (OdarError, TimeoutError):
                return name
            return None

        found = await asyncio.gather(*map(missing, sorted(usable)))
        self._unreachable = frozenset(name for name in found if name)

    def route(self, ask: ChatRequest, grant: ApiKey | None) -> dict[str, Any]:
        """How the engine is to be asked; refused where the key or the name does not allow it."""
        if grant is not None and grant.models is not None and ask.model not in grant.models:
            raise ApiError(403, f"this key may not use model {ask.model!r}", "model_not_allowed", "model")
        options: dict[str, Any] = {}
        if grant is not None and grant.paths is not None:
            options["paths"] = grant.paths
        if ask.model == ADAPTIVE:
            target, scope = scoped_target(ask.extras.target, grant)
            return options | {"path": ask.extras.path, "target": target, "target_scope": scope}
        how: dict[str, Any] = (
            {"path": _FORCED[ask.model]} if ask.model in _FORCED else {"model": self._named(ask.model)}
        )
        if ask.extras.path is not None:
            raise bad_field(
                "odar.path", f"goes with model {ADAPTIVE!r} only; {ask.model!r} leaves no choice of path"
            )
        return options | how

    def bill(self, ask: ChatRequest, reserved_usd: float | None = None) -> Ledger:
        """The bill of a request, under its own limits and what is reserved for it."""
        costs = (ask.extras.max_cost, reserved_usd)
        limit = min((cost for cost in costs if cost is not None), default=None)
        return self.odar.ledger(ask.extras.max_calls, limit, ask.extras.deadline_s)

    async def reserve(
        self, ask: ChatRequest, key: ApiKey, options: dict[str, Any], trace_id: str
    ) -> tuple[Reservation, Ledger, dict[str, Any]]:
        """Hold back the most that the request can cost: on the path it may take, or on a cheaper one that fits.

        Raises:
            ApiError: 403 where a price is unknown, 429 where nothing fits.
        """
        offers = needs_of(self.odar, ask.query, options, priced=key.budgeted)
        own = min(
            (x for x in (ask.extras.max_cost, self.settings.limits.max_cost_usd) if x is not None), default=None
        )
        needs = [need if own is None else Need(min(need.usd, own), need.tokens) for _, need in offers]
        ledger = self.bill(ask)
        try:
            held = await self.keys.reserve(key, trace_id, needs, ledger.limits.deadline_s)
        except KeyRefused as refused:
            told = rate_headers(refused.rates)
            raise ApiError(
                429, str(refused), "key_limit", retry_after=refused.retry_after, more_headers=told
            ) from None
        path = offers[held.choice][0] if held.choice else None
        limited = {"max_path": path} if path is not None else {}
        return held, self.bill(ask, held.need.usd if key.budgeted else None), options | limited

    def settle(self, held: Reservation, key: ApiKey, ledger: Ledger) -> None:
        """Charge what was spent; where a cost is unknown, what was reserved for that call."""
        spend = ledger.spend()
        tokens = None
        if spend.usage.input is not None and spend.usage.output is not None:
            tokens = spend.usage.input + spend.usage.output
        self.keys.settle(held, ledger.charged_usd() if key.budgeted else spend.cost_usd, tokens)

    def check_path(self, decision: Decision, grant: ApiKey | None) -> None:
        """Refuse a path that the key does not allow, before anything is spent on it."""
        if grant is not None and grant.paths is not None and decision.path.value not in grant.paths:
            message = f"this question takes the {decision.path} path, which this key may not use"
            raise ApiError(403, message, "path_not_allowed", "odar.path")

    def finish(self, entry: Entry) -> None:
        """Count it, and write it down: what it cost is booked on its key there."""
        if not self.settings.store.content and entry.model not in self._own_names:
            entry = without_model_name(entry)
        self.metrics.count(entry)
        tell({"http.response.status_code": entry.status, "odar.request_id": entry.request_id})
        if self.logs is not None:
            self.logs.request(entry)
        if entry.query is not None:  # what never became a question is only counted, or a flood would fill the store
            self.recorder.put(entry)

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return self._named_models | {"", ADAPTIVE, *_FORCED}

    async def close(self) -> None:
        """Write what is queued, let go of connections."""
        await self.recorder.close()
        await self.odar.aclose()

    async def may_see(self, trace_id: str, grant: ApiKey | None) -> bool:
        """Whether a trace is this key's own; an admin sees all, and so does this machine where no keys exist."""
        if grant is None or grant.admin or self.traces is None:
            return True
        try:
            return bool((await self.traces.get(trace_id))["key_id"] == grant.key_id)
        except UnknownName:
            return False

    def usable(self, name: str) -> bool:
        """Whether a model of the catalogue can be asked: its provider is configured and has its key."""
        return self._known.get(name) or self._usable(self.settings.card(name))

    def _named(self, name: str) -> str:
        try:
            card = self.settings.card(name)
        except UnknownName:
            card = None
        if card is None or card.provider not in self._configured:
            raise ApiError(
                404, f"there is no model {name!r}; GET /v1/models lists them", "model_not_found", "model"
            )
        usable = self._known.get(name)
        if usable is None:
            usable = self._usable(card)
        if not usable:
            raise SettingsError(
                f"model {name!r} is asked for, and the key of provider {card.provider} cannot be had"
            )
        return name

    def _usable(self, card: ModelCard) -> bool:
        provider = self.settings.providers.get(card.provider)
        if provider is None or card.provider not in self._configured:
            return False
        try:
            return not provider.api_key_env or api_key(card.provider, provider) is not None
        except SettingsError:
            return False

    def _guarded(self, provider: Provider) -> Provider:
        gateway = self.settings.gateway
        breaker = Breaker(gateway.breaker_failures, gateway.breaker_cooldown_s)
        self.breakers[provider.name] = breaker
        self.metrics.watch(provider.name, breaker)
        return GuardedProvider(provider, breaker)


def scoped_target(wanted: Target | None, key: ApiKey | None) -> tuple[Target | None, str]:
    """The target of a request, and whose questions meet it together.

    A key's target is a limit: its requests can ask for less of the same kind, not for more.
    """
    own = None if key is None else key.target
    whose = "" if key is None else f" of key {key.key_id}"
    if own is None:
        return wanted, f"request{whose}"
    if wanted is not None and wanted.kind == own.kind and wanted.value < own.value:
        return wanted, f"request{whose}"
    return own, f"key {key.key_id}" if key else ""


def configured_providers(settings: Settings) -> set[str]:
    """The providers that clients may reach: those that the operator configured, not all that the catalogue knows.

    That is: the settings name it, define a model of it or use it for an agent, or its key is set.
    """
    names = [*settings.models_of(Role.FAST), *settings.models_of(Role.SLOW)]
    names += [settings.fusion.surrogate] if settings.fusion.surrogate else []
    found = {settings.card(name).provider for name in names}
    for path, origin in settings.origins.items():
        if origin == "catalogue" or origin in _SHIPPED:
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
        return True  # a key was configured, and cannot be read: that is said when it is needed


def without_model_name(entry: Entry) -> Entry:
    """The entry of a request that named a model outside the settings: the name is text of the client's."""
    error = None if entry.error is None else entry.error.partition(":")[0]
    calls = tuple(dataclasses.replace(call, model=OTHER) for call in entry.calls)
    trace, decision = entry.trace, entry.decision
    if trace is not None:
        trace = dataclasses.replace(
            trace,
            decision=_without_model(trace.decision),
            candidates=tuple(dataclasses.replace(each, model=OTHER) for each in trace.candidates),
            calls=tuple(
                dataclasses.replace(call, model=OTHER, error=call.error and "error") for call in trace.calls
            ),
            degradations=tuple(each.replace(entry.model, OTHER) for each in trace.degradations),
        )
    if decision is not None:
        decision = _without_model(decision)
    return dataclasses.replace(entry, model=OTHER, error=error, calls=calls, trace=trace, decision=decision)


def _without_model(decision: Decision) -> Decision:
    return dataclasses.replace(decision, assignment=dataclasses.replace(decision.assignment, fast=OTHER))


def for_chat(settings: Settings) -> Settings:
    """The settings for conversations: a client's answers may be long, and have the form the client wants.

    The agents' stop strings are part of ODAR's own answer format, and would cut a client's answers short.
    """
    gateway = settings.gateway

    def roomy(agent: AgentSettings) -> AgentSettings:
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
        settings, prompts=gateway.prompts, fast=roomy(settings.fast), slow=roomy(settings.slow), retry=retry
    )
