"""A certificate in use (SPEC 5.14): what it promises, what removes it, and how feedback moves t within it.

The test certified every setting from always Hard (t = 1) down to t*. Feedback therefore moves t between t* and 1:
it can buy more calls, and take that back, but never less accuracy than was certified.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from odar.errors import SettingsError
from odar.policy.path import Thresholds
from odar.policy.target import ThresholdPath

STEP = 0.01
"""Maximum increase of t after a wrong answer."""
_GRID = 50
"""Settings are certified at t = 0, 1/50, …, 1; between two of them, the more expensive one is used."""


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
    """Names this certificate in the store."""

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any] | None, origin: str = "calibration"
    ) -> InstalledCertificate | None:
        """Read what `odar calibrate --at-most-worse` wrote; None if there is no certificate."""
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
        """Return why the certificate does not hold for these settings; empty if it does.

        Args:
            fitted: settings of the calibration file by key.
            used: the effective values of the same keys.
            sources: model, prompt and sampling of each step as they are now.
            experts: whether single experts have thresholds of their own.
        """
        found = [f"{key} = {used[key]} in place of {value}" for key, value in fitted.items() if used[key] != value]
        now = tuple(map(dict, sources))
        if now != self.sources:
            changed = [_difference(a, b) for a, b in zip(self.sources, now, strict=False) if a != b]
            found.append(f"another {changed[0] if changed else 'number of steps'} than it was certified with")
        if experts:
            found.append("thresholds of single experts")
        return found

    def after_feedback(self, t: float, correct: bool) -> float:
        """t after one answer was marked: it rises where answers are wrong more often than the certificate allows.

        With a = 1 − (reference accuracy − allowed loss), a wrong answer adds STEP·(1 − a) and a right one takes
        STEP·a away, so that t rests where a share a of the marked answers is wrong; t never leaves [t*, 1].
        """
        allowed = 1.0 - (self.reference_accuracy - self.at_most_worse)
        moved = t + STEP * ((0.0 if correct else 1.0) - min(1.0, max(0.0, allowed)))
        return min(1.0, max(self.t, moved))


HOLDS = "holds"


def describe(certificate: InstalledCertificate, problems: Iterable[str]) -> str:
    """Return the state of a certificate in the words of a trace."""
    reasons = list(problems)
    return f"removed: {'; '.join(reasons)}" if reasons else f"{HOLDS}: {certificate}"


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    names = {"model": "model", "prompt_md5": "prompt"}
    return next((names.get(key, key) for key in before if before[key] != after.get(key)), "source")
