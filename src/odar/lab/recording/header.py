"""The header of a recording: everything its answers depend on.

Models, weights, prompts, token budgets and sampling are its `facts`; answers that were made under other facts are
never appended to the same file. Settings that a replay can change (thresholds, fusion, timeouts) are kept too, but
may differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from odar import __version__
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.errors import InputError
from odar.formats import check_format, load_json
from odar.lab.recording.schema import without_defaults
from odar.providers.weights import model_sha256
from odar.settings import Settings
from odar.types import Step

if TYPE_CHECKING:
    from odar.catalogue import ModelCard
    from odar.engine import Odar

FORMAT = "odar-recording-2"
"""The version of the schema; a recording of another version is refused."""
_SECTIONS = (
    "profile", "prompts", "calibration", "policy", "fast", "second", "slow", "agents", "routing", "fusion",
)  # fmt: skip
"""Sections of the settings that a header records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a recording."""

    format: str = FORMAT
    made_by: str
    """A digest of `facts`."""
    facts: Mapping[str, Any]
    """Everything that the answers depend on, as plain data; see `facts_of`."""
    samples: int
    """Slow samples of each item."""
    settings: Mapping[str, Any]
    """Agents, their models, routing and fusion at the time of recording; `to_settings` reads them."""
    calibration: Mapping[str, Any]
    """The calibration in use, complete."""
    versions: Mapping[str, str] = field(default_factory=dict)
    imported: bool = False
    """Whether the answers come from files of another tool."""

    def to_row(self) -> dict[str, Any]:
        """The header as plain data; `format` comes first."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes, origin: str) -> Header:
        """Raises InputError if the line is something else, or of another version."""
        try:
            body = load_json(text)
            check_format(body.get("format"), FORMAT, origin, "collect it again, into another file")
            return msgspec.convert(body, cls)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{origin} is not a recording: {error}") from None

    def to_settings(self) -> Settings:
        """The settings of the engine that made the recording, as far as a replay needs them.

        Providers are the shipped ones: who sells a model says something about its skill.

        Raises:
            InputError: the settings are incomplete.
        """
        try:
            found = msgspec.convert({**self.settings, "limits": {"deadline_s": 60.0}}, Settings, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"the settings in the recording cannot be read: {error}") from None
        return dataclasses.replace(found, providers=load_settings("tiny", environ={}).providers)

    def to_calibration(self) -> Calibration:
        return Calibration.from_json(json.dumps(self.calibration), "the calibration in the recording")

    def prompt_md5s(self) -> dict[Step, str]:
        """The MD5 of each step's prompt for exact questions; empty for imported answers."""
        try:
            found = msgspec.convert(self.facts.get("prompts", {}), dict[str, str])
        except msgspec.ValidationError as error:
            raise InputError(f"the prompts in the recording cannot be read: {error}") from None
        return {step: found.get(step.value, "") for step in Step}


def header_of(odar: Odar, path_samples: int | None = None) -> Header:
    """The header of recordings that this engine makes, with `routing.samples` slow samples of each item.

    `path_samples` is the number of samples on the Hard path, if it is another one.
    """
    settings = odar.settings
    facts = facts_of(odar)
    sections = {name: _plain(getattr(settings, name)) for name in _SECTIONS}
    if path_samples is not None:
        sections["routing"]["samples"] = path_samples
    cards = {card.name: card for cards in odar.agents.cards.values() for card in cards}
    return Header(
        made_by=digest_json(facts),
        facts=facts,
        samples=settings.routing.samples,
        settings={**sections, "models": {name: model_entry(card) for name, card in cards.items()}},
        calibration=json.loads(odar.calibration.to_json()),
        versions={"odar": __version__, "python": platform.python_version()},
    )


def facts_of(odar: Odar) -> dict[str, Any]:
    """What answers depend on: models, weights, prompts, sampling, token budgets, samples. Timeouts, thresholds and
    fusion are left out: a replay can change them."""
    settings = odar.settings
    agents = {name: _plain(settings.agent(name)) for name in settings.agent_names}
    for agent in agents.values():
        del agent["timeout_s"]
        del agent["effort"]  # it is part of the model's name
    cards = [card for each in odar.agents.cards.values() for card in each]
    facts: dict[str, Any] = {
        "agents": agents,
        "models": {card.name: _card_facts(odar, card) for card in cards},
        "prompts": {step.value: md5 for step, md5 in current_prompt_md5s(odar).items()},
        "samples": settings.routing.samples,
    }
    return dict(json.loads(json.dumps(facts)))


def current_prompt_md5s(odar: Odar) -> dict[Step, str]:
    """The MD5 of each step's prompt for exact questions, by which a calibration knows its agents."""
    return {step: prompt.md5 for step, prompt in odar.agents.prompts.exact.items()}


def model_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the default model of each agent, without alternatives and the number of samples."""
    agents = {
        name: {key: value for key, value in agent.items() if key != "alternatives"}
        for name, agent in facts.get("agents", {}).items()
    }
    names = {agent.get("model") for agent in agents.values()}
    models = {name: card for name, card in facts.get("models", {}).items() if name in names}
    return {"agents": agents, "models": models, "prompts": facts.get("prompts", {})}


def describe_changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """The differences of two trees of facts in parentheses, the first three by name; empty if there are none.

    >>> describe_changes({"slow": {"temperature": 0.3}}, {"slow": {"temperature": 1.0}})
    ' (slow.temperature was 1.0 and is 0.3)'
    """
    changes = [f"{name} was {old} and is {new}" for name, old, new in changed_facts(now, before)]
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f" ({'; '.join(changes[:3])}{more})" if changes else ""


def changed_facts(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The names of the facts that differ, with their values before and now.

    >>> changed_facts({"slow": {"model": "a"}}, {"slow": {"model": "b"}})
    [('slow.model', 'b', 'a')]
    """
    old = dict(_flatten(before))
    new = dict(_flatten(now))
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return [(name, old.get(name, "missing"), new.get(name, "missing")) for name in changed]


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def digest_json(value: Any) -> str:
    """A short hash of plain data and dataclasses, of which fields with their default do not count.

    >>> digest_json(["2 + 2?", 42]) == digest_json(("2 + 2?", 42)) != digest_json(["2 + 2?", 43])
    True
    """
    text = json.dumps(_canonical(value), sort_keys=True, default=msgspec.to_builtins)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """A new field of a dataclass changes no digest while it has its default."""
    if isinstance(value, tuple | list):
        return list(map(_canonical, value))
    if isinstance(value, Mapping):
        return {str(name): _canonical(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        shown = {each.name for each in fields(value) if each.repr}  # without callbacks and cached values
        return {name: _canonical(each) for name, each in without_defaults(value).items() if name in shown}
    return value


def _card_facts(odar: Odar, card: ModelCard) -> dict[str, Any]:
    """Addresses and extra fields may hold a secret, so only their hash is kept."""
    provider = odar.settings.providers.get(card.provider)
    return {
        "provider": card.provider,
        "id": card.id,
        "kind": provider.kind if provider else None,
        "address": digest_json([provider.base_url, provider.recordings]) if provider else None,
        "weights": model_sha256(card.id) if provider and provider.kind == "local" else None,
        "together": card.n,
        "logprobs": card.logprobs,
        "drop": list(card.drop),
        "extra": digest_json(dict(card.extra)),
    }


def model_entry(card: ModelCard) -> dict[str, Any]:
    """A model as an entry of the settings, without extra fields, which may hold a secret."""
    entry = {key: value for key, value in _plain(card).items() if key not in ("name", "extra")}
    return {**entry, "price": entry["price"] or {}}


def _plain(value: Any) -> Any:
    """A value as plain data; infinity becomes a string, which `to_settings` reads."""
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return list(map(_plain, value))
    return _plain(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value
