"""Providers by name, opened when first needed and shared from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odar.config import api_key
from odar.errors import SettingsError, UnknownName
from odar.providers.base import Provider
from odar.registry import Registry
from odar.settings import ProviderSettings, Settings

Opener = Callable[[str, ProviderSettings, Settings], Provider]

KINDS: Registry[Opener] = Registry(
    "provider kind",
    {
        "anthropic": "odar.providers.pool:_open_anthropic",
        "embedded": "odar.providers.pool:_open_embedded",
        "openai": "odar.providers.pool:_open_openai",
        "replay": "odar.providers.pool:_open_replay",
    },
    group="odar.providers",
)
"""Wire protocols by name; each entry opens a provider from its settings."""


class ProviderPool:
    """The providers of one engine. Give it ready-made ones to test without a network."""

    def __init__(self, settings: Settings, ready: Mapping[str, Provider] | None = None) -> None:
        self._settings = settings
        self._open: dict[str, Provider] = dict(ready or {})

    def __getitem__(self, name: str) -> Provider:
        if name not in self._open:
            if name not in self._settings.providers:
                raise UnknownName("provider", name, self._settings.providers)
            provider = self._settings.providers[name]
            self._open[name] = KINDS[provider.kind](name, provider, self._settings)
        return self._open[name]

    async def close(self) -> None:
        """Close every provider that was opened."""
        opened, self._open = self._open, {}
        for provider in opened.values():
            await provider.close()


def _key(name: str, provider: ProviderSettings) -> str | None:
    key = api_key(name, provider)
    if key is None and provider.api_key_env:
        raise SettingsError(f"provider {name} needs a key: set {provider.api_key_env}, or use --profile embedded")
    return key


def _open_openai(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.http import RetryPolicy
    from odar.providers.openai import OpenAIProvider

    return OpenAIProvider(
        name,
        provider.base_url,
        _key(name, provider),
        retry=RetryPolicy(settings.retry.attempts, settings.retry.base_s, settings.retry.max_s),
        key_hint=_hint(provider),
    )


def _open_anthropic(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.anthropic import AnthropicProvider
    from odar.providers.http import RetryPolicy

    return AnthropicProvider(
        name,
        provider.base_url,
        _key(name, provider),
        retry=RetryPolicy(settings.retry.attempts, settings.retry.base_s, settings.retry.max_s),
        key_hint=_hint(provider),
    )


def _open_embedded(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.embedded import EmbeddedProvider

    return EmbeddedProvider(name, threads=settings.embedded.threads)


def _open_replay(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.replay import ReplayProvider

    return ReplayProvider.from_file(name, provider.recordings)


def _hint(provider: ProviderSettings) -> str:
    return f"check {provider.api_key_env}" if provider.api_key_env else ""
