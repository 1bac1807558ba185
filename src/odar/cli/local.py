"""Weights before work: commands that may use the local model fetch it first, with a progress bar."""

from __future__ import annotations

from odar.settings import Settings


def uses_local_model(settings: Settings) -> bool:
    """Whether one of the agents, or the surrogate, runs inside this process."""
    names = [settings.fast.model, settings.slow.model, settings.fusion.surrogate]
    providers = {settings.card(name).provider for name in names if name}
    return any(settings.providers[name].kind == "local" for name in providers)


def fetch_weights(settings: Settings, *, quiet: bool) -> None:
    """Fetch the local model's weights where one of the agents needs them."""
    if uses_local_model(settings):
        from odar.cli.pull import fetch

        fetch(quiet=quiet)
