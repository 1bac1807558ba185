from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odar.errors import InputError
from odar.lab.runs.journal import Journal, WorkItem


def item(key, digest="d"):
    return WorkItem(key, None, digest)


def row(key, digest="d", error=None, **more):
    return {"id": key, **more, "error": error, "digest": digest}


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.jsonl"


def test_written_rows_are_read_again(out):
    with Journal(out) as journal:
        journal.write(row("b", cost_usd=0.5))
        journal.write(row("ä", text="ü\n"))
    with Journal(out) as journal:
        assert [each.key for each in journal.missing([item("ä"), item("b"), item("c")])] == ["c"]
        assert journal.entries["b"].cost_usd == 0.5
        assert json.loads(next(journal.lines(["none", "ä"])))["text"] == "ü\n"
    assert sorted(path.name for path in out.parent.iterdir()) == ["out.jsonl", "out.jsonl.lock"]


def test_an_unpaired_surrogate_survives_a_round_trip(out):
    with Journal(out) as journal:
        journal.write(row("a", text="ä \ud83d"))
    with Journal(out) as journal:
        assert json.loads(next(journal.lines("a")))["text"] == "ä \ud83d"


def test_rows_are_sorted_in_the_order_of_the_items(out):
    with Journal(out) as journal:
        for key in ("c", "a", "other"):
            journal.write(row(key))
        journal.write(row("b", error={"type": "X"}))
        journal.sort([item("a"), item("b"), item("c"), item("not yet")])
        assert ids(out) == ["a", "b", "c", "other"]
        journal.write(row("b", text="now"))  # offsets follow the rows
        assert [json.loads(line)["id"] for line in journal.lines("abc")] == ["a", "b", "c"]
        journal.sort([item("a"), item("b"), item("c")])
    assert ids(out) == ["a", "b", "c", "other"]
    assert json.loads(out.read_text().splitlines()[1])["text"] == "now"


@pytest.mark.parametrize("cut", [1, 10, 19])
def test_a_half_written_line_is_dropped(out, cut):
    with Journal(out) as journal:
        journal.write(row("a"))
        journal.write(row("b"))
    out.write_bytes(out.read_bytes()[:-cut])
    with Journal(out) as journal:
        assert list(journal.entries) == ["a"]
        journal.write(row("b"))
    assert ids(out) == ["a", "b"]


def test_an_incomplete_first_row_is_dropped(out):
    out.write_text('{"i')
    with Journal(out) as journal:
        assert journal.entries == {}
    assert out.read_text() == ""


@pytest.mark.parametrize(
    "content", ["a line of notes", "a line of notes\n", '{"id": "a"}\n[]\n', '{"id": 1, \n', '{"id": "a"}\nnotes']
)
def test_a_file_of_another_kind_is_rejected_and_unchanged(out, content):
    out.write_text(content)
    with pytest.raises(InputError, match="was not written by this command"), Journal(out):
        pass
    assert out.read_text() == content


def test_a_file_in_use_is_rejected(out):
    with Journal(out), pytest.raises(InputError, match="written by another process"), Journal(out):
        pass
    with Journal(out):
        pass


def test_a_directory_as_output_is_an_error(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder cannot be used: Is a directory"), Journal(tmp_path / "folder"):
        pass


def test_a_row_of_another_question_is_rejected(out):
    with Journal(out) as journal:
        journal.write(row("a", digest="old"))
        with pytest.raises(InputError, match="row 'a' that was made from another question or with other settings"):
            journal.missing([item("a", "new")])


def test_rows_with_an_error_count_as_missing(out):
    with Journal(out) as journal:
        journal.write(row("a", error={"type": "ProviderTimeout"}, digest="old"))
        assert [each.key for each in journal.missing([item("a", "new")])] == ["a"]


class TestParts:
    def test_parts_are_kept_until_their_item_is_written(self, out):
        with Journal(out) as journal:
            journal.memo(item("a")).keep("reply", {"text": "4"})
            journal.memo(item("b")).keep("reply", {"text": "5"})
        with Journal(out) as journal:
            assert journal.memo(item("a")).recall("reply") == {"text": "4"}
            journal.write(row("a"))
        with Journal(out) as journal:
            assert journal.memo(item("a")).recall("reply") is None
            assert journal.memo(item("b")).recall("reply") == {"text": "5"}
            journal.write(row("b"))
            journal.write(row("a"))
        assert not out.with_name("out.jsonl.parts").exists()

    def test_a_failed_item_keeps_its_parts(self, out):
        with Journal(out) as journal:
            journal.memo(item("a")).keep("reply", 1)
            journal.write(row("a", error={"type": "X"}))
        with Journal(out) as journal:
            assert journal.memo(item("a")).recall("reply") == 1

    def test_parts_of_another_question_are_not_recalled(self, out):
        with Journal(out) as journal:
            journal.memo(item("a", "old")).keep("reply", 1)
        with Journal(out) as journal:
            memo = journal.memo(item("a", "new"))
            assert memo.recall("reply") is None
            memo.keep("other", 2)
        with Journal(out) as journal:
            assert journal.memo(item("a", "new")).recall("other") == 2
            assert journal.memo(item("a", "old")).known == {"reply": 1}  # if the settings are restored

    def test_a_half_written_part_is_dropped(self, out):
        with Journal(out) as journal:
            journal.memo(item("a")).keep("one", 1)
            journal.memo(item("a")).keep("two", 2)
        parts = out.with_name("out.jsonl.parts")
        parts.write_bytes(parts.read_bytes()[:-3])
        with Journal(out) as journal:
            memo = journal.memo(item("a"))
            assert (memo.recall("one"), memo.recall("two")) == (1, None)


HEADER = {"format": "rows-2", "made_by": "abc"}


class TestHeader:
    def test_the_header_stays_the_first_line(self, out):
        with Journal(out, HEADER) as journal:
            journal.write(row("b"))
            journal.write(row("a"))
            journal.sort([item("a"), item("b")])
            journal.write(row("c"))
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert lines[0] == HEADER
        assert [line["id"] for line in lines[1:]] == ["a", "b", "c"]
        with Journal(out, HEADER) as journal:
            assert [each["id"] for each in journal.rows(journal.entries)] == ["a", "b", "c"]
            assert [each["id"] for each in journal.rows(["c", "x", "a"])] == ["c", "a"]

    @pytest.mark.parametrize("cut", [1, 10, 35])
    def test_an_incomplete_header_is_written_again(self, out, cut):
        with Journal(out, HEADER):
            pass
        out.write_bytes(out.read_bytes()[:-cut])
        with Journal(out, HEADER) as journal:
            journal.write(row("a"))
        assert json.loads(out.read_text().splitlines()[0]) == HEADER

    def test_a_different_header_is_rejected_and_the_lock_released(self, out):
        with Journal(out, HEADER) as journal:
            journal.write(row("a"))
        before = out.read_bytes()
        for other, why in (
            ({**HEADER, "made_by": "x"}, "made with other models, prompts or settings; move it away"),
            ({**HEADER, "format": "rows-3"}, "has format 'rows-2'; this odar reads 'rows-3': finish it"),
            (None, "was not written by this command"),
        ):
            with pytest.raises(InputError, match=why), Journal(out, other):
                pass
        assert out.read_bytes() == before
        with Journal(out, HEADER) as journal:
            assert list(journal.entries) == ["a"]

    def test_rows_without_a_header_are_rejected(self, out):
        with Journal(out) as journal:
            journal.write(row("a"))
        with pytest.raises(InputError, match="was not written by this command"), Journal(out, HEADER):
            pass


HOLDER = """
import sys, time
from pathlib import Path
from odar.lab.runs.journal import Journal, WorkItem
with Journal(Path(sys.argv[1])):
    print("open", flush=True)
    time.sleep(60)
"""


def test_killing_a_process_releases_its_lock(out):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(out)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(InputError, match="written by another process"), Journal(out):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with Journal(out) as journal:
        assert journal.entries == {}


def test_an_output_path_below_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"out\.jsonl cannot be used: "), Journal(tmp_path / "file" / "out.jsonl"):
        pass
