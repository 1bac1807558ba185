"""Installed certificate of accuracy (SPEC 5.14): what it promises, and why it does not hold.

The test certified every dial from the most expensive down to `points`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from odar.errors import SettingsError

HOLDS = "holds"
"""First word of the state of a certificate without violations."""


@dataclass(frozen=True, slots=True)
class InstalledCertificate:
    """The certificate of a calibration file."""

    at_most_worse: float
    confidence: float
    against: str
    points: float
    """The cheapest dial that was certified, in points of accuracy."""
    sources: tuple[Mapping[str, Any], ...]
    """Model, prompt and sampling of each step."""
    digest: str
    """Identifies this certificate."""

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any] | None, origin: str = "calibration"
    ) -> InstalledCertificate | None:
        """Return the certificate that `odar calibrate --at-most-worse` wrote; None if there is none."""
        if document is None:
            return None
        try:
            digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
            return msgspec.convert({**document, "digest": digest}, cls)
        except (KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"{origin}: its certificate cannot be read ({error!r}); run odar calibrate again"
            ) from None

    def __str__(self) -> str:
        worse = f"at most {self.at_most_worse:g} less accurate than {self.against}"
        return f"{worse}, {self.confidence:.0%} confidence"

    def violations(
        self, fitted: Mapping[str, Any], used: Mapping[str, Any], sources: Iterable[Mapping[str, Any]]
    ) -> list[str]:
        """Return the reasons why the certificate does not hold for these settings; empty if it does.

        Args:
            fitted: settings of the calibration file by key.
            used: the effective values of the same keys.
            sources: current model, prompt and sampling of each step.
        """
        reasons = [
            f"{key} = {used[key]} in place of {value}" for key, value in fitted.items() if used[key] != value
        ]
        current = tuple(map(dict, sources))
        if current != self.sources:
            changed = [_difference(a, b) for a, b in zip(self.sources, current, strict=False) if a != b]
            reasons.append(f"another {changed[0] if changed else 'number of steps'} than it was certified with")
        return reasons

    def state(self, violations: Sequence[str]) -> str:
        """Return the state of the certificate as shown in a trace."""
        return f"removed: {'; '.join(violations)}" if violations else f"{HOLDS}: {self}"


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = {"model": "model", "prompt_md5": "prompt"}
    return next((names.get(key, key) for key in before if before[key] != after.get(key)), "source")
