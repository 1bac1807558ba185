"""Which answer wins, for every item at once, as `Fusion.choose` would choose it one by one.

All built-in rules are the answer free energy of `calibration.votes.fuse` with other energies: confidence rules take
the most confident answer (β = ∞), majority counts (β = 0), DeepConf adds up exp(lowest window) (β = 1).
"""

from __future__ import annotations

import numpy as np

from odar.evals.replay.alignment import align, raw, skills_of
from odar.evals.replay.setting import NO_FUSION, Setting
from odar.evals.replay.tape import FAST, Tape
from odar.policy.rules import RULES, Array, Ballot, Bools, Ints, Votes, fuse


def choose(tape: Tape, setting: Setting, present: Bools) -> Ints:
    """The winning column of each row among those that are there; every row must have one."""
    slow = present.copy()
    slow[:, FAST] &= ~present[:, FAST + 1 :].any(axis=1)  # the fast answer only where it is alone
    if setting.rule == NO_FUSION:
        return np.asarray(slow.argmax(axis=1))
    answers = tape.answers
    scored = present & np.isfinite(answers.energy)
    total, missing = (np.where(present, each, 0).sum(axis=1) for each in (answers.total, answers.missing))
    share = np.divide(missing, total, out=np.ones(len(tape)), where=total > 0)
    ladder = ~scored.any(axis=1) | (share > setting.missing_limit)
    if not ladder.any():
        return _by_rule(tape, setting, scored, ladder)
    # The ladder of SPEC 5.6: the slow answer most agree on, exact ties by content.
    groups = np.where(slow, answers.grouping.among(present), -1)
    by_vote = _fuse(tape, groups, np.argsort(answers.order, axis=1).astype(np.float64), 0.0, np.ones(slow.shape))
    return np.where(ladder, by_vote, _by_rule(tape, setting, np.where(ladder[:, None], slow, scored), ladder))


def _by_rule(tape: Tape, setting: Setting, scored: Bools, ladder: Bools) -> Ints:
    """The winner by the setting's rule; rows on the ladder are not looked at."""
    answers, ones = tape.answers, np.ones(scored.shape)
    energy, groups = _comparable(tape, setting, scored), answers.grouping.among(scored)
    match setting.rule:
        case "fep":
            return _fuse(tape, groups, energy, setting.beta, skills_of(tape, setting))
        case "majority":
            return _fuse(tape, groups, energy, 0.0, ones)
        case "max_confidence":
            return _fuse(tape, groups, -answers.mean_probability, np.inf, ones)
        case "mean_logprob":
            return _fuse(tape, groups, -answers.mean_logprob, np.inf, ones)
        case "deepconf":
            return _fuse(tape, groups, -answers.lowest_window, 1.0, ones)
        case _:
            return _row_by_row(tape, setting, groups, energy, ladder)


def _comparable(tape: Tape, setting: Setting, scored: Bools) -> Array:
    """Aligned energies where every answer of a row has one, else raw ones: the two never meet (SPEC 5.5)."""
    aligned = align(tape, setting)
    calibrated = ~(scored & np.isnan(aligned)).any(axis=1, keepdims=True)
    return np.where(calibrated, aligned, raw(tape, setting))


def _fuse(tape: Tape, groups: Ints, energy: Array, beta: float, skills: Array) -> Ints:
    """`fuse` with columns in the order in which exact ties are broken."""
    order = tape.answers.order
    energies, weights = (np.take_along_axis(each, order, axis=1) for each in (energy, skills))
    ordered = np.take_along_axis(groups, order, axis=1)
    found = fuse(Votes(energies, ordered, np.zeros(groups.shape, dtype=bool)), beta, weights)
    return np.asarray(np.take_along_axis(order, found[:, None], axis=1)[:, 0])


def _row_by_row(tape: Tape, setting: Setting, groups: Ints, energy: Array, ladder: Bools) -> Ints:
    """A rule of somebody else's, such as a reward model: it sees one ballot at a time."""
    decide, answers, skills = RULES[setting.rule], tape.answers, skills_of(tape, setting)
    winners = np.zeros(len(tape), dtype=np.int64)
    for row in np.flatnonzero(~ladder):
        columns = np.array([column for column in answers.order[row] if groups[row, column] >= 0])
        keys = decide(
            Ballot(
                free_energy=energy[row, columns],
                mean_logprob=answers.mean_logprob[row, columns],
                mean_probability=answers.mean_probability[row, columns],
                lowest_window=answers.lowest_window[row, columns],
                groups=groups[row, columns],
                skills=skills[row, columns],
                beta=setting.beta,
            )
        )
        best = np.lexsort(tuple(-key for key in reversed(keys)))[0]  # stable: exact ties by content
        winners[row] = columns[best]
    return winners
