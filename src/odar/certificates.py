"""The installed certificate of accuracy (SPEC 5.14): what it promises, and whether it holds for a question.

The test certified every dial from the most expensive down to `points`, with the settings, models and prompts of
that time. Others, or a drift of the served energies, remove it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from odar.agents.agents import Agents
from odar.calibration_file import FITTED, Calibration
from odar.errors import SettingsError
from odar.policy.dial import Dial
from odar.served.alignment import ServedAlignment
from odar.settings import Settings
from odar.types import Plan

_DRIFT_CHECK_S = 60.0
"""Seconds between two checks for drift of the served energies."""


class InstalledCertificate:
    """The certificate of a calibration file, which `odar certify` wrote.

    Raises:
        SettingsError: it cannot be read.
    """

    def __init__(
        self, settings: Settings, calibration: Calibration, agents: Agents, alignment: ServedAlignment
    ) -> None:
        document = calibration.made["certificate"]
        self._settings = settings
        self._fitted = calibration.settings
        self._agents = agents
        self._alignment = alignment
        self._drift: list[str] = []
        self._drift_check_at = 0.0
        try:
            self.points = msgspec.convert(document["points"], float)
            """The cheapest dial that was certified, in points of accuracy."""
            self.sources = msgspec.convert(document["sources"], list[dict[str, Any]])
            """Model, prompt and sampling of each step."""
            self.promise = (
                f"at most {document['at_most_worse']:g} less accurate than {document['against']}, "
                f"{document['confidence']:.0%} confidence"
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"{settings.calibration}: its certificate cannot be read ({error!r}); run odar calibrate again"
            ) from None

    def status(self, plan: Plan, dial: Dial) -> str:
        """Whether it holds for one question, as shown in a trace; reads a small file once a minute."""
        problems = []
        if dial.target or dial.value_usd is not None or dial.points > self.points:
            problems.append(f"the dial is {dial}")
        if plan.forced:
            problems.append("the caller chose the path")
        defaults = {agent: card.name for agent, card in self._agents.default_cards.items()}
        if dict(plan.models) != defaults:
            problems.append("other models")
        return self.describe(problems + self.problems())

    def describe(self, problems: Sequence[str]) -> str:
        """As shown in a trace."""
        return f"removed: {'; '.join(problems)}" if problems else f"holds: {self.promise}"

    def problems(self) -> list[str]:
        """Why it holds for no question: other settings, models or prompts, or drift."""
        used = {key: attrgetter(key)(self._settings) for key in FITTED}
        changed = {key: value for key, value in self._fitted.items() if used[key] != value}
        reasons = [f"{key} = {used[key]} in place of {value}" for key, value in changed.items()]
        current = [dataclasses.asdict(source) for source in self._agents.sources().values()]
        if current != self.sources:
            reasons.append(f"another {_difference(self.sources, current)} than it was certified with")
        if time.monotonic() >= self._drift_check_at:
            self._drift_check_at = time.monotonic() + _DRIFT_CHECK_S
            rows = [row for row in self._alignment.report(self._agents.prompt_steps()) if row.drifting]
            self._drift = [f"the energies of {row.model} {row.step} drift" for row in rows]
        return reasons + self._drift


def open_certificate(
    settings: Settings, calibration: Calibration, agents: Agents, alignment: ServedAlignment
) -> InstalledCertificate | None:
    """The certificate of the calibration; None without one."""
    if not calibration.made.get("certificate"):
        return None
    return InstalledCertificate(settings, calibration, agents, alignment)


def _difference(certified: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]) -> str:
    """The first field in which two lists of sources differ."""
    names = {"prompt_md5": "prompt"}
    for before, after in zip(certified, current, strict=False):
        if before != after:
            return next((names.get(key, key) for key in before if before[key] != after.get(key)), "source")
    return "number of steps"
