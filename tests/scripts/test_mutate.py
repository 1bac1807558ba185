"""scripts/mutate.py: a mutant whose place is gone tests nothing, and is found here rather than in the long run."""

from __future__ import annotations

import pytest

from support.scripts import FOLDER, script

mutate = script("mutate")
ROOT = FOLDER.parent


@pytest.mark.parametrize("mutant", mutate.MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_has_one_place_and_tests(mutant):
    text = (ROOT / "src" / "odar" / mutant.file).read_text()
    assert text.count(mutant.right) == 1
    assert mutant.wrong != mutant.right
    compile(
        text.replace(mutant.right, mutant.wrong), mutant.file, "exec"
    )  # broken in what it does, not in how it is written
    assert all((ROOT / "tests" / name).exists() for name in mutant.tests.split())


def test_names_are_unique():
    names = [mutant.name for mutant in mutate.MUTANTS]
    assert len(set(names)) == len(names)


def test_what_issue_4_asks_for_is_among_them():
    names = " ".join(mutant.name for mutant in mutate.MUTANTS)
    assert all(word in names for word in ("λ: its sign", "E: not per character", "z-score: not divided"))
