from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError
from odar.evals.replay.alignment import align, raw, skills_of
from odar.evals.replay.policies import run
from odar.evals.replay.setting import Setting
from odar.evals.replay.tape import load_tape
from odar.policy.fusion import FAST
from odar.recording.files import ROWS, open_recording, write_recording
from odar.recording.schema import figures_of
from support.panels import calibration, collect_panel, header, synthetic_panel


def test_a_tape_is_the_panel_over_several_row_groups(tmp_path):
    path = synthetic_panel(tmp_path, ROWS + 44, samples=3)
    tape = load_tape(path)
    assert (len(tape), tape.samples) == (ROWS + 44, 3)
    for row, entry in enumerate(open_recording(path).items()):
        assert (tape.items.keys[row], tape.items.prior[row]) == (entry.key, entry.difficulty)
        assert tape.answers.score[row].tolist() == [each.score for each in entry.attempts]
        assert tape.answers.energy[row].tolist() == [figures_of(each).energy for each in entry.attempts]
        models = [tape.header.sources[source]["model"] for source in tape.answers.source[row]]
        assert models == [each.model for each in entry.attempts]


def test_an_empty_or_damaged_panel_is_refused(tmp_path):
    path = synthetic_panel(tmp_path, 4, samples=3)
    entries = list(open_recording(path).items())
    short = [replace(entries[0], attempts=entries[0].attempts[:-1]), *entries[1:]]
    write_recording(path, header(3), short)
    with pytest.raises(InputError, match="items with other than 5 answers"):
        load_tape(path)
    write_recording(path, header(3), [])
    with pytest.raises(InputError, match="holds no finished items yet"):
        load_tape(path)


async def test_energies_are_aligned_by_the_calibration_or_by_the_panel_itself(tmp_path):
    tape = load_tape(await collect_panel(tmp_path, items=30))
    setting = Setting.of(tape.header)
    fast = np.isfinite(tape.answers.energy[:, FAST])
    expected = (raw(tape, setting)[fast, FAST] - 0.4) / 0.3
    assert align(tape, setting)[fast, FAST] == pytest.approx(expected)
    assert set(skills_of(tape, setting)[0]) == {0.5, 0.8, 1.0}
    own = align(tape, replace(setting, statistics="panel", lam=0.7))
    assert (np.nanmean(own[:, FAST]), np.nanstd(own[:, FAST])) == (pytest.approx(0), pytest.approx(1))
    other = replace(setting, lam=0.7)
    assert np.isnan(align(tape, other)).all()
    assert (skills_of(tape, other) == 1).all()
    assert np.isfinite(tape.answers.fast.length).all()


async def test_a_panel_can_be_replayed_with_another_calibration(tmp_path):
    place = await collect_panel(tmp_path, items=60, calibration="")
    plain, fitted = load_tape(place), load_tape(place, calibration(tmp_path))
    assert json.loads(json.dumps(plain.header.calibration))["sources"] == []
    assert (run(plain, "odar").path != run(fitted, "odar").path).any()
    assert (run(plain, "odar:mode=prior").path == run(fitted, "odar:mode=prior").path).all()
