"""Recordings, plain and compressed: the same content, whole or not at all, and clear errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError
from odar.lab.recording.files import SUFFIXES, open_recording, write_recording
from odar.lab.recording.schema import ItemKey, item_from_json, item_to_json, row_id
from odar.types import Token, Usage
from support.panels import header, synthetic_panel


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    path = synthetic_panel(tmp_path_factory.mktemp("recording"), 30, samples=2)
    found = list(open_recording(path).items())
    odd = replace(
        found[0].attempts[0],
        usage=Usage(5, 1, 2, 3, 4, 5, True),
        text="not what the tokens say",
        tokens=(Token("<s>", None, True), *found[0].attempts[0].tokens[1:]),
        seconds=None,
        stated=False,
        mean_logprob=-0.25,
    )
    found[0] = replace(found[0], attempts=(odd, *found[0].attempts[1:]), gold={"any": ["JSON", 1]}, effort=2.5)
    halves = [replace(each, split="calibrate" if i % 2 else "held-out") for i, each in enumerate(found[:-1])]
    return [*halves, found[-1]]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_both_formats_contain_the_same_items(tmp_path, items, suffix):
    path = tmp_path / f"x{suffix}"
    assert write_recording(path, header(2), items) == len(items)
    recording = open_recording(path)
    assert recording.header == header(2)
    assert list(recording.items()) == items
    judged = list(recording.items("held-out"))
    assert {item.split for item in judged} == {"held-out", ""}
    light = list(recording.items(tokens=False))
    assert [item.without_tokens() for item in items] == light
    assert not any(attempt.tokens for item in light for attempt in item.attempts)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_the_old_file(tmp_path, items, suffix):
    path = tmp_path / f"x{suffix}"
    write_recording(path, header(2), items[:5])
    before = path.read_bytes()

    def breaks():
        yield items[0]
        raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError):
        write_recording(path, header(2), breaks())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_failed_and_incomplete_rows_are_skipped(tmp_path, items):
    path = tmp_path / "x.jsonl"
    write_recording(path, header(2), items[:3])
    failed = {"id": row_id(items[3].key), "error": {"type": "ProviderError"}, "cost_usd": 0.0}
    with path.open("a") as file:
        file.write(json.dumps(failed) + "\n" + json.dumps(item_to_json(items[3])) + "\n" + '{"id": "torn')
    assert list(open_recording(path).items()) == items[:4]


def test_five_hundred_items_compress_to_a_few_megabytes(tmp_path):
    """A committed recording of 500 items with 7 attempts of about 120 tokens has to stay under 15 MB."""
    rng = np.random.default_rng(0)
    few = list(open_recording(synthetic_panel(tmp_path, 50, samples=5)).items())
    words = [f" w{i}" for i in range(3000)]

    def long(attempt):
        texts = rng.choice(words, 120).tolist()
        values = np.round(-rng.gamma(0.4, 0.8, 120), 4).tolist()
        return replace(attempt, tokens=tuple(map(Token, texts, values)), text="".join(texts))

    made = [replace(item, attempts=tuple(map(long, item.attempts))) for item in few]
    write_recording(tmp_path / "x.jsonl.gz", header(5), made)
    assert 10 * (tmp_path / "x.jsonl.gz").stat().st_size < 15e6


def test_a_file_that_is_not_a_recording_is_rejected(tmp_path):
    with pytest.raises(InputError, match="no such recording; make one with: odar eval collect"):
        open_recording(tmp_path / "none.jsonl")
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(InputError, match=r"ends in \.jsonl or \.jsonl\.gz"):
        open_recording(tmp_path / "x.csv")
    (tmp_path / "x.jsonl").write_text('{"query": "x"}\n')
    with pytest.raises(InputError, match="has format None"):
        open_recording(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl.gz").write_text("no gzip")
    with pytest.raises(InputError, match=r"x\.jsonl\.gz is damaged"):
        open_recording(tmp_path / "x.jsonl.gz")


@pytest.mark.parametrize("line", ["[]", '{"id": 7}', '{"id": "x", "error": null}', '{"no": "id"}', '{"id": "a"'])
def test_a_damaged_line_is_an_input_error(tmp_path, items, line):
    path = tmp_path / "x.jsonl"
    write_recording(path, header(2), items[:1])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"x\.jsonl is damaged"):
        list(open_recording(path).items())


@pytest.mark.parametrize("name", ["gsm8k", 'a "quoted" name', "näme/with slash", "[x]"])
def test_any_set_name_survives_a_round_trip(items, name):
    odd = replace(items[0], key=ItemKey(name, name, 7))
    assert item_from_json(json.loads(json.dumps(item_to_json(odd)))) == odd
