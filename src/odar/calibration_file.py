"""The file that `odar calibrate` writes: what was measured of the agents, and what was chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import msgspec

from odar.errors import SettingsError
from odar.files import user_path
from odar.formats import check_format, load_json
from odar.policy.alignment import Source, Statistics, statistics_from_rows, statistics_to_rows
from odar.policy.belief import Belief

FORMAT = "odar-calibration-2"
SHIPPED = ("local", "tiny")
Setting = int | float | str | Sequence[str]
FITTED = ("policy", "routing.dial", "routing.stages", "routing.samples", "routing.tau1", "routing.tau2")
"""Settings that a calibration may contain: a file from elsewhere must not decide where keys are sent."""


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
        return any(each.accuracy is not None for each in self.statistics.values())

    def load_belief(self) -> Belief:
        """The shipped belief with the fitted weights; raises InputError if one of them is invalid."""
        shipped = Belief.load()
        if not self.belief:
            return shipped
        return Belief.from_dict({**shipped.to_dict(), "weights": {**shipped.weights, **self.belief}}, "calibration")

    def to_json(self) -> str:
        body: dict[str, Any] = {
            "format": FORMAT,
            "made": self.made,
            "report": self.report,
            "settings": self.settings,
        }
        sources = statistics_to_rows(self.statistics)
        body |= {"belief": self.belief, "sources": sources}
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
            rest = {name: body[name] for name in ("belief", "made", "report")}
            return cls(statistics_from_rows(body["sources"]), settings, **rest)
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
    try:
        return Calibration.from_json(file.read_text(encoding="utf-8"), f"calibration {name}")
    except OSError as error:
        raise SettingsError(f"calibration = {name!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"calibration = {name!r} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # an invalid file name, or JSON nested too deeply
        raise SettingsError(f"calibration = {name!r} cannot be read: {error}") from None
