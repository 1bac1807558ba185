"""ODAR's three paths over a tape: which answers are asked for, and which of them wins (SPEC 1, 5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odar.errors import InputError
from odar.evals.replay.alignment import candidates_of
from odar.evals.replay.outcome import Outcome, settle
from odar.evals.replay.routing import route
from odar.evals.replay.setting import NO_FUSION, Setting
from odar.evals.replay.tape import Tape
from odar.policy.fusion import FAST, Fusion
from odar.policy.path import Route
from odar.policy.rules import Bools, Ints
from odar.policy.simulation import simulate
from odar.policy.stopping import Stopping


def odar(tape: Tape, setting: Setting, name: str = "odar", note: str = "") -> Outcome:
    """ODAR in one setting."""
    if not setting.dispatch:
        note = _undispatched(tape)
    return walk(tape, setting, route(tape, setting), name, note)


def walk(tape: Tape, setting: Setting, chosen: Route, name: str, note: str = "") -> Outcome:
    """Take the paths that were chosen, and fuse as the setting says."""
    if setting.n > tape.samples:
        raise InputError(
            f"n = {setting.n}, but the panel holds {tape.samples} slow samples; collect with --samples"
        )
    stopping = Stopping(setting.stop, setting.first_wave)
    candidates = candidates_of(tape, setting)
    run = simulate(candidates, chosen.path, fusion_of(setting), stopping, setting.n)
    if setting.rule == NO_FUSION:
        run = replace(run, winner=first_slow(run.read))
    return settle(tape, name, run, note, looked=chosen.looked)


def choose(tape: Tape, setting: Setting, present: Bools) -> Ints:
    """Return the winning column of each row among those that are present."""
    if setting.rule == NO_FUSION:
        return first_slow(present)
    return fusion_of(setting).choose_rows(candidates_of(tape, setting), present)


def fusion_of(setting: Setting) -> Fusion:
    """Return the fusion policy of a setting."""
    rule = "fep" if setting.rule == NO_FUSION else setting.rule
    return Fusion(rule, setting.beta, setting.missing_limit)


def first_slow(present: Bools) -> Ints:
    """Return the first slow answer of each row; the fast one if it is alone."""
    slow = present.copy()
    slow[:, FAST] &= ~present[:, FAST + 1 :].any(axis=1)
    return np.asarray(slow.argmax(axis=1))


def always(tape: Tape, setting: Setting, path: int, name: str, note: str = "") -> Outcome:
    """The same path for every item."""
    nowhere = Route(np.full(len(tape), path), np.full(len(tape), np.nan), np.zeros(len(tape), dtype=bool))
    return walk(tape, setting, nowhere, name, note)


def _undispatched(tape: Tape) -> str:
    """Whether a panel can show what the default pair would have done; raises where it cannot."""
    defaults = {names[0] for names in tape.header.models.values()}
    others = [i for i, source in enumerate(tape.header.sources) if source["model"] not in defaults]
    switched = int(np.isin(tape.answers.source, others).any(axis=1).sum())
    if switched:
        raise InputError(
            f"dispatch = off cannot be replayed: {switched} items were answered by an alternative model; "
            "collect a second panel with --set dispatch.models=false and use odar eval compare"
        )
    return "no item was given to an alternative model: dispatch changes nothing here"
