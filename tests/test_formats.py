from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar import formats
from odar.calibration_file import load_calibration
from odar.difficulty.estimator import LearnedEstimator
from odar.errors import InputError, OdarError, SettingsError, StoreError
from odar.formats import MAX_DEPTH, check_format, dump_json, load_json, load_toml
from odar.lab.recording.files import open_recording
from odar.served.alignment import ServedAlignment

SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('{}[]"\\ aé', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def load_alignment(path):
    return ServedAlignment({}, path).load()


def depth(value) -> int:
    """Compute the depth by its definition."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def test_toml_is_rejected_for_its_depth():
    deepest = ".".join("a" * MAX_DEPTH) + " = 1"
    assert depth(load_toml(deepest)) == MAX_DEPTH
    for text in (f"a.{deepest}", "a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, "a = " + "[" * 5_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            load_toml(text)


@given(SMALL, st.integers(0, 8), st.booleans())
def test_a_document_is_rejected_only_for_its_depth(value, limit, as_bytes):
    text = json.dumps(value, ensure_ascii=False)
    text = text.encode() if as_bytes else text
    with mock.patch("odar.formats.MAX_DEPTH", limit):
        if depth(value) > limit:
            with pytest.raises(ValueError, match=f"nested more than {limit} deep"):
                load_json(text)
        else:
            assert load_json(text) == value


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 800, 1_000, 5_000, 200_000])
def test_any_excessive_depth_is_rejected(opening, levels):
    with pytest.raises(ValueError, match=r"nested more than 200 deep|Expecting"):
        load_json(opening * levels + "1")
    closing = "".join({"[": "]", "{": "}"}[c] for c in reversed(opening) if c in "[{")
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        load_json(opening * levels + "1" + closing * levels)


def test_the_deepest_document_can_be_written_from_a_deep_stack():
    value = load_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    def down(frames: int) -> str:
        return down(frames - 1) if frames else json.dumps(value)

    assert down(sys.getrecursionlimit() // 2)


def test_a_wide_document_is_accepted():
    assert len(load_json("[" + ",".join(["{}"] * 10_000) + "]")) == 10_000


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        ("odar-thing-1", "make it again"),
        ("odar-thing-0", "make it again"),
        ("odar-thing-3", "upgrade odar"),
        ("odar-thing-10", "upgrade odar"),
        ("odar-thing/1", "make it again"),
        ("odar-other-3", "is it the right file?"),
        ("odar-thing-x", "is it the right file?"),
        ("odar-thing-" + "9" * 5000, "is it the right file?"),
        (None, "is it the right file?"),
        (2, "is it the right file?"),
        ({"a": 1}, "is it the right file?"),
    ],
)
@pytest.mark.parametrize("error", [InputError, SettingsError, StoreError])
def test_another_version_is_rejected_with_file_versions_and_remedy(found, remedy, error):
    with pytest.raises(error) as raised:
        check_format(found, "odar-thing-2", "/tmp/thing.json", "make it again", error)
    message = str(raised.value)
    assert message.startswith("/tmp/thing.json has format ")
    assert message.endswith(f"; this odar reads 'odar-thing-2': {remedy}")
    assert len(message) < 200
    assert "\n" not in message


def test_the_current_version_is_accepted():
    check_format("odar-thing-2", "odar-thing-2", "thing", "nothing to do")


@given(st.recursive(SMALL | st.integers() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_dumped_json_survives_a_round_trip(value):
    assert load_json(dump_json(value)) == value


@given(st.text(), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(2**64, 2**70))
def test_surrogates_large_integers_and_nan_become_valid_json(text, none, big):
    plain = dump_json({"text": text, "none": none})
    mixed = dump_json({"text": text, "none": none, "big": big, "half": "\ud800", "inside": (none, {"x": none})})
    read = json.loads(mixed, parse_constant=pytest.fail)
    assert json.loads(plain, parse_constant=pytest.fail)["none"] is None
    assert (read["text"], read["big"], read["half"]) == (text, big, "?")
    assert (read["none"], read["inside"]) == (None, [None, {"x": None}])


def test_an_unpaired_surrogate_can_be_kept_as_an_escape():
    assert json.loads(dump_json(["a\ud800"], errors="backslashreplace")) == ["a\ud800"]


def test_an_object_of_another_type_becomes_its_text():
    assert dump_json({"path": Path("/tmp")}) == b'{"path":"/tmp"}'


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("odar-calibration-99", lambda path: load_calibration(str(path))),
        ("odar-estimator/99", LearnedEstimator.load),
        ("odar-alignment-99", load_alignment),
    ],
)
def test_a_file_of_another_version_is_rejected_and_unchanged(tmp_path, kind, read):
    path = tmp_path / "file.json"
    path.write_text(text := json.dumps({"format": kind, "novelty": []}))
    with pytest.raises(OdarError, match=rf"{path} has format '{kind}'; this odar reads .*: upgrade odar"):
        read(path)
    assert path.read_text() == text


def test_an_invalid_file_raises_a_one_line_odar_error(tmp_path):
    odd = ["null", "7", '"text"', "[]", "{}", '{"format": null}', '{"format": []}', "{", "", "\ufeff{}", "[" * 9000]
    for text in odd:
        path = tmp_path / "file.json"
        path.write_text(text + "\n")
        for read in (
            lambda path: load_calibration(str(path)),
            LearnedEstimator.load,
            load_alignment,
            lambda path: open_recording(path.rename(path.with_suffix(".jsonl"))),
        ):
            with pytest.raises(OdarError) as raised:
                read(path)
            assert "\n" not in str(raised.value)


trees = st.recursive(
    st.none() | st.integers() | st.text('ab"\\[]{}'), lambda x: st.lists(x) | st.dictionaries(st.text('"\\[{'), x)
)


@given(trees, st.integers(1, 6), st.sampled_from([7, 64, 256 * 2**10]))
def test_depth_is_the_same_on_bytes_and_on_the_value(tree, limit, piece_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_PIECE_BYTES", piece_bytes)
        raw = json.dumps(tree).encode()
        assert formats.json_deeper_than(limit, raw) == (depth(tree) > limit)
        assert formats.load_json(raw) == tree


def test_a_field_that_is_not_read_is_written_as_it_came():
    raw = b'{"model":"m","data":[{"embedding":[0.10,1e-3]}]}'
    assert formats.dump_json(formats.load_json(raw, "data")) == raw
    assert formats.load_json(b'{"data": 7}', "data") == {"data": 7}


NUMBERS = [1, -2.5, 3e10, 10**25, True, None] * 100_000


@pytest.mark.parametrize("indent", [None, 1])
def test_long_lists_of_numbers_are_read_in_pieces(indent, monkeypatch):
    sizes = []
    whole = formats._load_whole
    monkeypatch.setattr(formats, "_load_whole", lambda raw: sizes.append(len(raw)) or whole(raw))
    assert load_json(json.dumps({"a": NUMBERS}, indent=indent)) == {"a": NUMBERS}
    assert len(sizes) > 1
    assert max(sizes) < 300_000


@pytest.mark.parametrize("end", [",]", "] 1", "", "]]", " 2]", ",,3]"])
def test_long_lists_that_are_not_json_are_refused(end):
    with pytest.raises(ValueError):
        load_json("[" + "1," * 300_000 + "1" + end)
