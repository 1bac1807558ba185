"""Work that needs an engine of its own in each process, wherever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from odar.batch.executor import Work
from odar.batch.replies import RememberingProvider
from odar.engine import Odar
from odar.providers.base import Provider
from odar.settings import Settings

OpenProviders = Callable[[Settings], Mapping[str, Provider]]


@dataclass(frozen=True, slots=True)
class WithEngine:
    """Opens an engine and hands it to whoever makes the work; can be sent to another machine.

    Args:
        settings: keys are not in them: each machine finds its own (`api_key_env`, `api_key_file`).
        make_work: the work, given the engine; to be sent away it must be picklable.
        open_providers: ready-made providers in place of the configured ones.
    """

    settings: Settings
    make_work: Callable[[Odar], Work]
    open_providers: OpenProviders | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Work]:
        """The work, for as long as the context is open."""
        ready = self.open_providers(self.settings) if self.open_providers else None
        async with Odar(self.settings, providers=ready, guard=RememberingProvider) as odar:
            yield self.make_work(odar)
