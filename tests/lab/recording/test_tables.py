from __future__ import annotations

import json

import pytest

from odar.errors import InputError
from odar.lab.recording.files import read_table


def test_every_format_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    (tmp_path / "b.json").write_text(json.dumps({"canary": "c", "examples": [{"x": 1}]}))
    (tmp_path / "c.json").write_text('[{"x": 1}]')
    (tmp_path / "d.csv").write_text('x,y\n1,"two\nlines"\n')
    assert list(read_table(tmp_path / "a.jsonl")) == [{"x": 1}, {"x": 2}]
    assert list(read_table(tmp_path / "b.json")) == list(read_table(tmp_path / "c.json")) == [{"x": 1}]
    assert list(read_table(tmp_path / "d.csv")) == [{"x": "1", "y": "two\nlines"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{", "a.jsonl: line 1 is not JSON"),
        ("a.jsonl", b'{"x": 1}\n\xff\xfe', "a.jsonl: line 2 is not JSON"),
        ("a.json", b'{"rows": ', "damaged or not json"),
        ("a.parquet", b"PAR1 not really", "damaged or not parquet"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_table(tmp_path / name))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        list(read_table(tmp_path / "none.csv"))
