"""What recorded answers depend on: models, prompts, sampling, and how samples are taken.

Answers that were made in another way are never mixed with these. Other settings may change without asking anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from odar.agents.waves import PROCEDURE
from odar.types import Role

if TYPE_CHECKING:
    from odar.catalogue import ModelCard
    from odar.engine import Odar


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where answers come from, as plain facts.

    >>> before, now = Provenance({"slow": {"temperature": 1.0}}), Provenance({"slow": {"temperature": 0.3}})
    >>> now.changes(before)
    ['slow.temperature was 1.0 and is 0.3']
    """

    facts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A short name for these facts."""
        return digest(self.facts)

    def header(self, kind: str) -> dict[str, Any]:
        """The first line of a file of such answers, in a format of this name."""
        return {"format": kind, "made_by": self.digest, "facts": json.loads(json.dumps(self.facts))}

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Self | None:
        """What made a file, by its first line; None where that does not say (files of before 2026-11-16)."""
        facts = header.get("facts")
        return cls(facts) if isinstance(facts, Mapping) else None

    def since(self, header: Mapping[str, Any]) -> str:
        """What changed since a file with this first line was made, as the end of a sentence."""
        return told(self, Provenance.of_header(header))

    def changes(self, before: Provenance) -> list[str]:
        """What is not as it was, in words."""
        old, new = dict(_flat(before.facts)), dict(_flat(self.facts))
        return [
            f"{name} was {old.get(name, 'not there')} and is {new.get(name, 'not there')}"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
        ]


def told(now: Provenance, before: Provenance | None) -> str:
    """What changed, as the end of a sentence; empty where it is not known."""
    changes = [] if before is None else now.changes(before)
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f" ({'; '.join(changes[:3])}{more})" if changes else ""


def provenance(odar: Odar, seed: int | None = 42) -> Provenance:
    """What the answers of this engine depend on, where its default pair of models is asked."""
    settings = odar.settings
    agents = {role.value: asdict(settings.agent(role)) for role in Role}
    for agent in agents.values():
        del agent["timeout_s"], agent["alternatives"]  # how long it may take, and who else might have been asked
    fusion = settings.fusion
    facts: dict[str, Any] = {
        **agents,
        "models": {role.value: _card(odar, odar.cards[role][0]) for role in Role},
        "prompts": {step.value: prompt.md5 for step, prompt in odar.prompts.items()},
        "samples": settings.routing.samples,
        "stop_confidence": fusion.stop_confidence,
        "first_wave": fusion.first_wave if fusion.stop_confidence is not None else None,
        "procedure": PROCEDURE,
        "seed": seed,
    }
    if fusion.surrogate:
        card = settings.card(fusion.surrogate)
        facts["surrogate"] = {**_card(odar, card), "name": card.name, "missing_limit": fusion.missing_limit}
    return Provenance(facts)


def latest(folder: Path) -> tuple[Path, Provenance | None] | None:
    """The file of answers in a folder that was written to last, and what made it; None where there is none."""
    for file in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            with file.open(encoding="utf-8") as lines:
                header = json.loads(lines.readline())
            return file, Provenance.of_header(header)
        except (OSError, ValueError, AttributeError):
            continue  # not one of ours
    return None


def digest(value: Any) -> str:
    """A short name for plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _card(odar: Odar, card: ModelCard) -> dict[str, Any]:
    """Who is asked, and how. Addresses and further fields may hold a secret: only that they changed is told."""
    provider = odar.settings.providers.get(card.provider)
    return {
        "provider": card.provider,
        "id": card.id,
        "kind": provider.kind if provider else None,
        "address": digest([provider.base_url, provider.recordings]) if provider else None,
        "together": card.n,
        "logprobs": card.logprobs,
        "drop": list(card.drop),
        "extra": digest(dict(card.extra)),
    }


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, json.loads(json.dumps(value))
