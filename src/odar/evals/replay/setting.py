"""ODAR in any setting: everything about it that a replay can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from odar.difficulty.features import GROUPS
from odar.errors import InputError, UnknownName
from odar.recording.header import Header
from odar.settings import ROUTING_MODES

NO_FUSION = "none"
"""Not a rule: the slow agent's first answer, whatever the others say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How ODAR routes and fuses."""

    tau1: float
    tau2: float
    n: int
    """Slow samples on the Hard path."""
    mode: str
    """prior or posterior (SPEC 5.11)."""
    clearly_hard: float
    estimator: str
    without: str = ""
    """The estimator is trained again on the other folds of the recording, without a group of features: lexical,
    structural or semantic (SPEC 2.8); `none` trains with all. Empty: the estimator as it is."""
    dispatch: bool = True
    """Off: only the default pair (SPEC 4.4)."""
    rule: str
    lam: float
    """λ of F = E + λ·V."""
    beta: float
    missing_limit: float
    similarity: str
    """How free text is compared: as recorded, or `none` for exact comparison (SPEC 5.15)."""
    stop: float | None
    """Confidence at which sampling stops (SPEC 5.12); None takes every sample."""
    first_wave: int
    statistics: str = "calibration"
    """μ and σ from the calibration in use, as the engine has them, or from the panel itself, for which no label
    is needed; `none` compares energies without z-scores."""

    def __post_init__(self) -> None:
        if self.tau1 > self.tau2:
            raise InputError(f"tau1 = {self.tau1:g} is above tau2 = {self.tau2:g}")
        for value, name, known in (
            (self.mode, "mode", ROUTING_MODES),
            (self.without or "none", "group of features", ("none", *GROUPS)),
            (self.statistics, "source of statistics", ("calibration", "panel", "none")),
        ):
            if value not in known:
                raise UnknownName(name, value, known)

    @classmethod
    def of(cls, header: Header) -> Setting:
        """As the panel's engine was set."""
        routing, fusion = header.settings["routing"], header.settings["fusion"]
        return cls(
            tau1=routing["tau1"],
            tau2=routing["tau2"],
            n=min(routing["samples"], header.samples),
            mode=routing["mode"],
            clearly_hard=routing["clearly_hard"],
            estimator=routing["estimator"],
            rule=fusion["rule"],
            lam=fusion["varentropy_weight"],
            beta=float(fusion["beta"]),
            missing_limit=fusion["missing_limit"],
            similarity=fusion.get("similarity", "lexical"),
            stop=fusion["stop_confidence"],
            first_wave=fusion["first_wave"],
        )

    def changed(self, options: Mapping[str, str]) -> Setting:
        """With some of it changed, as a user writes it: {"tau1": "0.2", "lambda": "0.5", "stop": "none"}.

        Raises:
            InputError: a value cannot be read.
            UnknownName: there is no such option.
        """
        kinds = {field.name: str(field.type) for field in fields(self)}
        changes: dict[str, Any] = {}
        for written, value in options.items():
            name = "lam" if written == "lambda" else written
            if name not in kinds:
                raise UnknownName("option of odar", written, {*kinds, "lambda"} - {"lam"})
            changes[name] = _read(written, value, kinds[name])
        return replace(self, **changes)


def _read(name: str, value: str, kind: str) -> Any:
    try:
        if kind == "float | None" and value in ("none", "off"):
            return None
        if kind == "bool":
            return {"on": True, "true": True, "off": False, "false": False}[value]
        return {"int": int, "str": str}.get(kind, float)(value)
    except (ValueError, KeyError):
        raise InputError(f"{name} = {value!r} is not {'on or off' if kind == 'bool' else 'a number'}") from None
