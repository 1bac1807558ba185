from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odar.calibration.items import Item
from odar.calibration.provenance import Provenance
from odar.calibration.records import Attempt, Record, RecordFile
from odar.errors import InputError
from odar.types import Query, Step

MODELS = Provenance({"slow": {"model": "m", "temperature": 0.3}})
OTHERS = Provenance({"slow": {"model": "m", "temperature": 1.0}})


def attempt(step=Step.ANSWER, correct=True):
    return Attempt(step, "m", "4", correct, 0.1, 0.01, 12, None, 0.001)


def record(id_="a"):
    return Record(id_, "2 + 2?", 0.2, attempt(), attempt(Step.VERIFY), (attempt(Step.SOLVE),) * 5, 5, 3.0)


def test_what_was_appended_is_there_when_the_file_is_opened_again(tmp_path):
    file = RecordFile(tmp_path / "r.jsonl", MODELS)
    file.append(record("a"))
    file.append(record("b"))
    file.close()
    again = RecordFile(tmp_path / "r.jsonl", MODELS)
    assert again.entries == [record("a"), record("b")]
    items = [Item(name, Query("q"), ("x",)) for name in "abc"]
    assert [item.id for item in again.missing(items)] == ["c"]


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_half_written_line_is_dropped(tmp_path, cut):
    path = tmp_path / "r.jsonl"
    file = RecordFile(path, MODELS)
    file.append(record("a"))
    file.append(record("b"))
    file.close()
    path.write_bytes(path.read_bytes()[:-cut])
    again = RecordFile(path, MODELS)
    assert [r.id for r in again.entries] == ["a"]
    again.append(record("c"))
    again.close()
    assert [r.id for r in RecordFile(path, MODELS).entries] == ["a", "c"]


def test_a_file_made_by_something_else_is_refused(tmp_path):
    with RecordFile(tmp_path / "r.jsonl", MODELS) as file:
        file.append(record())
    with pytest.raises(InputError, match="made with other models"):
        RecordFile(tmp_path / "r.jsonl", OTHERS)


@pytest.mark.parametrize("content", ["not json\n", json.dumps(MODELS.header("odar-records-2")) + '\n{"id": 1}\n'])
def test_a_file_that_holds_no_records_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="move it away"):
        RecordFile(path, MODELS)
    assert path.read_text() == content


def test_a_file_that_was_refused_is_free_for_others(tmp_path):
    with RecordFile(tmp_path / "r.jsonl", MODELS) as file:
        file.append(record())
    with pytest.raises(InputError, match="made with other models"):
        RecordFile(tmp_path / "r.jsonl", OTHERS)
    with RecordFile(tmp_path / "r.jsonl", MODELS) as file:
        assert len(file.entries) == 1


HOLDER = """
import sys, time
from pathlib import Path
from odar.calibration.provenance import Provenance
from odar.calibration.records import RecordFile
file = RecordFile(Path(sys.argv[1]), Provenance({"slow": {"model": "m", "temperature": 0.3}}))
print("open", flush=True)
time.sleep(60)
"""


def test_another_process_cannot_have_the_file_until_the_first_is_gone_however_it_goes(tmp_path):
    path = tmp_path / "r.jsonl"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(InputError, match="in use by another run"):
            RecordFile(path, MODELS)
    finally:
        holder.kill()  # as kill -9 does: nothing of its own runs any more
        holder.communicate()
    with RecordFile(path, MODELS) as file:
        assert file.entries == []
