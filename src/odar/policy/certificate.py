"""Installed certificate of accuracy (SPEC 5.14): its thresholds, its violations, and the effect of feedback.

The test certified every setting from always Hard (t = 1) down to t*. Feedback therefore moves t between t* and 1:
it adds calls and removes them again, and accuracy never falls below what was certified.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from odar.errors import SettingsError
from odar.policy.path import Thresholds
from odar.policy.target import ThresholdPath

STEP = 0.01
"""Maximum increase of t after a wrong answer."""
_GRID = 50
"""Steps of t: settings are certified at t = 0, 1/50, …, 1."""
HOLDS = "holds"
"""First word of the state of a certificate without violations."""


@dataclass(frozen=True, slots=True)
class InstalledCertificate:
    """The certificate of a calibration file."""

    at_most_worse: float
    confidence: float
    against: str
    t: float
    """The cheapest setting that was certified."""
    path: ThresholdPath
    reference_accuracy: float
    sources: tuple[Mapping[str, Any], ...]
    """Model, prompt and sampling of each step."""
    digest: str
    """Key of this certificate in the store."""

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any] | None, origin: str = "calibration"
    ) -> InstalledCertificate | None:
        """Return the certificate that `odar calibrate --at-most-worse` wrote; None if there is none."""
        if document is None:
            return None
        try:
            digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
            path = {"knots": document["path"]}
            return msgspec.convert({**document, "path": path, "digest": digest}, cls)
        except (KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"{origin}: its certificate cannot be read ({error!r}); run odar calibrate again"
            ) from None

    def __str__(self) -> str:
        worse = f"at most {self.at_most_worse:g} less accurate than {self.against}"
        return f"{worse}, {self.confidence:.0%} confidence"

    def thresholds(self, t: float) -> Thresholds:
        """Return the certified thresholds at t; between two certified settings, those of the more expensive one."""
        steps = math.ceil(max(t, self.t) * _GRID - 1e-9) / _GRID
        tau1, tau2 = self.path.thresholds(min(1.0, steps))
        return Thresholds(round(tau1, 9), round(tau2, 9))

    def violations(
        self,
        fitted: Mapping[str, Any],
        used: Mapping[str, Any],
        sources: Iterable[Mapping[str, Any]],
        experts: bool,
    ) -> list[str]:
        """Return the reasons why the certificate does not hold for these settings; empty if it does.

        Args:
            fitted: settings of the calibration file by key.
            used: the effective values of the same keys.
            sources: current model, prompt and sampling of each step.
            experts: whether single experts have their own thresholds.
        """
        reasons = [
            f"{key} = {used[key]} in place of {value}" for key, value in fitted.items() if used[key] != value
        ]
        current = tuple(map(dict, sources))
        if current != self.sources:
            changed = [_difference(a, b) for a, b in zip(self.sources, current, strict=False) if a != b]
            reasons.append(f"another {changed[0] if changed else 'number of steps'} than it was certified with")
        if experts:
            reasons.append("thresholds of single experts")
        return reasons

    def state(self, violations: Sequence[str]) -> str:
        """Return the state of the certificate as shown in a trace."""
        return f"removed: {'; '.join(violations)}" if violations else f"{HOLDS}: {self}"

    def after_feedback(self, t: float, correct: bool) -> float:
        """Return t after feedback on one answer: it rises if more answers are wrong than the certificate allows.

        With a = 1 − (reference accuracy − allowed loss), a wrong answer adds STEP·(1 − a) and a right one subtracts
        STEP·a, so that t is stable where a share a of the marked answers is wrong; t stays within [t*, 1].
        """
        allowed = 1.0 - (self.reference_accuracy - self.at_most_worse)
        moved = t + STEP * ((0.0 if correct else 1.0) - min(1.0, max(0.0, allowed)))
        return min(1.0, max(self.t, moved))


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = {"model": "model", "prompt_md5": "prompt"}
    return next((names.get(key, key) for key in before if before[key] != after.get(key)), "source")
