"""Which path each item takes, as the engine would choose it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odar.difficulty.base import ESTIMATORS
from odar.difficulty.estimator import LearnedEstimator, shipped_estimator
from odar.difficulty.features import GROUPS
from odar.errors import InputError
from odar.evals.replay.alignment import statistics_of
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import Tape
from odar.policy.fusion import FAST
from odar.policy.path import Route, Routing, Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.rules import Array
from odar.recording.header import calibration_of
from odar.types import Query


def route(tape: Tape, setting: Setting) -> Route:
    """Choose the path of each item under a setting."""
    prior = prior_of(tape, setting)
    routing = Routing(
        Thresholds(setting.tau1, setting.tau2), setting.n, setting.mode == "posterior", setting.clearly_hard
    )
    posterior = posterior_of(tape, setting, prior) if routing.looks else np.full(len(tape), np.nan)
    return routing.route(prior, posterior, tape.items.expert)


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


def posterior_of(tape: Tape, setting: Setting, prior: Array) -> Array:
    """Return d(x, y_fast) of each item; NaN if its fast answer shows nothing."""
    model = PosteriorDifficulty.fitted(calibration_of(tape.header).posterior, "the panel's calibration")
    signals, found = replace(tape.answers.fast, prior=prior), np.full(len(tape), np.nan)
    for number, known in enumerate(statistics_of(tape, setting)):
        own = tape.answers.source[:, FAST] == number
        if own.any():
            found[own] = model.predict(signals.rows(own), known.tables if known else None)
    return found


def _without(tape: Tape, setting: Setting) -> Array:
    """The learned estimator with a group of features held at its training mean: they say nothing."""
    if setting.estimator != "learned":
        raise InputError(f"without = {setting.without} needs the learned estimator, not {setting.estimator}")
    estimator = shipped_estimator()
    features, group = tape.items.features.copy(), GROUPS[setting.without]
    features[:, group] = estimator.scaling_.mean[group]
    return estimator.predict(features)
