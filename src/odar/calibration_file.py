"""The file that `odar calibrate` writes: what was measured of the agents, and what was chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

import msgspec

from odar.errors import SettingsError
from odar.files import read_errors, user_path
from odar.formats import check_format, load_json
from odar.policy.belief import Belief
from odar.policy.energy import Alignment
from odar.policy.signals import QuantileTables, shipped_tables

FORMAT = "odar-calibration-2"
SHIPPED = ("local", "tiny")
Setting = int | float | str | Sequence[str]
FITTED = ("policy", "routing.dial", "routing.stages", "routing.samples", "routing.tau1", "routing.tau2")
"""Settings that a calibration may contain: a file from elsewhere must not decide where keys are sent."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model, prompt and sampling that produce candidates. Statistics are valid only for an identical source."""

    model: str
    prompt_md5: str
    temperature: float
    top_p: float
    max_tokens: int
    varentropy_weight: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one source on a calibration set."""

    mean: float
    """μ of its free energies."""
    deviation: float
    """σ of its free energies."""
    count: int
    """Candidates behind μ and σ."""
    skill: float = 1.0
    """w_m: its weight in a vote, from its accuracy; 1 is the best source of the set."""
    accuracy: float | None = None
    """Share of its answers that were right, for the belief (SPEC 9.3); None if not measured."""
    quantiles: Mapping[str, Mapping[str, Sequence[float]]] | None = None
    """Quantiles of the signals of its answers (SPEC 5.11); None if not measured."""
    prompt_tokens: float | None = None
    """Mean tokens of its prompts beyond those of the question, for prices (SPEC 9.4); None if not measured."""
    output_tokens: float | None = None
    """Mean tokens of its answers; None if not measured."""
    unanswered: float = 0.0
    """Share of its answers that were cut off or empty."""
    accuracy_by_kind: Mapping[str, float] | None = None
    """`accuracy` by kind of question, shrunk towards that of all questions; None if not measured."""

    @property
    def alignment(self) -> Alignment:
        return Alignment(self.mean, self.deviation)

    @property
    def tables(self) -> QuantileTables:
        """The quantiles as tables for looking up ranks, with the shipped ones for those that are missing.

        Raises ValueError if they are invalid.
        """
        if self.quantiles is None:
            return shipped_tables()
        return QuantileTables.from_dict(self.quantiles).with_fallback(shipped_tables())


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted parameters, and the evidence for them."""

    statistics: Mapping[Source, Statistics] = field(default_factory=dict)
    """μ, σ, accuracy, quantiles and lengths; a source that is missing is uncalibrated."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Chosen settings by key, such as routing.dial; they rank above the profile and below the user's own."""
    belief: Mapping[str, float] | None = None
    """Fitted weights of the belief by name; the others are the shipped ones."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """Command, data, versions."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Accuracy, calls and cost of the choices on held-out folds, and the recommendation."""

    @property
    def has_skills(self) -> bool:
        """Whether it measured how often an agent is right."""
        return any(known.accuracy is not None for known in self.statistics.values())

    def load_belief(self) -> Belief:
        """The shipped belief with the fitted weights; raises InputError if one of them is invalid."""
        shipped = Belief.load()
        return shipped.changed(self.belief, "calibration") if self.belief else shipped

    def to_json(self) -> str:
        body = {
            "format": FORMAT,
            "made": self.made,
            "report": self.report,
            "settings": self.settings,
            "belief": self.belief,
            "sources": [{**asdict(source), **asdict(values)} for source, values in self.statistics.items()],
        }
        return json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str) -> Calibration:
        """Read a calibration.

        Raises:
            SettingsError: the text is not a calibration, or of another version.
        """
        try:
            body = load_json(text)
            check_format(body.get("format"), FORMAT, origin, "run `odar calibrate` again", SettingsError)
            if unknown := sorted(set(body["settings"]) - set(FITTED)):
                raise SettingsError(f"{origin} sets {unknown[0]}; a calibration may only set {', '.join(FITTED)}")
            settings = msgspec.convert(body["settings"], dict[str, int | float | str | tuple[str, ...]])
            statistics = {msgspec.convert(row, Source): msgspec.convert(row, Statistics) for row in body["sources"]}
            for known in statistics.values():
                _ = known.tables  # raises ValueError if they are invalid
            return cls(statistics, settings, body["belief"], body["made"], body["report"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"{origin} is not a calibration file: {error!r}") from None


def load_calibration(name: str) -> Calibration:
    """A shipped calibration by name, a file, or the empty one for an empty name.

    >>> load_calibration("").statistics
    {}
    """
    if not name:
        return Calibration()
    if name in SHIPPED:
        file: Any = resources.files("odar.data").joinpath(f"calibration-{name}.json")
    else:
        file = user_path(name, setting="calibration")
    with read_errors(f"calibration = {name!r}", SettingsError):
        text = file.read_text(encoding="utf-8")
    return Calibration.from_json(text, f"calibration {name}")
