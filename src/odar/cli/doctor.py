"""`odar doctor`: check installation, configuration, local models, providers and traces."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from odar import __version__
from odar.catalogue import ModelCard
from odar.cli.local import available_memory_mb, local_models, memory_mb
from odar.cli.options import json_option, settings_options
from odar.cli.terminal import folded, print_json
from odar.cli.traces import open_archive
from odar.engine import Odar
from odar.errors import OdarError, ProviderError, ProviderTimeout, ProviderUnreachable, SettingsError
from odar.files import cache_folder
from odar.providers.weights import GGUF, gguf_path, known_weights, offline, weights_folder, weights_status
from odar.secrets import api_key, mask_secrets
from odar.served.alignment import alignment_file, alignment_path
from odar.settings import Settings
from odar.traces.database import database_url
from odar.traces.filter import Filter
from odar.traces.overview import warnings_of
from odar.types import FAST, SLOW


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    topic: str
    ok: bool
    text: str
    remedy: str = ""


@click.command("doctor")
@json_option("Print a JSON list of findings.")
@settings_options
def command(as_json: bool, settings: Settings) -> int:
    """Check what is installed, reachable and configured, and say how to fix what is not.

    Exit code 0 if a question could be answered now or after a download, 1 if not.
    """
    findings = [
        *_check_installation(settings),
        *_check_local_models(settings),
        *asyncio.run(_check_agents(settings)),
        *_check_traces(settings),
    ]
    if as_json:
        print_json([asdict(finding) for finding in findings], indent=2)
    else:
        for finding in findings:
            mark = click.style("ok  ", fg="green") if finding.ok else click.style("no  ", fg="red")
            click.echo(f"{mark} " + folded(f"{finding.topic}: {finding.text}", 5))
            if finding.remedy:
                click.echo("     → " + folded(finding.remedy, 7))
    return 0 if all(finding.ok for finding in findings) else 1


def _check_installation(settings: Settings) -> Iterator[Check]:
    """Yield versions, profile and settings file, and the files of ODAR, which remain after `pip uninstall odar`."""
    yield Check("odar", True, f"{__version__} on Python {platform.python_version()}, {os.cpu_count()} cores")
    for package in ("numpy", "uvicorn", "xllamacpp"):
        try:
            yield Check(package, True, version(package))
        except PackageNotFoundError:
            yield Check(package, False, "not installed", f"{sys.executable} -m pip install {package}")
    built_in = ("catalogue", "profile", "calibration", "argument", "ODAR_", "chosen")
    files = {origin for origin in settings.origins.values() if not origin.startswith(built_in)}
    yield Check("profile", True, f"{settings.profile} ({settings.profile_reason})")
    missing = "none; odar.toml here or in your config folder would be read"
    yield Check("settings file", True, ", ".join(sorted(files)) or missing)
    url = database_url(settings.store)
    places = {
        "traces and keys": _size(path) if (path := _store_file(settings)) else mask_secrets(url.render_as_string()),
        "weights": _size(weights_folder()),
        "calibration records": _size(cache_folder() / "calibration"),
        "records of advise": _size(cache_folder() / "advice"),
        "statistics of served answers": _size(alignment_path(settings.store)),
    }
    for what, place in places.items():
        yield Check("on disk", True, f"{what}: {place}")


def _store_file(settings: Settings) -> Path | None:
    """The file of the store; None for a database server."""
    url = database_url(settings.store)
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def _size(path: Path) -> str:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    sizes = [file.stat().st_size for file in files if file.exists()]
    return f"{path} ({sum(sizes) / 1e6:.1f} MB)" if sizes else f"{path} (nothing there yet)"


def _check_traces(settings: Settings) -> Iterator[Check]:
    """Yield warnings about the last 7 days: answers cut off, and costs above those of the slow model alone."""
    if (path := _store_file(settings)) and not path.exists():
        return
    try:
        with open_archive(settings) as archive:
            overview = archive.overview(Filter(since="7d"))
    except OdarError as error:
        yield Check(
            "traces", False, f"cannot be read: {error}", "store.url = another place, or store.enabled = false"
        )
        return
    for warning in warnings_of(overview, settings):
        yield Check("traces", True, f"last 7 days: {warning}", "odar traces --summary --since 7d")


def _check_local_models(settings: Settings) -> list[Check]:
    """Which weights are present, and whether disk and memory suffice for those that the agents use."""
    found = []
    models = local_models(settings)
    missing_bytes = 0
    # weights that are downloaded, and files of the user
    for weights in known_weights().values():
        state = weights_status(weights)[0]
        used = weights.name in models
        present = state == "present"
        if used and not present:
            missing_bytes += weights.size + weights.download_size
        if used or state != "absent":
            remedy = "" if present else f"odar pull {weights.name}"
            ok = present or not (used and offline())
            found.append(Check("local model", ok, f"{weights.name}: {state}, {weights}", remedy))
    for model in models:
        if model.startswith(GGUF):
            try:
                size = gguf_path(model).stat().st_size
                found.append(Check("local model", True, f"{model}: {size / 1e6:,.0f} MB"))
            except OdarError as error:
                found.append(Check("local model", False, str(error)))
    # room for them
    if models:
        folder = next(place for place in (weights_folder(), *weights_folder().parents) if place.exists())
        free = shutil.disk_usage(folder).free
        enough = not missing_bytes or free > missing_bytes
        text = f"{free / 1e9:,.1f} GB free in {folder}"
        if missing_bytes:
            text += f"; downloading the missing weights takes up to {missing_bytes / 1e9:.1f} GB"
        found.append(Check("disk", enough, text, "" if enough else "set ODAR_CACHE_DIR to a larger disk"))
    if models and all(finding.ok for finding in found):
        available = available_memory_mb()
        needed = memory_mb(settings)
        text = f"the local models take {needed / 1000:.1f} GB"
        remedy = ""
        if available is not None:
            text = f"{available / 1000:.1f} GB available; {text}"
            remedy = "" if available >= needed else "answers will be slow; close programs, or use --profile tiny"
        found.append(Check("memory", True, text, remedy))
    return found


async def _check_agents(settings: Settings) -> list[Check]:
    """Check energies, the certificate, and whether each agent's provider answers and has the model."""
    cards = {agent: settings.card(model) for agent, model in settings.default_models.items()}
    async with Odar(settings, served=alignment_file(settings.store)) as odar:
        found = list(_check_learned(odar))
        for agent, card in cards.items():
            by = f"{card.name} by {card.provider}"
            try:
                line = await odar.agents.providers[card.provider].check(card.id)
                found.append(Check(f"{agent} agent", True, f"{by}: {line}"))
            except OdarError as error:
                found.append(Check(f"{agent} agent", False, f"{by}: {error}", _agent_remedy(agent, error)))
    if settings.fast.model == settings.slow.model:
        same = f"fast and slow are the same weights ({settings.fast.model}) with different prompts and budgets: "
        found.append(Check("pair", True, same + "good for testing the whole path, not for better answers"))
    for agent, card in cards.items():
        if not card.logprobs:
            text = f"{card.name} returns no log-probabilities: its answers are judged by agreement and form"
            found.append(Check(f"{agent} log-probs", True, text))
    return [*found, *_check_second(settings)]


def _agent_remedy(agent: str, error: OdarError) -> str:
    """What to do about an agent that cannot be used."""
    local = "or use --profile local, which needs no key"
    if isinstance(error, ProviderUnreachable | ProviderTimeout):
        return f"start the server, or check the network connection; {local}"
    if isinstance(error, ProviderError) and error.status in (401, 403):
        return f"replace the key by a valid one, {local}"
    return f"name another {agent}.model in odar.toml, {local}"


def _check_second(settings: Settings) -> Iterator[Check]:
    """Yield a suggestion for the second agent: of another family than fast, near its price, with a key."""
    fast, slow = (settings.card(settings.agent(agent).model) for agent in (FAST, SLOW))
    second = None if settings.second is None else settings.card(settings.second.model)
    if second is not None and second.model_family != fast.model_family:
        return
    cards = [settings.card(name) for name in settings.models]
    others = [
        card
        for card in cards
        if card.model_family not in (fast.model_family, slow.model_family) and _has_key(settings, card.provider)
    ]
    if fast.price is None or fast.price.free or not (priced := [card for card in others if card.price]):
        return
    near = min(priced, key=lambda card: (abs(math.log(_mean_price(card) / _mean_price(fast))), card.name))
    if slow.price is not None and _mean_price(near) >= _mean_price(slow):
        return
    text = "none" if second is None else f"{second.name} is of the same family as {fast.name}"
    text += "; where two cheap models of different families agree, the slow one need not be asked"
    yield Check("second agent", True, text, f"--second {near.name}, or second.model in odar.toml")


def _has_key(settings: Settings, provider: str) -> bool:
    try:
        return api_key(provider, settings.providers[provider]) is not None
    except SettingsError:
        return False


def _mean_price(card: ModelCard) -> float:
    """Dollars per million tokens, input and output alike; never 0."""
    return 1e-6 if card.price is None else card.price.input + card.price.output + 1e-6


def _check_learned(odar: Odar) -> Iterator[Check]:
    """Yield what follows from served answers: energies that drift, skills from agreement; and the certificate."""
    rows = odar.alignment.report(odar.agents.prompt_steps())
    if drifting := [f"{row.model} {row.step} (z = {row.drift_z:+.1f})" for row in rows if row.drifting]:
        text = f"served energies drift from the calibrated ones: {', '.join(drifting)}"
        yield Check("alignment", True, text, "if it lasts, run odar calibrate again")
    if odar.alignment.last_error:
        yield Check("alignment", True, f"served energies are not kept: {odar.alignment.last_error}")
    questions = sum(odar.agreement.questions().values())
    if learned := odar.agreement.skills():
        agents = odar.rated_agents.values()
        skills = (f"{agent.name} {agent.skill:.2f} → {new:.2f}" for agent, new in zip(agents, learned, strict=True))
        yield Check("skills", True, f"from agreement on {questions:,.0f} observed questions: {', '.join(skills)}")
    elif questions:
        text = (
            f"{questions:,.0f} observed questions change no skill: too few of one key, or a calibration is in use"
        )
        yield Check("skills", True, text)
    if odar.certificate is not None:
        problems = odar.certificate.problems()
        again = "odar certify QUESTIONS.jsonl" if problems else ""
        yield Check("certificate", True, odar.certificate.describe(problems), again)
