"""Energies of recorded answers, made comparable between sources (SPEC 5.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import Tape
from odar.policy.alignment import Source, Statistics
from odar.policy.energy import free_energy
from odar.policy.fusion import FAST, CandidateArrays
from odar.policy.rules import Array
from odar.policy.signals import QuantileTables
from odar.recording.header import calibration_of
from odar.types import Step


def raw(tape: Tape, setting: Setting) -> Array:
    """F = E + λ·V; NaN where an answer has no log-probabilities."""
    energy, varentropy = tape.answers.energy, tape.answers.varentropy
    return np.asarray(free_energy(energy, varentropy, setting.lam))  # type: ignore[arg-type]  # arrays add up alike


def candidates_of(tape: Tape, setting: Setting) -> CandidateArrays:
    """Return the recorded answers as fusion sees them under a setting."""
    answers = tape.answers
    unknown = np.full(answers.score.shape, np.nan)
    return CandidateArrays(
        present=np.ones(answers.score.shape, dtype=bool),
        energy=raw(tape, setting),
        aligned=align(tape, setting),
        surrogate=unknown,
        surrogate_aligned=unknown,
        total=answers.total,
        missing=answers.missing,
        complete=(answers.stated > 0) & ~answers.cut_off,
        skills=skills_of(tape, setting),
        order=answers.order,
        mean_logprob=answers.mean_logprob,
        mean_probability=answers.mean_probability,
        lowest_window=answers.lowest_window,
        groups=answers.grouping,
    )


def align(tape: Tape, setting: Setting) -> Array:
    """F̃; NaN where an answer has no log-probabilities, or its source no statistics."""
    values, result = raw(tape, setting), np.full(tape.answers.score.shape, np.nan)
    for number, known in enumerate(statistics_of(tape, setting)):
        if known is not None and known.count:
            own = tape.answers.source == number
            result[own] = known.alignment.align(values[own])
    return result


def skills_of(tape: Tape, setting: Setting) -> Array:
    """(N, M): w_m of each answer's source (SPEC 5.10b); 1 where none was fitted, as for another λ."""
    weight = tape.header.settings["fusion"]["varentropy_weight"] if setting.statistics == "panel" else setting.lam
    agents = {step.value: tape.header.settings[step.role.value] for step in Step}
    limits = [agents[source["step"]]["max_tokens"] for source in tape.header.sources]
    known = [_find(tape, source, weight, limit) for source, limit in zip(tape.header.sources, limits, strict=True)]
    return np.array([each.skill if each else 1.0 for each in known])[tape.answers.source]


def statistics_of(tape: Tape, setting: Setting) -> list[Statistics | None]:
    """What is known of each source under a setting."""
    if setting.statistics == "panel":
        values = raw(tape, setting)
        return [_measured(tape, values, number) for number in range(len(tape.header.sources))]
    return [_find(tape, source, setting.lam, source["max_tokens"]) for source in tape.header.sources]


def _find(tape: Tape, source: Mapping[str, Any], weight: float, max_tokens: int) -> Statistics | None:
    """What the calibration in use knows of a source.

    The engine looks μ and σ up by the length limit that fits the model's context, skills by the one that is set.
    """
    terms = {name: source[name] for name in ("model", "prompt_md5", "temperature", "top_p")}
    place = Source(**terms, max_tokens=max_tokens, varentropy_weight=weight)
    return calibration_of(tape.header).statistics.find(place)


def _measured(tape: Tape, values: Array, number: int) -> Statistics | None:
    """The statistics of a source on the panel's own answers; no label has a hand in them."""
    own = (tape.answers.source == number) & np.isfinite(values)
    fast = tape.answers.fast.rows(tape.answers.source[:, FAST] == number)
    quantiles = QuantileTables.of(fast).document() or None
    if not own.any():
        return None if quantiles is None else Statistics(0.0, 1.0, 0, quantiles=quantiles)
    mean, deviation = float(values[own].mean()), float(values[own].std()) or 1.0
    return Statistics(mean, deviation, int(own.sum()), quantiles=quantiles)
