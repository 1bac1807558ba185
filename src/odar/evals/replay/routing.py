"""Which path each item takes, as the engine would choose it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odar.difficulty.base import ESTIMATORS
from odar.difficulty.estimator import LearnedEstimator, shipped_estimator
from odar.difficulty.features import GROUPS
from odar.errors import InputError
from odar.evals.replay.alignment import align, known_lengths
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import FAST, Tape
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array, Bools, Ints
from odar.recording.header import calibration_of
from odar.types import Query


@dataclass(frozen=True, slots=True)
class Route:
    """The path of each item, and what led to it."""

    path: Ints
    """0 Simple, 1 Medium, 2 Hard."""
    difficulty: Array
    """The difficulty that counted: the posterior where there is one."""
    looked: Bools
    """Whether the fast answer was waited for before the path was chosen (SPEC 5.11)."""


def route(tape: Tape, setting: Setting) -> Route:
    """The paths under a setting."""
    prior = prior_of(tape, setting)
    posterior, looked = posterior_of(tape, setting, prior)
    difficulty = np.where(np.isnan(posterior), prior, posterior)
    path = (difficulty >= setting.tau1).astype(np.int64) + (difficulty >= setting.tau2)  # as `Strategy` decides
    return Route(path, difficulty, looked)


def prior_of(tape: Tape, setting: Setting) -> Array:
    """d(x) by the setting's estimator; as recorded where it is the one that recorded it."""
    if setting.without:
        return _without(tape, setting)
    if setting.estimator == tape.header.settings["routing"]["estimator"]:
        return tape.items.prior
    estimator = ESTIMATORS[setting.estimator]()
    if isinstance(estimator, LearnedEstimator):
        return estimator.predict(tape.items.features)
    return np.array([estimator.estimate(Query(text)).difficulty for text in tape.items.query])


def posterior_of(tape: Tape, setting: Setting, prior: Array) -> tuple[Array, Bools]:
    """d(x, y_fast) where the engine would look at the fast answer, else NaN; and where it would look."""
    nothing = np.full(len(tape), np.nan), np.zeros(len(tape), dtype=bool)
    if setting.mode == "prior":
        return nothing
    length = known_lengths(tape, setting)
    looked = (prior < setting.clearly_hard) & np.isfinite(length)
    unsure = align(tape, setting)[:, FAST]
    scored = looked & np.isfinite(unsure)
    found = nothing[0]
    if scored.any():
        model = PosteriorDifficulty.fitted(calibration_of(tape.header).posterior, "the panel's calibration")
        silent = 1 - tape.answers.stated[:, FAST]
        shows = setting.estimator == "learned" or setting.estimator.endswith(".json")  # φ, as the others do not
        phi = tape.items.features[scored] if shows else None
        found[scored] = model.predict(
            prior[scored], unsure[scored], length[scored], unanswered=silent[scored], features=phi
        )
    return found, looked


def _without(tape: Tape, setting: Setting) -> Array:
    """The learned estimator with a group of features held at its training mean: they say nothing."""
    if setting.estimator != "learned":
        raise InputError(f"without = {setting.without} needs the learned estimator, not {setting.estimator}")
    estimator = shipped_estimator()
    features, group = tape.items.features.copy(), GROUPS[setting.without]
    features[:, group] = estimator.scaling_.mean[group]
    return estimator.predict(features)
