from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripts import script

coverage_table = script("coverage_table")
Taken = coverage_table.Taken


def summary(lines, all_lines, branches, all_branches):
    return {
        "covered_lines": lines,
        "num_statements": all_lines,
        "covered_branches": branches,
        "num_branches": all_branches,
    }


def report(**files):
    """As coverage.py writes it; a double underscore is a slash."""
    summaries = {name.replace("__", "/"): summary(*figures) for name, figures in files.items()}
    totals = summary(*map(sum, zip(*files.values(), strict=True)))
    return {
        "files": {f"/home/odar/wt/src/odar/{name}.py": {"summary": each} for name, each in summaries.items()},
        "totals": totals,
    }


@pytest.fixture
def run(monkeypatch, capsys):
    def run(found, *arguments):
        monkeypatch.setattr(coverage_table, "read_report", lambda: found)
        code = coverage_table.main(list(arguments))
        return code, capsys.readouterr().out

    return run


def test_the_least_covered_come_first_and_the_whole_is_said_last(run):
    code, out = run(report(engine=(100, 100, 40, 40), cli__ask=(50, 100, 10, 40), cli__top=(90, 100, 20, 20)))
    packages, modules, verdict = out.strip().split("\n\n")
    assert [line.split()[-1] for line in packages.splitlines()] == ["package", "cli", "."]
    assert packages.splitlines()[1].split() == ["70.0%", "50.0%", "65.4%", "cli"]
    assert [line.split()[-1] for line in modules.splitlines()] == [
        "module",
        "cli/ask.py",
        "cli/top.py",
        "engine.py",
    ]
    assert verdict == (
        "src/odar as a whole: 70.0% of 100 branches, 80.0% of 300 lines, 77.5% of both; "
        "NOT ENOUGH: 90% of branches are asked for"
    )
    assert code == 1


@pytest.mark.parametrize(("branches", "code"), [(899, 1), (900, 0), (1000, 0)])
def test_ninety_percent_of_branches_is_where_it_passes(run, branches, code):
    assert run(report(engine=(1000, 1000, branches, 1000)))[0] == code


def test_lines_do_not_make_up_for_branches(run):
    """Both together are at 98%."""
    code, out = run(report(engine=(10_000, 10_000, 80, 300)))
    assert (code, "NOT ENOUGH" in out) == (1, True)


def test_another_bar_may_be_asked_for(run):
    found = report(engine=(90, 100, 85, 100))
    assert run(found, "--least", "80")[0] == 0
    assert run(found, "--least", "85.5")[0] == 1


def test_a_package_without_a_branch_has_missed_none(run):
    assert "100.0%   100.0%   100.0%  types" in run(report(types__a=(3, 3, 0, 0)))[1]


@given(st.lists(st.tuples(st.sampled_from(["a", "b/c", "b/d/e", "f/g"]), *[st.integers(0, 99)] * 2), max_size=9))
def test_packages_add_up_to_the_whole(rows):
    files = {f"{name}{i}.py": Taken(lines, 99, branches, 99) for i, (name, lines, branches) in enumerate(rows)}
    packages = coverage_table.by_package(files)
    assert sum(packages.values(), Taken()) == sum(files.values(), Taken())
    assert set(packages) <= {".", "b", "f"}


def test_without_a_run_there_is_nothing_to_tell(tmp_path):
    file = coverage_table.__file__
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No data to report" in done.stdout + done.stderr
