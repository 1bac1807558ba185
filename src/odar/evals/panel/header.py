"""What a panel depends on, written into it: models, prompts, sampling, settings, calibration, versions.

A replay needs nothing but the panel, and a panel made by something else is never mixed with it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odar import __version__
from odar.agents.terms import agent_terms
from odar.calibration.provenance import digest
from odar.calibration_file import Calibration
from odar.catalogue import ModelCard
from odar.conversation import NO_OPTIONS
from odar.engine import Odar
from odar.errors import InputError
from odar.formats import check_format, load_json
from odar.types import Role, Step

FORMAT = "odar-panel-2"
"""The version of the schema; a panel of another one is refused, not guessed at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The facts about a panel."""

    made_by: str
    """A digest of what its answers depend on."""
    samples: int
    """Slow samples of each item."""
    settings: Mapping[str, Any]
    """Profile, both agents, routing, fusion and dispatch, as they were."""
    models: Mapping[str, list[str]]
    """The models of each role, the default first."""
    together: Mapping[str, bool]
    """By model: whether one request gives several samples."""
    prompts: Mapping[str, str]
    """The MD5 of each step's prompt."""
    sources: list[dict[str, Any]]
    """On what terms each model answers each step: what alignment statistics are looked up by."""
    calibration: Mapping[str, Any]
    """The calibration in use, whole."""
    versions: Mapping[str, str] = field(default_factory=dict)
    format: str = FORMAT

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, origin: str) -> Header:
        """What `to_json` wrote.

        Raises:
            InputError: it is something else, or of another version.
        """
        try:
            body = load_json(text)
            check_format(body.get("format"), FORMAT, origin, "collect it again, into another folder")
            return cls(**body)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{origin} is not a panel: {error}") from None


def header_of(odar: Odar, path_samples: int) -> Header:
    """The header of a panel that this engine makes; `path_samples` is how many slow samples the Hard path takes.

    A panel may hold more of them than the path, for best-of-N curves: as many as the engine's own setting says.
    """
    settings = odar.settings
    parts = {name: _plain(asdict(getattr(settings, name))) for name in _PARTS}
    parts["routing"]["samples"] = path_samples
    return Header(
        made_by=fingerprint(odar),
        samples=settings.routing.samples,
        settings={
            "profile": settings.profile,
            "prompts": settings.prompts,
            "calibration": settings.calibration,
            **parts,
        },
        models={role.value: [card.name for card in odar.cards[role]] for role in Role},
        together={card.name: card.n for cards in odar.cards.values() for card in cards},
        prompts={step.value: prompt.md5 for step, prompt in odar.prompts.items()},
        sources=[_source(odar, card, step) for step in Step for card in odar.cards[step.role]],
        calibration=json.loads(odar.calibration.to_json()),
        versions={"odar": __version__, "python": platform.python_version()},
    )


def refuse_other(found: Header, wanted: Header, path: Path) -> None:
    """Raise where a file was made with other models, prompts, sampling or number of samples."""
    if found.made_by != wanted.made_by:
        raise InputError(
            f"{path} was made with other models, prompts, sampling or --samples ({found.made_by}, not "
            f"{wanted.made_by}); choose another --out, or go back to those"
        )


def fingerprint(odar: Odar) -> str:
    """A digest of what a panel's answers depend on: models, prompts, sampling and how many samples.

    How long an agent may take, how paths are chosen and how answers are fused may change; a replay changes it, too.
    """
    agents = {role.value: asdict(odar.settings.agent(role)) for role in Role}
    for agent in agents.values():
        del agent["timeout_s"]
    prompts = {step.value: prompt.md5 for step, prompt in odar.prompts.items()}
    facts = {
        **agents,
        "prompts": prompts,
        "samples": odar.settings.routing.samples,
        "dispatch": odar.settings.dispatch.models,
    }
    return digest(facts)


def _source(odar: Odar, card: ModelCard, step: Step) -> dict[str, Any]:
    """The terms as the engine looks them up: the length limit is the one that fits the model's context."""
    sampling = agent_terms(odar.settings.agent(step.role), card, NO_OPTIONS, None).sampling
    return {
        "step": step.value,
        "model": card.name,
        "prompt_md5": odar.prompts[step].md5,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }


_PARTS = ("fast", "slow", "routing", "fusion", "dispatch")


def calibration_of(header: Header) -> Calibration:
    """The calibration that was in use when the panel was made."""
    return Calibration.from_json(json.dumps(header.calibration), "the panel's calibration")


def _plain(tree: dict[str, Any]) -> dict[str, Any]:
    """As it will be read again: lists for tuples; infinity, which has no JSON, as a string that float() reads."""
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in tree.items()}
    return {name: str(value) if value == float("inf") else value for name, value in listed.items()}
