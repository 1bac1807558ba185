"""The gateway without HTTP: one engine set up for conversations, its models by name, its breakers, its record."""

from __future__ import annotations

import dataclasses
from typing import Any

from odar.agents.ledger import Ledger
from odar.catalogue import ModelCard
from odar.engine import Odar
from odar.errors import SettingsError, UnknownName
from odar.gateway.access import AccessPolicy
from odar.gateway.chat_request import ChatRequest
from odar.gateway.errors import ApiError, bad_field
from odar.gateway.gate import Gate
from odar.gateway.logs import Logs
from odar.gateway.metrics import Metrics
from odar.gateway.ports import ApiKey, Entry, Keyring, NoKeys, NoRecord, Recorder, Traces
from odar.observer import tell
from odar.providers.base import Provider
from odar.providers.breaker import Breaker, GuardedProvider
from odar.secrets import api_key
from odar.settings import AgentSettings, Settings
from odar.types import Decision, Path

ADAPTIVE = "odar"
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
        keys: Keyring | None = None,
        recorder: Recorder | None = None,
        traces: Traces | None = None,
        logs: Logs | None = None,
        **engine_options: Any,
    ) -> None:
        self.settings = settings
        self.keys: Keyring = keys or NoKeys()
        self.access = AccessPolicy(self.keys, settings.gateway)
        self.recorder: Recorder = recorder or NoRecord()
        self.traces = traces
        self.logs = logs
        self.gate = Gate(settings.gateway.max_in_flight)
        self.metrics = Metrics(self.gate)
        self.breakers: dict[str, Breaker] = {}
        self.odar = Odar(for_chat(settings), guard=self._guarded, **engine_options)
        self.metrics.watch_energies(self.odar.alignment_report)
        self._known = {name: self._usable(settings.card(name)) for name in settings.models}

    def models(self) -> list[tuple[str, str]]:
        """Every name that can be asked for, and who is behind it."""
        own = [(name, "odar") for name in (ADAPTIVE, *_FORCED)]
        return own + [(n, self.settings.card(n).provider) for n, usable in self._known.items() if usable]

    def route(self, ask: ChatRequest, grant: ApiKey | None) -> dict[str, Any]:
        """How the engine is to be asked; refused where the key or the name does not allow it."""
        if grant is not None and grant.models is not None and ask.model not in grant.models:
            raise ApiError(403, f"this key may not use model {ask.model!r}", "model_not_allowed", "model")
        options: dict[str, Any] = {}
        if grant is not None and grant.paths is not None:
            options["paths"] = grant.paths
        if ask.model == ADAPTIVE:
            return options | {"path": ask.extras.path}
        how: dict[str, Any] = (
            {"path": _FORCED[ask.model]} if ask.model in _FORCED else {"model": self._named(ask.model)}
        )
        if ask.extras.path is not None:
            raise bad_field(
                "odar.path", f"goes with model {ADAPTIVE!r} only; {ask.model!r} leaves no choice of path"
            )
        return options | how

    def bill(self, ask: ChatRequest, grant: ApiKey | None) -> Ledger:
        """The bill of a request, under its own limits and what is left of its key's budget."""
        costs = (ask.extras.max_cost, None if grant is None else grant.left_usd)
        limit = min((cost for cost in costs if cost is not None), default=None)
        return self.odar.ledger(ask.extras.max_calls, limit, ask.extras.deadline_s)

    def check_path(self, decision: Decision, grant: ApiKey | None) -> None:
        """Refuse a path that the key does not allow, before anything is spent on it."""
        if grant is not None and grant.paths is not None and decision.path.value not in grant.paths:
            message = f"this question takes the {decision.path} path, which this key may not use"
            raise ApiError(403, message, "path_not_allowed", "odar.path")

    def finish(self, entry: Entry) -> None:
        """Count it, and write it down: what it cost is booked on its key there."""
        self.metrics.count(entry)
        tell({"http.response.status_code": entry.status, "odar.request_id": entry.request_id})
        if self.logs is not None:
            self.logs.request(entry)
        if entry.query is not None:  # what never became a question is only counted, or a flood would fill the store
            self.recorder.put(entry)

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
        if card is None:
            raise ApiError(
                404, f"there is no model {name!r}; GET /v1/models lists them", "model_not_found", "model"
            )
        usable = self._known.get(name)
        if usable is None:
            usable = self._usable(card)
        if not usable:
            variable = self.settings.providers[card.provider].api_key_env
            message = f"model {name!r} needs a key for {card.provider}: set {variable} where the gateway runs"
            raise ApiError(404, message, "model_not_found", "model")
        return name

    def _usable(self, card: ModelCard) -> bool:
        provider = self.settings.providers.get(card.provider)
        if provider is None:
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
        settings.retry, max_retry_after_s=min(settings.retry.max_retry_after_s, gateway.max_retry_after_s)
    )
    return dataclasses.replace(
        settings, prompts=gateway.prompts, fast=roomy(settings.fast), slow=roomy(settings.slow), retry=retry
    )
