"""Files as earlier versions of odar wrote them (tests/old_files, made by that code), and as later ones may.

Each is brought up to date or refused in one line that names the file, both versions and the remedy; none is half
read, and a refused file is left as it was.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from odar.calibration_file import load_calibration
from odar.config import load_settings
from odar.difficulty.estimator import LearnedEstimator
from odar.engine import Odar
from odar.errors import InputError, OdarError, SettingsError, StoreError
from odar.recording.files import open_recording
from odar.settings import StoreSettings
from odar.store.alignment import AlignmentFile
from odar.store.database import Database

OLD = Path(__file__).parent / "old_files"


def old(name: str) -> dict:
    return json.loads((OLD / name).read_text())


# ── the store ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_database_of_somebody_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (name TEXT, value TEXT)")
    connection.close()
    with pytest.raises(StoreError, match=r"a table `meta` that is not odar's: point store\.url elsewhere"):
        Database(StoreSettings(url=str(path)))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("meta",)]
    connection.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("Buy milk.\n" * 500)
    with pytest.raises(StoreError, match=rf"store {path}: file is not a database"):
        Database(StoreSettings(url=str(path)))
    assert path.read_text() == "Buy milk.\n" * 500


# ── what was fitted ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_calibration_from_before_it_held_an_estimator_still_loads():
    calibration = load_calibration(str(OLD / "calibration-1-without-estimator.json"))
    assert len(calibration.statistics.entries) == 3
    assert (calibration.estimator, calibration.posterior) == (None, None)
    statistics = next(iter(calibration.statistics.entries.values()))
    assert statistics.quantiles is None  # not measured then


def put(tmp_path, body: dict) -> str:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(body))
    return str(path)


@pytest.mark.parametrize(
    ("part", "file", "message"),
    [
        (
            "posterior",
            "posterior-1.json",
            "the posterior of {path} has format 'odar-posterior/1'; this odar reads 'odar-posterior/4': "
            "run `odar calibrate` again",
        ),
        (
            "estimator",
            "estimator-1.json",
            "the estimator of {path} has format 'odar-estimator/1'; this odar reads 'odar-estimator/3': "
            "train it again (`odar calibrate --difficulty`, `odar calibrate`)",
        ),
    ],
)
def test_a_calibration_with_an_old_part_is_refused_by_the_name_of_its_file(tmp_path, part, file, message):
    path = put(tmp_path, {**old("calibration-1-without-estimator.json"), part: old(file)})
    with pytest.raises(InputError) as raised:
        Odar(load_settings("tiny", config="/dev/null", environ={}, calibration=path))
    assert str(raised.value) == message.format(path=path)


@pytest.mark.parametrize(
    ("version", "remedy"), [(0, "run `odar calibrate` again"), (2, "upgrade odar"), (17, "upgrade odar")]
)
def test_a_calibration_of_another_version_is_refused(tmp_path, version, remedy):
    path = put(tmp_path, {"format": f"odar-calibration-{version}", "novelty": []})
    with pytest.raises(SettingsError) as raised:
        load_settings("tiny", config="/dev/null", environ={}, calibration=path)
    assert str(raised.value) == (
        f"calibration {path} has format 'odar-calibration-{version}'; this odar reads 'odar-calibration-1': {remedy}"
    )


@pytest.mark.parametrize(
    ("change", "remedy"),
    [({}, "train it again"), ({"format": "odar-estimator/4"}, "upgrade odar"), ({"format": "x"}, "the right file")],
)
def test_an_estimator_of_another_version_is_refused(tmp_path, change, remedy):
    path = tmp_path / "estimator.json"
    path.write_text(json.dumps({**old("estimator-1.json"), **change}))
    with pytest.raises(InputError, match=rf"^{path} has format .*; this odar reads 'odar-estimator/3'") as raised:
        LearnedEstimator.load(path)
    assert remedy in str(raised.value)


# ── what was recorded ───────────────────────────────────────────────────────────────────────────────────────

RECORD_1 = (
    '{"format": "odar-records-1", "made_by": "models"}\n'
    '{"id": "1", "query": "2 + 2?", "difficulty": 0.1, "fast": {}, "verify": {}, "solves": [], "effort": null}\n'
)


def test_served_energies_of_a_newer_version_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "odar.alignment.json"
    path.write_text('{"format": "odar-alignment-3", "sources": []}')
    with pytest.raises(StoreError, match=r"alignment-3'; this odar reads 'odar-alignment-2': upgrade odar"):
        AlignmentFile(path).add({}, 7.0)
    assert "alignment-3" in path.read_text()


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_setting_of_a_newer_version_is_refused_by_name(tmp_path):
    path = tmp_path / "odar.toml"
    path.write_text("[quarks]\nrange_km = 7\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(config=path, environ={})
    assert str(raised.value) == (
        f'unknown setting quarks = {{"range_km": 7}} in {path}; this version of odar knows none of that name'
    )


def test_every_refusal_is_ours(tmp_path):
    """No file of JSON, however odd, gets past the first look with an error that is not one of ours."""
    odd = ["null", "7", '"text"', "[]", "{}", '{"format": null}', '{"format": []}', "{", "", "\ufeff{}", "[" * 9000]
    for text in odd:
        path = tmp_path / "file.json"
        path.write_text(text + "\n")
        for read in (
            lambda path: load_calibration(str(path)),
            LearnedEstimator.load,
            lambda path: AlignmentFile(path).load(),
            lambda path: open_recording(path.rename(path.with_suffix(".jsonl"))),
        ):
            with pytest.raises(OdarError) as raised:
                read(path)
            assert "\n" not in str(raised.value)
