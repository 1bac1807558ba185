from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from odar.calibration_file import Calibration
from odar.errors import InputError
from odar.evals.replay.arrays import load_arrays
from odar.evals.replay.policies import run_policy
from odar.evals.replay.simulate import Setting, align, free_energies, skills_of
from odar.policy.fusion import FAST
from odar.recording.files import ROW_GROUP_ITEMS, open_recording, write_recording
from odar.recording.schema import figures_of
from support.panels import calibration, collect_panel, header, synthetic_panel


def test_arrays_equal_the_panel_over_several_row_groups(tmp_path):
    path = synthetic_panel(tmp_path, ROW_GROUP_ITEMS + 44, samples=3)
    arrays = load_arrays(path)
    assert (len(arrays), arrays.samples) == (ROW_GROUP_ITEMS + 44, 3)
    for row, entry in enumerate(open_recording(path).items()):
        assert (arrays.items.keys[row], arrays.items.prior[row]) == (entry.key, entry.difficulty)
        assert arrays.answers.score[row].tolist() == [each.score for each in entry.attempts]
        assert arrays.answers.energy[row].tolist() == [figures_of(each).energy for each in entry.attempts]
        models = [arrays.header.sources[source]["model"] for source in arrays.answers.source[row]]
        assert models == [each.model for each in entry.attempts]


def test_an_empty_or_damaged_panel_is_rejected(tmp_path):
    path = synthetic_panel(tmp_path, 4, samples=3)
    entries = list(open_recording(path).items())
    short = [replace(entries[0], attempts=entries[0].attempts[:-1]), *entries[1:]]
    write_recording(path, header(3), short)
    with pytest.raises(InputError, match="items with other than 5 answers"):
        load_arrays(path)
    write_recording(path, header(3), [])
    with pytest.raises(InputError, match="holds no finished items yet"):
        load_arrays(path)


async def test_energies_are_aligned_by_the_calibration_or_the_panel(tmp_path):
    arrays = load_arrays(await collect_panel(tmp_path, items=30))
    setting = Setting.from_header(arrays.header)
    fast = np.isfinite(arrays.answers.energy[:, FAST])
    expected = (free_energies(arrays, setting)[fast, FAST] - 0.4) / 0.3
    assert align(arrays, setting)[fast, FAST] == pytest.approx(expected)
    assert set(skills_of(arrays, setting)[0]) == {0.5, 0.8, 1.0}
    own = align(arrays, replace(setting, statistics="panel", lam=0.7))
    assert (np.nanmean(own[:, FAST]), np.nanstd(own[:, FAST])) == (pytest.approx(0), pytest.approx(1))
    other = replace(setting, lam=0.7)
    assert np.isnan(align(arrays, other)).all()
    assert (skills_of(arrays, other) == 1).all()
    assert np.isfinite(arrays.answers.fast_signals.length).all()


async def test_a_panel_can_be_replayed_with_another_calibration(tmp_path):
    place = await collect_panel(tmp_path, items=60, calibration="")
    plain, fitted = load_arrays(place), load_arrays(place, calibration(tmp_path))
    assert json.loads(json.dumps(plain.header.calibration))["sources"] == []
    assert (run_policy(plain, "odar").path != run_policy(fitted, "odar").path).any()
    assert (run_policy(plain, "odar:mode=prior").path == run_policy(fitted, "odar:mode=prior").path).all()


async def test_a_calibration_sets_thresholds_and_fusion(tmp_path):
    place = await collect_panel(tmp_path, items=40, calibration="")
    file = tmp_path / "always-hard.json"
    settings = {"routing.tau1": 0.0, "routing.tau2": 0.0, "fusion.beta": 2.0}
    file.write_text(Calibration({}, settings=settings).to_json())
    arrays = load_arrays(place, str(file))
    assert Setting.from_header(arrays.header).beta == 2.0
    assert (run_policy(arrays, "odar:mode=prior").path == 2).all()
    assert not (run_policy(load_arrays(place), "odar:mode=prior").path == 2).all()
