"""What is known of a source of candidates: μ and σ of its free energies, and its skill (SPEC 5.5, 5.10b)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from odar.fusion.energy import Alignment


@dataclass(frozen=True, slots=True)
class Source:
    """Where candidates come from. Change any part of it, and its statistics no longer hold."""

    model: str
    prompt_md5: str
    temperature: float
    top_p: float
    max_tokens: int
    varentropy_weight: float
    scorer: str = ""
    """The surrogate whose log-probs these are; empty for the model's own."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """How a source behaves on a calibration set."""

    mean: float
    """μ of its free energies."""
    deviation: float
    """σ of its free energies."""
    count: int
    """Candidates behind μ and σ."""
    skill: float = 1.0
    """w_m: its weight in a vote, from its accuracy; 1 is the best source of its set."""
    log_tokens_mean: float | None = None
    """Mean of ln(1 + tokens) of its answers, for the posterior difficulty (SPEC 5.11); None where not measured."""
    log_tokens_deviation: float | None = None
    """Its deviation."""

    @property
    def alignment(self) -> Alignment:
        """μ and σ as they are applied."""
        return Alignment(self.mean, self.deviation)

    def length_score(self, tokens: int) -> float | None:
        """How long an answer is among those of this source, as a z-score of ln(1 + tokens); None where unknown.

        >>> Statistics(0.2, 0.1, 50, log_tokens_mean=3.0, log_tokens_deviation=0.5).length_score(0)
        -6.0
        """
        if self.log_tokens_mean is None or not self.log_tokens_deviation:
            return None
        return (math.log1p(tokens) - self.log_tokens_mean) / self.log_tokens_deviation


class StatisticsTable:
    """Statistics by source.

    >>> StatisticsTable({}).find(Source("m", "0" * 32, 0.2, 0.9, 96, 0.1)) is None
    True
    """

    def __init__(self, entries: Mapping[Source, Statistics]) -> None:
        self.entries = dict(entries)

    def find(self, source: Source) -> Statistics | None:
        """The statistics of this very source, or None: such a source is uncalibrated."""
        return self.entries.get(source)

    def to_rows(self) -> list[dict[str, Any]]:
        """The table as JSON-ready rows."""
        return [{**asdict(source), **asdict(statistics)} for source, statistics in self.entries.items()]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> StatisticsTable:
        """Read what `to_rows` wrote; raises KeyError or TypeError where a row lacks something."""
        return cls({_read(Source, row): _read(Statistics, row) for row in rows})


def source_from_row(row: Mapping[str, Any]) -> Source:
    """The source among other things in a row; raises KeyError where something is missing."""
    source: Source = _read(Source, row)
    return source


def _read(kind: Any, row: Mapping[str, Any]) -> Any:
    """A field with a default may be missing: files outlive the code that wrote them."""
    optional = {field.name for field in fields(kind) if field.default is not MISSING}
    known = (field.name for field in fields(kind) if field.name in row or field.name not in optional)
    return kind(**{name: row[name] for name in known})
