"""`odar doctor`: what is installed, reachable and configured, and how to fix what is not."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from odar import __version__
from odar.cli.local import available_memory_mb, local_models, memory_mb
from odar.cli.options import settings_options
from odar.engine import Odar
from odar.errors import OdarError
from odar.files import cache_folder
from odar.policy.certificate import describe
from odar.providers.weights import GGUF, catalogue, gguf_path, offline, weights_folder, weights_status
from odar.secrets import masked
from odar.settings import AgentSettings, Settings
from odar.store.alignment import alignment_file, alignment_path
from odar.store.archive import Archive
from odar.store.database import Database, database_url
from odar.store.overview import warnings_of
from odar.store.record import Filter


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    topic: str
    ok: bool
    text: str
    remedy: str = ""


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of findings.")
@settings_options
def command(as_json: bool, settings: Settings) -> int:
    """Check what is installed, reachable and configured, and say how to fix what is not.

    Exit code 0 if a question could be answered now or after a download, 1 if not.
    """
    findings = [
        *_machine(),
        *_configuration(settings),
        *_places(settings),
        *_local_models(settings),
        *asyncio.run(_agents(settings)),
        *_traffic(settings),
    ]
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
    else:
        for finding in findings:
            mark = click.style("ok  ", fg="green") if finding.ok else click.style("no  ", fg="red")
            click.echo(f"{mark} {finding.topic}: {finding.text}")
            if finding.remedy:
                click.echo(f"     → {finding.remedy}")
    return 0 if all(finding.ok for finding in findings) else 1


def _machine() -> list[Finding]:
    found = [Finding("odar", True, f"{__version__} on Python {platform.python_version()}, {os.cpu_count()} cores")]
    for package in ("numpy", "uvicorn", "xllamacpp"):
        try:
            found.append(Finding(package, True, version(package)))
        except PackageNotFoundError:
            found.append(Finding(package, False, "not installed", f"{sys.executable} -m pip install {package}"))
    return found


def _configuration(settings: Settings) -> list[Finding]:
    built_in = ("catalogue", "profile", "argument", "ODAR_", "chosen")
    files = {origin for origin in settings.origins.values() if not origin.startswith(built_in)}
    found = ", ".join(sorted(files)) or "none; odar.toml here or in your config folder would be read"
    return [
        Finding("profile", True, f"{settings.profile} ({settings.profile_reason})"),
        Finding("settings file", True, found),
    ]


def _places(settings: Settings) -> list[Finding]:
    """The files that odar stores, which remain after `pip uninstall odar`."""
    url = database_url(settings.store)
    places = {"weights": weights_folder(), "calibration records": cache_folder() / "calibration"}
    found = []
    if url.get_backend_name() == "sqlite":
        places = {"traces and keys": Path(str(url.database)), **places}
    else:
        found.append(Finding("on disk", True, f"traces and keys: {masked(url.render_as_string())}"))
    places["served energies"] = alignment_path(settings.store)
    return found + [Finding("on disk", True, f"{what}: {_size(path)}") for what, path in places.items()]


def _traffic(settings: Settings) -> list[Finding]:
    """Warnings about the last 7 days: answers that were cut off, and costs above those of the slow model alone."""
    url = database_url(settings.store)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return []
    try:
        with Database(settings.store) as database:
            week = Filter(since=(datetime.now(UTC) - timedelta(days=7)).isoformat())
            found = Archive(database).overview(week)
    except OdarError as error:
        return [Finding("traces", True, f"cannot be read: {error}")]
    return [
        Finding("traces", True, f"last 7 days: {warning}", "odar traces --summary --since 7d")
        for warning in warnings_of(found, settings)
    ]


def _size(path: Path) -> str:
    """Return the path and the size of a file or folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    sizes = [file.stat().st_size for file in files if file.exists()]
    return f"{path} ({sum(sizes) / 1e6:.1f} MB)" if sizes else f"{path} (nothing there yet)"


def _local_models(settings: Settings) -> list[Finding]:
    """Which weights are present, and whether disk and memory are large enough for those that the agents use."""
    found, models = [], local_models(settings)
    missing = 0
    for weights in catalogue().values():
        status = weights_status(weights)
        used = weights.name in models
        missing += weights.size + weights.download_size if used and status.state != "present" else 0
        if used or status.state != "absent":
            remedy = "" if status.state == "present" else f"odar pull {weights.name}"
            ok = status.state == "present" or not (used and offline())
            found.append(Finding("local model", ok, f"{weights.name}: {status.state}, {weights}", remedy))
    for model in models:
        if model.startswith(GGUF):
            try:
                size = gguf_path(model).stat().st_size
                found.append(Finding("local model", True, f"{model}: {size / 1e6:,.0f} MB"))
            except OdarError as error:
                found.append(Finding("local model", False, str(error)))
    if models:
        found.append(_disk(weights_folder(), missing))
        if all(finding.ok for finding in found):
            found.append(_memory(memory_mb(settings)))
    return found


def _disk(folder: Path, missing: int) -> Finding:
    """Free disk space against what is still to be downloaded."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:,.1f} GB free in {existing}"
    if not missing:
        return Finding("disk", True, text)
    text += f"; downloading the missing weights takes up to {missing / 1e9:.1f} GB"
    return Finding("disk", free > missing, text, "" if free > missing else "set ODAR_CACHE_DIR to a larger disk")


def _memory(needed_mb: int) -> Finding:
    """Available memory against what the agents' local models take."""
    available = available_memory_mb()
    needed = f"the local models take {needed_mb / 1000:.1f} GB"
    if available is None:
        return Finding("memory", True, needed)
    remedy = "" if available >= needed_mb else "answers will be slow; close programs, or use --profile tiny"
    return Finding("memory", True, f"{available / 1000:.1f} GB available; {needed}", remedy)


async def _agents(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    async with Odar(settings, served=alignment_file(settings.store)) as odar:
        found += _energies(odar)
        found += _certificate(odar)
        for role, agent in (("fast", settings.fast), ("slow", settings.slow)):
            found.append(await _agent(odar, role, agent))
    if settings.fast.model == settings.slow.model:
        found.append(
            Finding(
                "pair",
                True,
                f"fast and slow are the same weights ({settings.fast.model}) with different prompts and budgets: "
                "good for showing and testing the whole path, not for better answers",
            )
        )
    for role, agent in (("fast", settings.fast), ("slow", settings.slow)):
        card = settings.card(agent.model)
        if not card.logprobs:
            text = f"{card.name} returns no log-probabilities; its answers cannot be scored by free energy"
            found.append(Finding(f"{role} log-probs", True, text))
    return found


def _energies(odar: Odar) -> list[Finding]:
    """Which served energies drift from the calibrated ones."""
    rows = odar.alignment_report()
    moved = [f"{row.model} {row.step} (z = {row.drift_z:+.1f})" for row in rows if row.drifting]
    found = []
    if moved:
        text = f"served energies drift from the calibrated ones: {', '.join(moved)}"
        found.append(Finding("alignment", True, text, "odar models --drift; if it lasts, run odar calibrate again"))
    if odar.alignment.complaint:
        found.append(Finding("alignment", True, f"served energies are not kept: {odar.alignment.complaint}"))
    return found


def _certificate(odar: Odar) -> list[Finding]:
    """Whether the installed certificate holds, and whether thresholds can learn from feedback."""
    again = "odar calibrate --at-most-worse 0.05"
    if odar.certificate is None:
        if not odar.settings.routing.learn:
            return []
        return [
            Finding("learning", True, "routing.learn is on and no certificate is installed: nothing moves", again)
        ]
    problems = odar.certificate_problems()
    state = describe(odar.certificate, problems)
    return [Finding("certificate", True, state, again if problems else "")]


async def _agent(odar: Odar, role: str, agent: AgentSettings) -> Finding:
    """Whether the agent's provider answers, and has the model."""
    card = odar.settings.card(agent.model)
    topic = f"{role} agent"
    try:
        line = await odar.providers[card.provider].check(card.id)
    except OdarError as error:
        return Finding(
            topic,
            False,
            f"{card.name} by {card.provider}: {error}",
            "or use --profile local, which needs no key",
        )
    return Finding(topic, True, f"{card.name} by {card.provider}: {line}")
