from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.equivalence import group_answers
from odar.policy.similarity import AnswerRows

ANSWERS = st.sampled_from(["5", "5 kg", "5 g", "5.0", "6", "6 kg", "Paris", "paris.", "(a)", "so it must be 5"])
ROWS = st.lists(st.lists(ANSWERS, min_size=5, max_size=5), min_size=1, max_size=6)


def grouped(rows):
    return AnswerRows.of_answers(rows, [[True] * len(row) for row in rows], ["?"] * len(rows), "none")


def partition(numbers):
    return [[a == b for b in numbers] for a in numbers]


@given(ROWS, st.lists(st.booleans(), min_size=5, max_size=5).filter(any))
def test_any_subset_of_answers_is_grouped_as_by_fusion(rows, mask):
    present = np.tile(np.array(mask), (len(rows), 1))
    groups, _ = grouped(rows).groups_and_similarity(present)
    for row, answers in zip(groups, rows, strict=True):
        assert (row[~np.array(mask)] == -1).all()
        there = [answer for answer, is_there in zip(answers, mask, strict=True) if is_there]
        assert partition(row[np.array(mask)].tolist()) == partition(group_answers(there))


@given(ROWS, ROWS)
def test_concatenated_groupings_equal_those_of_all_rows(first, second):
    joined = AnswerRows.concatenate([grouped(first), grouped(second)])
    whole = grouped([*first, *second])
    assert (joined.groups == whole.groups).all()
    assert joined.regrouped == whole.regrouped
