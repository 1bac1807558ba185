from __future__ import annotations

import json
from dataclasses import replace

import pytest

from odar.batch.executor import Item
from odar.errors import InputError
from odar.evals.panel.entry import (
    Bill,
    Entry,
    Key,
    attempt,
    attempt_from_json,
    attempt_to_json,
    bill,
    row_id,
    row_of,
)
from odar.evals.panel.folder import open_folder, panel_file
from odar.evals.panel.header import Header, calibration_of, header_of
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


def finish(folder, *entries):
    for each in entries:
        done = {"cost_usd": bill(each.attempts), "error": None, "digest": "d"}
        folder.journal.write({"id": row_id(each.key), **done, **row_of(each)})


def unfinished(folder, key, *attempts):
    item = Item(row_id(key), None, "d")
    folder.journal.memo(item).keep("answer:0", [attempt_to_json(each) for each in attempts])
    return item


def test_what_is_written_is_read_again(tmp_path):
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder, entry())
    with open_folder(tmp_path, HEADER) as folder:
        assert list(folder.entries()) == [entry()]


def test_a_failed_item_is_no_entry(tmp_path):
    with open_folder(tmp_path, HEADER) as folder:
        folder.journal.write({"id": row_id(KEY), "cost_usd": None, "error": {"type": "X"}, "digest": "d"})
        assert list(folder.entries()) == []
        assert folder.compact() == 0
        assert not folder.path.exists()


def test_a_panel_of_other_models_is_refused(tmp_path):
    other = header_of(engine(fast__temperature=0.9)[0], 5)
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder, entry())
    with pytest.raises(InputError, match="made with other models, prompts"), open_folder(tmp_path, other):
        pass
    with open_folder(tmp_path, HEADER) as folder:
        folder.compact()
    with (
        pytest.raises(InputError, match="other models, prompts, sampling or --samples"),
        open_folder(tmp_path, other),
    ):
        pass


def test_a_panel_of_another_version_is_refused(tmp_path):
    write_panel(tmp_path / "panel.parquet", replace(HEADER, format="odar-panel-99"), [entry()])
    with (
        pytest.raises(InputError, match="format 'odar-panel-99'; this odar reads 'odar-panel-2': upgrade odar"),
        open_folder(tmp_path, HEADER),
    ):
        pass


def test_a_journal_of_before_is_refused_while_it_holds_answers(tmp_path):
    old = tmp_path / "journal.jsonl"
    old.write_text(HEADER.to_json() + '\n{"key": ["sums", "1", 42], "attempts": []}\n')
    with pytest.raises(InputError, match="older version and holds answers"), open_folder(tmp_path, HEADER):
        pass
    assert len(old.read_text().splitlines()) == 2
    old.write_text(HEADER.to_json() + "\n")  # as every run that ended left it
    with open_folder(tmp_path, HEADER) as folder:
        assert list(folder.entries()) == []


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
    assert panel_file(tmp_path) == path
    with pytest.raises(InputError, match="holds no panel; make one with: odar eval collect"):
        panel_file(tmp_path / "elsewhere")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InputError, match="cannot be read as a panel"):
        read_header(tmp_path / "text.parquet")


def test_compaction_moves_finished_items_and_leaves_the_rest(tmp_path):
    half = Key("sums", "3", 42)
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder, entry(), entry(Key("sums", "2", 42)))
        item = unfinished(folder, half, said())
        assert folder.compact() == 2
        finish(folder, entry(Key("sums", "4", 42)))
        assert folder.compact() == 3
    with open_folder(tmp_path, HEADER) as folder:
        assert {key.id for key in folder.compacted} == {"1", "2", "4"}
        assert folder.spent() is None
        assert [attempt_from_json(row) for row in folder.journal.memo(item).recall("answer:0")] == [said()]
    assert [each.key.id for each in read_entries(tmp_path / "panel.parquet")] == ["1", "2", "4"]


def test_a_kill_between_the_two_halves_of_a_compaction_counts_no_item_twice(tmp_path):
    with open_folder(tmp_path, HEADER) as folder:
        finish(folder, entry())
        write_panel(folder.path, HEADER, folder.entries())  # and here the power goes
    with open_folder(tmp_path, HEADER) as folder:
        assert folder.compact() == 1
        assert list(folder.entries()) == []
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
