from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.calibration_file import FITTED, FORMAT, SHIPPED, Calibration, Source, Statistics, load_calibration
from odar.errors import InputError, SettingsError
from odar.policy.belief import Belief

SOURCE = Source("m", "0" * 32, 0.2, 0.9, 512, 0.1)
STATISTICS = Statistics(0.25, 0.1, 160, 0.8)
finite = st.floats(allow_nan=False, allow_infinity=False)
sources = st.builds(Source, st.text(max_size=12), st.text(max_size=8), finite, finite, st.integers(0, 9999), finite)
statistics = st.builds(Statistics, finite, finite, st.integers(0, 10**6), finite)


def text(**changes: object) -> str:
    body = json.loads(Calibration({SOURCE: STATISTICS}).to_json())
    return json.dumps({**body, **changes})


@given(
    st.dictionaries(sources, statistics, max_size=4),
    st.dictionaries(st.sampled_from(FITTED), st.one_of(finite, st.just("balanced"), st.just(("fast", "slow*2")))),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)
def test_a_file_survives_a_round_trip(entries, settings, made):
    whole = Calibration(entries, settings, {"p_offset": 0.25}, made, {"b": [1]})
    assert Calibration.from_json(whole.to_json(), "x") == whole


def test_a_fitted_belief_replaces_the_shipped_one():
    assert Calibration().load_belief() is Belief.load()
    assert Calibration(belief={"p_offset": 0.5}).load_belief().weights == {**Belief.load().weights, "p_offset": 0.5}
    with pytest.raises(InputError, match="'nothing' is not a weight"):
        Calibration(belief={"nothing": 0.5}).load_belief()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"prompt_md5": "1" * 32},
        {"temperature": 0.3},
        {"top_p": 0.95},
        {"max_tokens": 513},
        {"varentropy_weight": 0.2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_source_with_any_difference_is_uncalibrated(change):
    table = {SOURCE: STATISTICS}
    assert table.get(SOURCE) == STATISTICS
    assert table.get(replace(SOURCE, **change)) is None


def statistics_of(row: dict[str, object]) -> object:
    return Calibration.from_json(text(sources=[row]), "x").statistics


def test_a_row_may_lack_only_fields_added_later():
    (row,) = json.loads(text())["sources"]
    old = {key: row[key] for key in row if key not in ("signal", "skill", "quantiles")}
    assert statistics_of(old) == {SOURCE: Statistics(0.25, 0.1, 160)}
    for needed in ("model", "temperature", "mean", "deviation", "count"):
        with pytest.raises(SettingsError, match=needed):
            statistics_of({key: value for key, value in row.items() if key != needed})
    assert statistics_of(row | {"more": 1}) == {SOURCE: STATISTICS}
    with pytest.raises(SettingsError, match="ascending"):
        statistics_of(row | {"quantiles": {"direct": {"length": [2.0, 1.0]}}})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a calibration file"),
        ("[]", "not a calibration file"),
        ("{}", "has format None"),
        (text(format="odar-calibration-0"), "run `odar calibrate` again"),
        (text(format="odar-calibration-9"), "upgrade odar"),
        (text(format="odar-panel-1"), "is it the right file"),
        (
            text(settings={"providers.p.base_url": "http://evil"}),
            r"sets providers\.p\.base_url; a calibration may only",
        ),
        (text(settings={"routing.tau1": None}), "not a calibration file"),
        (text(settings=[]), "not a calibration file"),
        (text(sources=[{"model": "m"}]), "not a calibration file"),
        (text(sources=None), "not a calibration file"),
        ("[" * 5000, "nested more than 200 deep|not a calibration"),
    ],
)
def test_an_invalid_file_is_rejected_and_named(content, why):
    with pytest.raises(SettingsError, match=why) as raised:
        Calibration.from_json(content, "mine.json")
    assert "mine.json" in str(raised.value)


def test_an_unreadable_file_is_a_settings_error(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    for name, why in (("none.json", "No such file"), ("latin.json", "not UTF-8 text"), ("", "Is a directory")):
        with pytest.raises(SettingsError, match=rf"calibration = .*{why}"):
            load_calibration(f"{tmp_path}/{name}")
    with pytest.raises(SettingsError, match="calibration"):
        load_calibration("no\0name.json")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_calibrations_are_valid(name):
    shipped = load_calibration(name)
    assert shipped.statistics
    assert set(shipped.settings) <= set(FITTED)
    assert json.loads(shipped.to_json())["format"] == FORMAT
    assert all(each.deviation > 0 and 0 < (each.accuracy or 0) < 1 for each in shipped.statistics.values())
