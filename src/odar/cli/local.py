"""Weights of local models: `odar pull`, and downloads with a progress bar before other commands need them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odar.cli.options import json_option, parse_sets
from odar.cli.terminal import print_json
from odar.config import PROFILES, load_settings
from odar.errors import UnknownName, WeightsError
from odar.providers.base import Provider
from odar.providers.weights import GGUF, catalogue, ensure_weights, find_weights, gguf_path, weights_status
from odar.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

FALLBACK = "tiny"
"""The profile that answers where the default models cannot be downloaded."""


def local_models(settings: Settings, *names: str) -> list[str]:
    """Ids of those models that run in this process, in order; without names, of both agents and the surrogate."""
    names = names or (settings.fast.model, settings.slow.model, settings.fusion.surrogate)
    cards = [settings.card(name) for name in dict.fromkeys(names) if name]
    return [card.id for card in cards if settings.providers[card.provider].kind == "local"]


def uses_local_model(settings: Settings) -> bool:
    """Return whether one of the agents, or the surrogate, runs in this process."""
    return bool(local_models(settings))


def memory_mb(settings: Settings) -> int:
    """Memory that the agents' local models take; a GGUF file of the user's counts with its size."""
    return sum(
        gguf_path(model).stat().st_size // 10**6 if model.startswith(GGUF) else find_weights(model).memory_mb
        for model in local_models(settings)
    )


def available_memory_mb() -> int | None:
    """Memory that programs can still take; None if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) // 1000 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def fetch_weights(settings: Settings, *, quiet: bool) -> None:
    """Download the weights of every local model that the agents use; without messages if `quiet`."""
    for model in local_models(settings):
        fetch_model(model, quiet=quiet)


def fetch_fast_weights(settings: Settings, *, quiet: bool) -> Settings:
    """Download the fast model's weights, and return the settings to use; the slow model waits until it is needed.

    Where the default profile's weights cannot be downloaded, these are the settings of the `tiny` profile.
    """
    try:
        for model in local_models(settings, settings.fast.model):
            fetch_model(model, quiet=quiet)
    except WeightsError as error:
        if settings.profile != "local" or settings.profile_reason.startswith("named by"):
            raise
        click.echo(f"odar: {error}", err=True)
        click.echo(f"odar: answering with profile {FALLBACK}, whose answers are often wrong", err=True)
        given = click.get_current_context().params
        changes = parse_sets(given.get("sets") or ())
        settings = load_settings(FALLBACK, config=given.get("config"), **changes)
        fetch_weights(settings, quiet=quiet)
    return settings


def fetch_model(model: str, *, quiet: bool, force: bool = False) -> Path:
    """Return the path of a model's verified weights; downloads them, with a progress bar on standard error."""
    if model.startswith(GGUF):
        return gguf_path(model)
    weights = find_weights(model)
    if quiet or (not force and weights_status(weights).state == "present"):
        return ensure_weights(weights, force=force)
    display = DownloadDisplay()
    try:
        return ensure_weights(weights, display.on_progress, display.on_message, force=force)
    finally:
        display.close()


def local_providers(settings: Settings, display: DownloadDisplay) -> dict[str, Provider]:
    """Local providers that show the download of a model when a question turns out to need it."""
    from odar.providers.local import LocalProvider

    shared: dict[str, Any] = {"threads": settings.local.threads}
    shared |= {"on_progress": display.on_progress, "on_message": display.on_message}
    names = [name for name, provider in settings.providers.items() if provider.kind == "local"]
    return {name: LocalProvider(name, contexts=settings.contexts(name), **shared) for name in names}


class DownloadDisplay:
    """Messages and a progress bar on standard error; the bar appears with the first progress.

    Args:
        before: called before anything is shown, such as to end a spinner.
    """

    def __init__(self, before: Callable[[], None] | None = None) -> None:
        self._before = before
        self._bar: Progress | None = None

    def on_message(self, line: str) -> None:
        """Print one line."""
        if self._bar is not None:
            self._bar.console.print(f"odar: {line}", highlight=False, soft_wrap=True)
            return
        if self._before is not None:
            self._before()
        click.echo(f"odar: {line}", err=True)

    def on_progress(self, stage: str, done: int, total: int) -> None:
        """Move the bar; at the end of the last stage it is closed."""
        if self._bar is None:
            if stage == "checking" and done >= total:
                return
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=Console(stderr=True, markup=False))
            self._bar.add_task(stage, total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=stage, completed=done, total=total)
        if stage == "checking" and done >= total:
            self.close()

    def close(self) -> None:
        """Remove the bar."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()


@click.command("pull")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--force", is_flag=True, help="Download again even if the files are there and intact.")
@json_option("Print a JSON list with name, path and size of each.")
def pull(names: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Download the weights of local models into the cache, verify them, and repair damaged ones.

    NAME is a model that `odar models --local` lists, or a profile for all of its models; the default is local.
    You can interrupt it: the same command resumes the download. `odar ask` downloads by itself what a question
    needs. ODAR_CACHE_DIR sets the cache folder; ODAR_OFFLINE=1 forbids downloads.

    \b
    odar pull                        # the default pair, 1.6 GB
    odar pull qwen2.5-coder-0.5b
    odar pull tiny                   # 98 MB, for tests
    """
    fetched = []
    for model in dict.fromkeys(model for name in names or ("local",) for model in _models(name)):
        path = fetch_model(model, quiet=as_json, force=force)
        fetched.append({"name": model, "path": str(path), "bytes": path.stat().st_size})
        if not as_json:
            click.echo(str(path))
    if as_json:
        print_json(fetched)


def _models(name: str) -> list[str]:
    """Return the models that a name of a model or a profile stands for."""
    if name in catalogue():
        return [name]
    profiles = [profile for profile in PROFILES if profile != "custom"]
    if name in profiles and (models := local_models(load_settings(name, config="/dev/null", environ={}))):
        return models
    raise UnknownName("local model", name, [*catalogue(), "local", "tiny"])
