"""The models that clients can name: which there are, which of them can be used now, and what they can do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Collection
from typing import Any

from odar.config import PROFILES
from odar.engine import Odar
from odar.errors import ProviderError, ProviderTimeout, ProviderUnreachable, SettingsError, UnknownName
from odar.secrets import api_key
from odar.serving.errors import ApiError
from odar.serving.keys import Key
from odar.settings import ProviderSettings, Settings
from odar.types import Route

CASCADE_MODEL = "odar"
DIAL_MODELS = {CASCADE_MODEL: None, f"{CASCADE_MODEL}-economy": "economy", f"{CASCADE_MODEL}-quality": "quality"}
"""Models whose stages ODAR chooses, and their dial; None is the one of the request or the settings."""
PATH_MODELS = {f"{CASCADE_MODEL}-{path}": path for path in Route}
"""The paths of the paper (SPEC 1)."""
_CHECK_AGAIN_S = 30.0
_CHECK_TIMEOUT_S = 3.0
_BUILT_IN_ORIGINS = frozenset(f"profile {name}" for name in PROFILES)


class ServedModels:
    """ODAR's own models (`DIAL_MODELS`, `PATH_MODELS`) and those of the settings.

    `ready_providers` were given to the engine ready-made.
    """

    def __init__(self, odar: Odar, ready_providers: Collection[str] = ()) -> None:
        self._settings = settings = odar.settings
        self._providers = odar.agents.providers
        self._configured = configured_providers(settings) | set(ready_providers)
        agents = (name for agent in settings.agent_names for name in settings.models_of(agent))
        named = dict.fromkeys([*settings.models, *agents])
        self.known_names = frozenset(["", *DIAL_MODELS, *PATH_MODELS, *named])
        """Names that are not made up by a client; the empty one is of requests that could not be read."""
        self._usable = {name: settings.card(name).provider for name in named if self.is_usable(name)}
        """The provider of every usable model of the settings."""
        self._unreachable: frozenset[str] = frozenset()
        """Providers that did not answer the last check."""
        self._checked_at = -math.inf
        self._started = int(time.time())

    async def listed(self, key: Key) -> list[str]:
        """The name of every model that this key can use and whose server answers."""
        await self._check_providers()
        names = [*DIAL_MODELS, *(name for name, path in PATH_MODELS.items() if key.allows_path(path))]
        names += [name for name, provider in self._usable.items() if provider not in self._unreachable]
        return [name for name in names if key.models is None or name in key.models]

    def entry(self, name: str) -> dict[str, Any]:
        """A model as SDKs read it, with the properties by which a client may choose it (SPEC 11.3).

        ODAR's own models have all roles in the cascade.
        """
        settings = self._settings
        roles = {agent: settings.models_of(agent) for agent in settings.agent_names}
        own = name in DIAL_MODELS or name in PATH_MODELS
        cards = [settings.card(model) for model in (models[0] for models in roles.values())] if own else []
        cards = cards or [settings.card(name)]
        contexts = [card.context for card in cards]
        kinds = {provider.kind for card in cards if (provider := settings.providers.get(card.provider))}
        price = None if own else cards[0].price
        return {
            "id": name,
            "object": "model",
            "type": "model",
            "display_name": name,
            "created": self._started,
            "owned_by": "odar" if own else cards[0].provider,
            "context_length": None if None in contexts else max(filter(None, contexts)),
            "input_modalities": ["text", "image"] if any(card.images for card in cards) else ["text"],
            "tools": kinds != {"local"},  # models in this process get none
            "logprobs": any(card.logprobs for card in cards),
            "price": price and {**dataclasses.asdict(price), "unit": "USD per million tokens"},
            "price_date": None if own else cards[0].price_date,
            "agents": [agent for agent, models in roles.items() if own or name in models],
        }

    def is_usable(self, name: str) -> bool:
        """Whether a model of the catalogue can be used: its provider is configured and has its key."""
        card = self._settings.card(name)
        provider = self._settings.providers.get(card.provider)
        if provider is None or card.provider not in self._configured:
            return False
        with contextlib.suppress(SettingsError):
            return not provider.api_key_env or api_key(card.provider, provider) is not None
        return False

    def check(self, name: str) -> None:
        """Raise ApiError 404 if a client cannot use a model, which may be written `provider/model`."""
        if name in self._usable:
            return
        message = f"there is no model {name!r}; GET /v1/models lists them"
        with contextlib.suppress(UnknownName, SettingsError):
            if self.is_usable(name):  # provider/model
                return
            provider = self._settings.providers.get(self._settings.card(name).provider)
            if provider is not None and provider.api_key_env:
                message = f"model {name!r} cannot be used: {provider.api_key_env} is not set for `odar serve`"
        raise ApiError(404, message, "model_not_found", "model")

    async def _check_providers(self) -> None:
        """Update the list of unreachable providers, unless it is recent."""
        if time.monotonic() - self._checked_at < _CHECK_AGAIN_S:
            return
        self._checked_at = time.monotonic()

        async def answers(name: str) -> bool:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self._providers[name].check()
            except (ProviderUnreachable, ProviderTimeout, SettingsError, TimeoutError):
                return False
            except ProviderError:
                pass  # the server answers, but rejects the request or has no list of models
            return True

        names = set(self._usable.values())
        reachable = await asyncio.gather(*map(answers, names))
        self._unreachable = frozenset(name for name, answered in zip(names, reachable, strict=True) if not answered)


def configured_providers(settings: Settings) -> set[str]:
    """The names of the providers of the catalogue that clients can use.

    A provider is one of them if the settings name it, one of its models is defined or used, or its API key is set.
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
