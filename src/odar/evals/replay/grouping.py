"""Which answers of an item are the same one, for any choice of its answers.

Equality is by canonical form, and so the same whatever else is on the table, with one exception: a bare number
joins the only unit its value appears with. Items where that can happen are grouped anew for each choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from odar.policy.equivalence import canonical, group
from odar.policy.rules import Bools, Ints


@dataclass(frozen=True, slots=True)
class Grouping:
    """Equal answers share a number."""

    full: Ints
    """(N, M) with all answers on the table."""
    open: Mapping[int, Sequence[str]]
    """Rows whose groups depend on which answers are there, with their answers."""

    @classmethod
    def of_answers(cls, rows: Sequence[Sequence[str]]) -> Grouping:
        """Group the answers of each row."""
        full = np.array([_group(row) for row in rows], dtype=np.int64)
        return cls(full, {i: row for i, row in enumerate(rows) if _depends(row)})

    @classmethod
    def join(cls, parts: Sequence[Grouping]) -> Grouping:
        """Rows of several groupings, one after another."""
        starts = np.cumsum([0, *(len(part.full) for part in parts)])
        rows = {
            int(start) + i: row for start, part in zip(starts, parts, strict=False) for i, row in part.open.items()
        }
        return cls(np.concatenate([part.full for part in parts]), rows)

    def among(self, present: Bools) -> Ints:
        """The groups where only these answers are on the table; −1 for the others."""
        groups = np.where(present, self.full, -1)
        for row, answers in self.open.items():
            there = np.flatnonzero(present[row])
            groups[row, there] = group([answers[column] for column in there.tolist()])
        return groups


def _group(answers: Sequence[str]) -> list[int]:
    """`group`, with answers that are spelt alike looked at once: samples often are."""
    spelt = list(dict.fromkeys(answers))
    numbers = dict(zip(spelt, group(spelt), strict=True))
    return [numbers[answer] for answer in answers]


def _depends(answers: Sequence[str]) -> bool:
    """Whether a bare number and the same number with a unit are both among them."""
    forms = [form for form in map(canonical, dict.fromkeys(answers)) if form.kind == "number"]
    bare = {form.value for form in forms if not form.unit}
    return any(form.unit and form.value in bare for form in forms)
