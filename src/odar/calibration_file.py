"""The file that `odar calibrate` writes: all parameters fitted to one pair of models."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from odar.errors import SettingsError
from odar.files import user_path
from odar.formats import check_format, load_json
from odar.policy.alignment import Source, Statistics, statistics_from_rows, statistics_to_rows

FORMAT = "odar-calibration-1"
SHIPPED = ("local", "tiny")
Setting = float | str | Mapping[str, float]
FITTED = (
    "routing.tau1", "routing.tau2", "routing.tau1_by_expert", "routing.tau2_by_expert", "routing.mode",
    "fusion.beta", "fusion.judge",
)  # fmt: skip
"""Settings that a calibration may contain: a file from elsewhere must not decide where keys are sent."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted parameters, and the evidence for them."""

    statistics: Mapping[Source, Statistics] = field(default_factory=dict)
    """μ, σ, skill and quantiles; a source that is missing is uncalibrated."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Fitted settings by key, such as fusion.beta; they rank above the profile and below the user's own."""
    posterior: Mapping[str, Any] | None = None
    """Coefficients of the posterior difficulty; None for the shipped ones."""
    estimator: Mapping[str, Any] | None = None
    """Weights of the difficulty estimator; None for the shipped ones."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """Command, data, versions."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Expected accuracy, calls and cost, before and after, on held-out folds."""

    def to_json(self) -> str:
        """Return the file's text."""
        settings = {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in self.settings.items()
        }
        body: dict[str, Any] = {"format": FORMAT, "made": self.made, "report": self.report, "settings": settings}
        sources = statistics_to_rows(self.statistics)
        body |= {"posterior": self.posterior, "estimator": self.estimator, "sources": sources}
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
            settings = {key: _setting(value) for key, value in body["settings"].items()}
            rest = {name: body[name] for name in ("posterior", "estimator", "made", "report")}
            return cls(statistics_from_rows(body["sources"]), settings, **rest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"{origin} is not a calibration file: {error!r}") from None


def load_calibration(name: str) -> Calibration:
    """Return a shipped calibration by name, a file, or the empty one for an empty name.

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


def _setting(value: Any) -> Setting:
    """Return a number, "inf" among them, a word such as a routing mode, or numbers by name."""
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    try:
        return float(value)
    except ValueError:
        return str(value)
