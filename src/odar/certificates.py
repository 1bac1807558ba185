"""Whether the installed certificate (SPEC 5.14) holds for a question: same settings, models, prompts, no drift."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from operator import attrgetter

from odar.agents.agents import Agents
from odar.calibration_file import FITTED, Calibration
from odar.policy.certificate import InstalledCertificate
from odar.policy.dial import Dial
from odar.settings import Settings
from odar.store.alignment import ServedAlignment
from odar.types import Plan

_DRIFT_CHECK_S = 60.0
"""Seconds between two checks for drift of the served energies."""


@dataclass(slots=True)
class CertificateCheck:
    """Checks one installed certificate."""

    certificate: InstalledCertificate
    settings: Settings
    calibration: Calibration
    agents: Agents
    alignment: ServedAlignment
    _drift: list[str] = field(default_factory=list)
    _drift_check_at: float = 0.0

    @classmethod
    def of(
        cls, settings: Settings, calibration: Calibration, agents: Agents, alignment: ServedAlignment
    ) -> CertificateCheck | None:
        """Return the check of the calibration's certificate; None if it has none."""
        certificate = InstalledCertificate.from_dict(calibration.made.get("certificate"), settings.calibration)
        return None if certificate is None else cls(certificate, settings, calibration, agents, alignment)

    def state(self, plan: Plan, dial: Dial) -> str:
        """Return whether the certificate holds for one question; reads a small file once a minute."""
        problems = []
        if dial.target or dial.value_usd is not None or dial.points > self.certificate.points:
            problems.append(f"the dial is {dial}")
        if plan.forced:
            problems.append("the caller chose the path")
        defaults = {agent: cards[0].name for agent, cards in self.agents.cards.items()}
        if dict(plan.agents) != defaults:
            problems.append("other models")
        return self.certificate.state(problems + self.problems())

    def problems(self) -> list[str]:
        """Return why the certificate holds for no question: other settings, models or prompts, or drift."""
        used = {key: attrgetter(key)(self.settings) for key in FITTED}
        sources = [dataclasses.asdict(source) for source in self.agents.sources().values()]
        if time.monotonic() >= self._drift_check_at:
            self._drift_check_at = time.monotonic() + _DRIFT_CHECK_S
            rows = [row for row in self.alignment.report(self.agents.prompt_steps()) if row.drifting]
            self._drift = [f"the energies of {row.model} {row.step} drift" for row in rows]
        return self.certificate.violations(self.calibration.settings, used, sources) + self._drift
