"""Providers by name, opened when first needed and shared from then on; every call passes through here."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odar.errors import SettingsError, UnknownName
from odar.files import user_path
from odar.observer import observed, tell
from odar.providers.base import Delta, OnDelta, Provider, Reply, Request
from odar.registry import Registry
from odar.secrets import api_key
from odar.settings import ProviderSettings, Settings

if TYPE_CHECKING:
    from ssl import SSLContext

Opener = Callable[[str, ProviderSettings, Settings], Provider]
Send = Callable[[], Awaitable[Reply]]
GuardedSend = Callable[[Request, Send], Awaitable[Reply]]
Guard = Callable[[Provider], GuardedSend]
"""Called with each provider that is opened; returns a function that decides whether a request to it is sent."""


class ProviderPool:
    """The providers of one engine. Its calls are steps of a question, which the observer sees.

    Args:
        settings: `providers` and the settings that they need.
        ready: existing providers by name, which replace configured ones.
        guard: stands between the engine and every provider, such as a circuit breaker.
    """

    def __init__(
        self, settings: Settings, ready: Mapping[str, Provider] | None = None, guard: Guard | None = None
    ) -> None:
        self._settings = settings
        self._opening = threading.Lock()
        self._open = dict(ready or {})
        self._guard = guard
        self._guards = {name: guard(provider) for name, provider in self._open.items()} if guard else {}

    def __getitem__(self, name: str) -> Provider:
        if name not in self._open:
            if name not in self._settings.providers:
                raise UnknownName("provider", name, self._settings.providers)
            provider = self._settings.providers[name]
            with self._opening:  # reservations for long questions are made in threads
                if name not in self._open:
                    opened = KINDS[provider.kind](name, provider, self._settings)
                    if self._guard is not None:
                        self._guards[name] = self._guard(opened)
                    self._open[name] = opened
        return self._open[name]

    @observed("chat")
    async def complete(self, provider: str, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """`complete` of a provider; the observer also learns how long the first part of a streamed answer took."""
        if on_delta is not None:
            on_delta = _timed(on_delta)
        return await self._send(provider, request, partial(self[provider].complete, request, on_delta))

    @observed("forward")
    async def forward(self, provider: str, address: str, body: Mapping[str, Any], request: Request) -> Reply:
        return await self._send(provider, request, partial(self[provider].forward, address, body, request))

    async def _send(self, provider: str, request: Request, send: Send) -> Reply:
        return await (self._guards[provider](request, send) if self._guard else send())

    async def close(self) -> None:
        opened, self._open = self._open, {}
        for provider in opened.values():
            await provider.close()


def _timed(on_delta: OnDelta) -> OnDelta:
    """`on_delta`, and tell the observer when it is called first."""
    started = time.perf_counter()
    first = True

    def timed(delta: Delta) -> None:
        nonlocal first
        if first:
            first = False
            tell({"gen_ai.response.time_to_first_chunk": time.perf_counter() - started})
        on_delta(delta)

    return timed


def _open_openai(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.openai import OpenAIProvider

    return OpenAIProvider(name, provider.base_url, **_http_options(name, provider, settings))


def _open_anthropic(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.anthropic import AnthropicProvider

    options = _http_options(name, provider, settings)
    return AnthropicProvider(name, provider.base_url, cache_prompts=provider.cache_prompts, **options)


def _open_local(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.local import LocalProvider

    return LocalProvider(name, threads=settings.local.threads, contexts=settings.contexts(name))


def _open_replay(name: str, provider: ProviderSettings, settings: Settings) -> Provider:
    from odar.providers.replay import ReplayProvider, load_replies

    path = user_path(provider.recordings, setting=f"providers.{name}.recordings")
    return ReplayProvider(name, load_replies(path))


def _http_options(name: str, provider: ProviderSettings, settings: Settings) -> dict[str, Any]:
    key = api_key(name, provider)
    if key is None and provider.api_key_env:
        raise SettingsError(f"provider {name} needs a key: set {provider.api_key_env}, or use --profile local")
    source = provider.api_key_env or (provider.api_key_file and f"providers.{name}.api_key_file")
    hint = f"check {source}" if source else ""
    return {"api_key": key, "key_hint": hint, "tls": _tls_context(name, provider)}


def _tls_context(name: str, provider: ProviderSettings) -> SSLContext | None:
    """A context with the provider's certificate files, or None if it has none."""
    files: dict[str, str] = {}
    for key in ("ca_file", "client_cert", "client_key"):
        if file := getattr(provider, key):
            files[key] = str(user_path(file, setting=f"providers.{name}.{key}"))
    if "client_key" in files and "client_cert" not in files:
        raise SettingsError(f"providers.{name}.client_key needs providers.{name}.client_cert")
    if not files:
        return None
    import ssl

    try:
        context = ssl.create_default_context(cafile=files.get("ca_file"))
        if "client_cert" in files:  # with a password, so that OpenSSL does not ask for one on the terminal
            context.load_cert_chain(files["client_cert"], files.get("client_key"), password="")
    except (OSError, ValueError) as error:
        given = " and ".join(f"providers.{name}.{key} = {path}" for key, path in files.items())
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
        raise SettingsError(f"{given}: no usable PEM certificates ({reason})") from None
    return context


KINDS: Registry[Opener] = Registry(
    "provider kind",
    {"anthropic": _open_anthropic, "local": _open_local, "openai": _open_openai, "replay": _open_replay},
    group="odar.providers",
)
"""Functions that create a provider from its settings, by kind."""
