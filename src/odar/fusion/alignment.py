"""μ and σ per model, prompt and sampling settings: what makes free energies of two models comparable (SPEC 5.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from odar.errors import SettingsError
from odar.fusion.energy import Alignment

FORMAT = "odar-alignment-1"


@dataclass(frozen=True, slots=True)
class Source:
    """Where free energies come from. Change any part of it, and its statistics no longer hold."""

    model: str
    prompt_md5: str
    temperature: float
    top_p: float
    max_tokens: int
    varentropy_weight: float


class AlignmentTable:
    """Alignment statistics by source.

    >>> AlignmentTable({}).find(Source("m", "0" * 32, 0.2, 0.9, 96, 0.1)) is None
    True
    """

    def __init__(self, entries: Mapping[Source, Alignment]) -> None:
        self._entries = dict(entries)

    def find(self, source: Source) -> Alignment | None:
        """The statistics of this very source, or None: such a model is uncalibrated."""
        return self._entries.get(source)

    @classmethod
    def shipped(cls) -> AlignmentTable:
        """The statistics in the package: the embedded model with its own prompts."""
        return cls.from_json(resources.files("odar.fusion").joinpath("alignment.json").read_text(encoding="utf-8"))

    @classmethod
    def from_json(cls, text: str) -> AlignmentTable:
        """Read what `to_json` wrote; refuse anything else."""
        try:
            tree = json.loads(text)
            if tree["format"] != FORMAT:
                raise SettingsError(f"alignment file has format {tree['format']!r}; this version reads {FORMAT!r}")
            return cls({_source(row): Alignment(row["mean"], row["deviation"]) for row in tree["sources"]})
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"alignment file cannot be read: {error!r}") from None


def to_json(rows: Iterable[tuple[Source, Alignment, int]], command: str) -> str:
    """A file that `from_json` reads: sources, statistics, the count behind them and how they were measured."""
    sources = [
        {
            **{name: getattr(source, name) for name in Source.__slots__},
            "mean": alignment.mean,
            "deviation": alignment.deviation,
            "count": count,
        }
        for source, alignment, count in rows
    ]
    return json.dumps({"format": FORMAT, "command": command, "sources": sources}, indent=2) + "\n"


def _source(row: Mapping[str, Any]) -> Source:
    return Source(**{name: row[name] for name in Source.__slots__})
