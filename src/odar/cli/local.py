"""Weights of local models: `odar pull`, and downloads for other commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odar.cli.options import announce_profile, json_option, parse_sets
from odar.cli.terminal import folded, notice, print_json
from odar.config import PROFILES, load_settings
from odar.errors import UnknownName, WeightsError
from odar.providers.base import Provider
from odar.providers.weights import GGUF, ensure_weights, find_weights, gguf_path, known_weights
from odar.settings import Settings

if TYPE_CHECKING:
    from rich.progress import Progress

FALLBACK = "tiny"
"""The profile to use if the default models cannot be downloaded."""


def local_models(settings: Settings, *names: str) -> list[str]:
    """The ids of those models that run in this process; by default of all agents."""
    cards = [settings.card(name) for name in dict.fromkeys(names or settings.default_models.values())]
    return [card.id for card in cards if settings.providers[card.provider].kind == "local"]


def memory_mb(settings: Settings) -> int:
    """The memory that the local models of the agents take; for a user's GGUF file, its size."""
    return sum(
        gguf_path(model).stat().st_size // 10**6 if model.startswith(GGUF) else find_weights(model).memory_mb
        for model in local_models(settings)
    )


def available_memory_mb() -> int | None:
    """The available memory; None if it is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) // 1000 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def prepare_models(settings: Settings, *, quiet: bool) -> None:
    """Say which models were chosen, unless the user named them, and download those that run in this process."""
    if not quiet:
        announce_profile(settings)
    for model in local_models(settings):
        fetch_model(model, quiet=quiet)


def fetch_fast_weights(settings: Settings, *, quiet: bool) -> Settings:
    """Download the weights of the fast model, and return the settings to use.

    If those of the default profile cannot be downloaded, these are the settings of the profile `tiny`.
    """
    try:
        for model in local_models(settings, settings.fast.model):
            fetch_model(model, quiet=quiet)
    except WeightsError as error:
        if settings.profile != "local" or settings.profile_reason.startswith("named by"):
            raise
        notice(str(error))
        notice(f"answering with profile {FALLBACK}, whose answers are often wrong")
        options = click.get_current_context().params
        changes = parse_sets(options.get("sets") or ())
        settings = load_settings(FALLBACK, config=options.get("config"), **changes)
        prepare_models(settings, quiet=quiet)
    return settings


def fetch_model(model: str, *, quiet: bool, force: bool = False) -> Path:
    """Download the weights of a model if needed, with a progress bar unless `quiet`, and return their path."""
    if model.startswith(GGUF):
        return gguf_path(model)
    if quiet:
        return ensure_weights(find_weights(model), force=force)
    display = DownloadDisplay()
    try:
        return ensure_weights(find_weights(model), display.on_progress, display.on_message, force=force)
    finally:
        display.close()


def local_providers(
    settings: Settings, display: DownloadDisplay | None = None, *, copies: int = 0
) -> dict[str, Provider]:
    """The providers whose models run in this process: with a display of downloads, or several copies of each model.

    Copies have one thread each unless `local.threads` says otherwise.
    """
    from odar.providers.local import LocalProvider

    return {
        name: LocalProvider(
            name,
            contexts=settings.contexts(name),
            threads=settings.local.threads or min(copies, 1),
            copies=max(copies, 1),
            on_progress=display.on_progress if display else None,
            on_message=display.on_message if display else None,
        )
        for name, provider in settings.providers.items()
        if provider.kind == "local"
    }


class DownloadDisplay:
    """Messages and a progress bar on standard error; the bar appears with the first progress.

    Args:
        before: called before the first message, for example to stop a spinner.
    """

    def __init__(self, before: Callable[[], None] | None = None) -> None:
        self._before = before
        self._bar: Progress | None = None

    def on_message(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(folded(f"odar: {line}", 6, stderr=True), highlight=False, soft_wrap=True)
            return
        if self._before is not None:
            self._before()
        notice(line)

    def on_progress(self, stage: str, done: int, total: int) -> None:
        """Update the bar; close it at the end of the last stage."""
        if self._bar is None:
            if stage == "checking" and done >= total:
                return
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            self._bar = Progress(*columns, console=Console(stderr=True, markup=False))
            self._bar.add_task(stage, total=total)
            self._bar.start()
        shown = done if done > total / 1000 else 0  # the first bytes say nothing about the time that is left
        self._bar.update(self._bar.task_ids[0], description=stage, completed=shown, total=total)
        if stage == "checking" and done >= total:
            self.close()

    def close(self) -> None:
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
    for model in dict.fromkeys(model for name in names or ("local",) for model in _models_of(name)):
        path = fetch_model(model, quiet=as_json, force=force)
        fetched.append({"name": model, "path": str(path), "bytes": path.stat().st_size})
        if not as_json:
            click.echo(str(path))
    if as_json:
        print_json(fetched)


def _models_of(name: str) -> list[str]:
    if name in known_weights():
        return [name]
    profiles = [profile for profile in PROFILES if profile != "custom"]
    if name in profiles and (models := local_models(load_settings(name, config="/dev/null", environ={}))):
        return models
    raise UnknownName("local model", name, [*known_weights(), "local", "tiny"])
