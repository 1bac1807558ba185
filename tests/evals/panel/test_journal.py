from __future__ import annotations

import json

import pytest

from odar.errors import InputError
from odar.evals.panel.entry import Bill, Entry, Key, attempt
from odar.evals.panel.folder import open_folder, panel_file, seeds_of
from odar.evals.panel.header import FORMAT, Header, calibration_of, header_of
from odar.evals.panel.journal import Journal
from odar.evals.panel.parquet import read_entries, read_header, write_panel
from odar.types import Candidate, Step, Token, Usage
from test_engine import engine

HEADER = header_of(engine()[0], 5)
KEY = Key("sums", "1", 42)


def said(step=Step.ANSWER, index=0, text="Answer: 1 · ü"):
    tokens = (Token("Answer:", -0.1), Token(" 1", None), Token("</s>", -1.0, True))
    return attempt(
        Candidate(step, "quick", text, "1", tokens), index, 1.0, Bill(0, Usage(9, 0, 3, 0), None, 0.5), 3
    )


def entry(key=KEY, samples=2):
    attempts = (said(), said(Step.VERIFY), *(said(Step.SOLVE, i) for i in range(samples)))
    return Entry(
        key=key, category="Mathematics", metric="accuracy", stratum="s", fold=2, query="What is 1?\u2028",
        gold={"answer": ["1"]}, effort=None, features=(0.5,) * 24, difficulty=0.25, expert="math", attempts=attempts,
    )  # fmt: skip


def finish(journal, *entries):
    for each in entries:
        journal.add(each.key, each.attempts[:1])
        journal.add(each.key, each.attempts[1:])
        journal.finish(each)


def test_what_is_written_is_read_again(tmp_path):
    finish(Journal(tmp_path / "j", HEADER), entry())
    again = Journal(tmp_path / "j", HEADER)
    assert again.finished == {KEY}
    assert list(again.entries()) == [entry()]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_torn_last_line_is_dropped_and_nothing_else(tmp_path, cut):
    path = tmp_path / "j"
    finish(Journal(path, HEADER), entry(), entry(Key("sums", "2", 42)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    again = Journal(path, HEADER)
    assert again.finished == {KEY}
    assert len(again.attempts(Key("sums", "2", 42))) == 4  # paid for, and kept
    again.finish(entry(Key("sums", "2", 42)))
    assert path.read_bytes() == whole


def test_a_header_torn_at_birth_is_a_new_journal(tmp_path):
    (tmp_path / "j").write_text(HEADER.to_json()[:50])
    assert Journal(tmp_path / "j", HEADER).finished == set()


def test_a_journal_of_other_models_or_another_version_is_refused(tmp_path):
    Journal(tmp_path / "j", HEADER)
    with pytest.raises(InputError, match="other models, prompts, sampling or --samples"):
        Journal(tmp_path / "j", header_of(engine(fast__temperature=0.9)[0], 5))
    (tmp_path / "k").write_text(HEADER.to_json().replace(FORMAT, "odar-panel-99") + "\n")
    with pytest.raises(InputError, match="format 'odar-panel-99'; this odar reads 'odar-panel-2': upgrade odar"):
        Journal(tmp_path / "k", HEADER)


def test_a_spoilt_line_is_named(tmp_path):
    finish(Journal(tmp_path / "j", HEADER), entry())
    lines = (tmp_path / "j").read_text().split("\n")
    (tmp_path / "j").write_text("\n".join([*lines[:2], "[]", *lines[2:]]))
    with pytest.raises(InputError, match="line 3 is not a line of a journal"):
        Journal(tmp_path / "j", HEADER)


def test_a_header_holds_what_a_replay_needs():
    again = Header.from_json(HEADER.to_json(), "x")
    assert again == HEADER
    assert again.settings["routing"]["samples"] == 5
    assert {(row["model"], row["step"]) for row in again.sources} == {
        ("quick", "answer"), ("deep", "verify"), ("deep", "solve"),
    }  # fmt: skip
    assert calibration_of(again).statistics.entries == engine()[0].calibration.statistics.entries
    json.dumps(again.settings, allow_nan=False)
    with pytest.raises(InputError, match="x is not a panel"):
        Header.from_json('{"format": "odar-panel-2"}', "x")


def test_a_panel_survives_parquet(tmp_path):
    entries = [entry(), entry(Key("sums", "2", 123))]
    path = tmp_path / "panel.parquet"
    assert write_panel(path, HEADER, entries) == 2
    assert list(read_entries(path)) == entries
    assert read_header(path) == HEADER
    assert seeds_of(path) == [42, 123]
    assert panel_file(tmp_path) == path
    with pytest.raises(InputError, match="holds no panel; make one with: odar eval collect"):
        panel_file(tmp_path / "elsewhere")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InputError, match="cannot be read as a panel"):
        read_header(tmp_path / "text.parquet")


def test_compaction_moves_finished_items_and_leaves_the_rest(tmp_path):
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder.journal, entry(), entry(Key("sums", "2", 42)))
        half = Key("sums", "3", 42)
        folder.journal.add(half, [said()])
        assert folder.compact() == 2
        assert folder.attempts(half) == [said()]
        assert folder.attempts(KEY) == []
        finish(folder.journal, entry(Key("sums", "4", 42)))
        assert folder.compact() == 3
    with open_folder(tmp_path, HEADER) as folder:
        assert {key.id for key in folder.finished} == {"1", "2", "4"}
        assert folder.spent() is None
    assert [each.key.id for each in read_entries(tmp_path / "panel.parquet")] == ["1", "2", "4"]


def test_a_kill_between_the_two_halves_of_a_compaction_counts_no_item_twice(tmp_path):
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder.journal, entry())
        write_panel(folder.path, HEADER, folder.journal.entries())  # and here the power goes
    with open_folder(tmp_path, HEADER) as folder:
        assert folder.compact() == 1
        assert folder.journal.finished == set()
    assert len(list(read_entries(tmp_path / "panel.parquet"))) == 1


def test_one_writer_at_a_time(tmp_path):
    with (
        open_folder(tmp_path, HEADER),
        pytest.raises(InputError, match="being written by another"),
        open_folder(tmp_path, HEADER),
    ):
        pass
    with open_folder(tmp_path, HEADER):
        pass
