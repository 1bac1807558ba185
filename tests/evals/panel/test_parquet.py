from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow
import pytest
from pyarrow import parquet

from odar.errors import InputError
from odar.evals.panel.entry import Key, add_up, entry_of, row_id, row_of
from odar.evals.panel.parquet import (
    ROWS,
    open_panel,
    read_costs,
    read_entries,
    read_header,
    read_keys,
    read_rows,
    write_panel,
)
from support.panels import header, synthetic_panel


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    return synthetic_panel(tmp_path_factory.mktemp("panel"), ROWS + 10, samples=2)


def test_row_groups_are_read_one_at_a_time(panel):
    file = open_panel(panel)
    assert (file.num_row_groups, file.metadata.num_rows) == (2, ROWS + 10)
    rows = read_rows(panel, ["key"])
    assert next(rows) == {"key": {"benchmark": "alpha", "id": "0", "seed": 42}}


def test_some_entries_by_their_keys(panel):
    wanted = {Key("alpha", "0", 42), Key("beta", str(ROWS + 2), 42), Key("none", "0", 42)}
    found = list(read_entries(panel, wanted))
    assert {entry.key for entry in found} == {key for key in wanted if key in read_keys(panel)}
    assert len(read_keys(panel)) == ROWS + 10


def test_costs_without_reading_what_was_said(panel):
    costs = list(read_costs(panel))
    for entry, cost in zip(read_entries(panel), costs, strict=True):
        prompts = {attempt.request: attempt.prompt_usd for attempt in entry.attempts}
        assert cost == pytest.approx(sum(a.output_usd for a in entry.attempts) + sum(prompts.values()))


def test_a_bill_counts_a_prompt_once_and_unknown_as_unknown():
    assert add_up([]) == 0
    assert add_up([(0, 1.0, 0.5), (0, 1.0, 0.5), (1, 1.0, 0.0)]) == 3.0
    assert add_up([(0, None, 0.5)]) is None
    assert add_up([(0, 1.0, None)]) is None


def test_no_file_holds_no_keys(tmp_path):
    assert read_keys(tmp_path / "none.parquet") == set()


def test_a_parquet_file_of_somebody_elses_is_no_panel(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(InputError, match="is a Parquet file, but not a panel of ODAR"):
        read_header(path)


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = synthetic_panel(tmp_path, 5, samples=2)
    before = path.read_bytes()
    good = list(read_entries(path))

    def breaks():
        yield good[0]
        raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError):
        write_panel(path, header(2), breaks())
    assert path.read_bytes() == before


def test_without_pyarrow_it_says_what_to_install(panel, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"need pyarrow: pip install 'odar\[evals\]'"):
        open_panel(panel)


def test_an_entry_survives_the_journal(panel):
    for entry in list(read_entries(panel))[:5]:
        row = {"id": row_id(entry.key), **row_of(entry)}
        assert entry_of(row) == entry
        assert entry_of({**row, "cost_usd": 1.0, "error": None, "digest": "d"}) == entry


@pytest.mark.parametrize("name", ["gsm8k", 'a "quoted" name', "näme/with slash", "[x]"])
def test_any_name_makes_a_row_id(panel, name):
    entry = next(read_entries(panel))
    odd = replace(entry, key=Key(name, name, 7))
    assert entry_of({"id": row_id(odd.key), **row_of(odd)}) == odd
