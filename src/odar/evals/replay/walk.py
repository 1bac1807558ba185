"""ODAR's three paths over a tape: which answers are asked for, and which of them wins (SPEC 1, 5)."""

from __future__ import annotations

import numpy as np

from odar.errors import InputError
from odar.evals.replay.fusing import choose
from odar.evals.replay.outcome import Outcome, Play, settle
from odar.evals.replay.routing import Route, route
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import FAST, SOLVE, VERIFY, Tape
from odar.policy.rules import Bools, Ints
from odar.policy.stopping import Stopping

SIMPLE, MEDIUM, HARD = 0, 1, 2


def odar(tape: Tape, setting: Setting, name: str = "odar", note: str = "") -> Outcome:
    """ODAR in one setting."""
    if not setting.dispatch:
        note = _undispatched(tape)
    return walk(tape, setting, route(tape, setting), name, note)


def walk(tape: Tape, setting: Setting, chosen: Route, name: str, note: str = "") -> Outcome:
    """Take the paths that somebody chose, fusing as the setting says."""
    if setting.n > tape.samples:
        raise InputError(
            f"n = {setting.n}, but the panel holds {tape.samples} slow samples; collect with --samples"
        )
    path = chosen.path
    read, paid, waves = _samples(tape, setting)
    hard = (path == HARD)[:, None]
    seen, asked = (np.where(hard, mask, False) for mask in (read, paid))
    for mask in (seen, asked):
        mask[:, FAST] = True
        mask[:, VERIFY] = path == MEDIUM
    winner = np.where(path == SIMPLE, FAST, choose(tape, setting, seen))
    play = Play(asked, seen, winner, path, np.where(path == HARD, waves, 0), chosen.looked)
    return settle(tape, name, play, note)


def always(tape: Tape, setting: Setting, path: int, name: str, note: str = "") -> Outcome:
    """The same path for every item."""
    nowhere = Route(np.full(len(tape), path), np.full(len(tape), np.nan), np.zeros(len(tape), dtype=bool))
    return walk(tape, setting, nowhere, name, note)


def _samples(tape: Tape, setting: Setting) -> tuple[Bools, Bools, Ints]:
    """Slow samples that are read and paid on the Hard path, and the requests they take, as `Waves` has it.

    A wave is paid for whole, even if the answer is settled before all of it has been read.
    """
    everything = tape.columns(*range(SOLVE, SOLVE + setting.n))
    if setting.stop is None:
        return everything, everything, np.ones(len(tape), dtype=np.int64)
    first = min(setting.first_wave, setting.n)
    taken = _settled_after(tape, first, setting.n, Stopping(setting.stop))
    paid = np.where(taken <= first, first, setting.n)
    place = np.arange(everything.shape[1]) - SOLVE
    inside = place >= 0
    return (
        inside & (place < taken[:, None]),
        inside & (place < paid[:, None]),
        np.where(taken <= first, 1, 2),
    )


def _settled_after(tape: Tape, first: int, n: int, stopping: Stopping) -> Ints:
    """How many samples, from the first look on, until the leading answer is settled (SPEC 5.12); or all."""
    taken = np.full(len(tape), n)
    for count in range(n - 1, first - 1, -1):
        groups = tape.answers.grouping.among(tape.columns(*range(SOLVE, SOLVE + count)))[:, SOLVE : SOLVE + count]
        same = groups[:, :, None] == groups[:, None, :]
        votes = same.sum(axis=2)
        leader = votes.max(axis=1)
        leads = np.take_along_axis(groups, votes.argmax(axis=1)[:, None], axis=1)
        runner_up = np.where(groups == leads, 0, votes).max(axis=1)
        table = np.array(
            [[stopping.decided([0] * a + [1] * b, n - count) for b in range(count + 1)] for a in range(count + 1)]
        )
        taken = np.where(table[leader, runner_up], count, taken)
    return taken


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
