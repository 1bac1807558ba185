"""Providers by name, opened when first needed and shared from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odar.errors import SettingsError, UnknownName
from odar.files import user_path
from odar.providers.base import Provider
from odar.registry import Registry
from odar.secrets import api_key
from odar.settings import ProviderSettings, Settings

Opener = Callable[[str, ProviderSettings, Settings], Provider]
Guard = Callable[[Provider], Provider]

KINDS: Registry[Opener] = Registry(
    "provider kind",
    {
        "anthropic": "odar.providers.pool:_open_anthropic",
        "local": "odar.providers.pool:_open_local",
        "openai": "odar.providers.pool:_open_openai",
        "replay": "odar.providers.pool:_open_replay",
    },
    group="odar.providers",
)
"""Wire protocols by name; each entry opens a provider from its settings."""


class ProviderPool:
    """The providers of one engine. Give it ready-made ones to test without a network, and a guard to put around
    each of them."""

    def __init__(
        self, settings: Settings, ready: Mapping[str, Provider] | None = None, guard: Guard | None = None
    ) -> None:
        self._settings = settings
        self._guard: Guard = guard or (lambda provider: provider)
        self._open: dict[str, Provider] = {name: self._guard(provider) for name, provider in (ready or {}).items()}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._open:
            if name not in self._settings.providers:
                raise UnknownName("provider", name, self._settings.providers)
            provider = self._settings.providers[name]
            self._open[name] = self._guard(KINDS[provider.kind](name, provider, self._settings))
        return self._open[name]

    async def close(self) -> None:
        """Close every provider that was opened."""
        opened, self._open = self._open, {}
        for provider in opened.values():
            await provider.close()


def _open_openai(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.openai import OpenAIProvider

    return OpenAIProvider(name, provider.base_url, **_http_options(name, provider, settings))


def _open_anthropic(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.anthropic import AnthropicProvider

    return AnthropicProvider(name, provider.base_url, **_http_options(name, provider, settings))


def _open_local(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.local import LocalProvider

    return LocalProvider(name, threads=settings.local.threads, contexts=settings.contexts(name))


def _open_replay(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.replay import ReplayProvider

    return ReplayProvider.from_file(name, user_path(provider.recordings, setting=f"providers.{name}.recordings"))


def _http_options(name: str, provider: ProviderSettings, settings: Settings) -> dict[str, Any]:
    """Key, retries and what to say when the key is refused."""
    from odar.providers.http import RetryPolicy

    key = api_key(name, provider)
    if key is None and provider.api_key_env:
        raise SettingsError(f"provider {name} needs a key: set {provider.api_key_env}, or use --profile local")
    own = settings.retry
    retry = RetryPolicy(own.attempts, own.base_s, own.max_s, own.max_retry_after_s)
    source = provider.api_key_env or (provider.api_key_file and f"providers.{name}.api_key_file")
    return {"api_key": key, "retry": retry, "key_hint": f"check {source}" if source else ""}
