from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.text import find_grids, grid_match

RIGHT, WRONG = "1 2\n3 4", "9 9\n9 9"


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (f"{WRONG}\n\nor\n\n{RIGHT}", 1),
        (f"{RIGHT}\n\nor\n\n{WRONG}", 1),
        (f"{RIGHT}\n\nthen\n\n{WRONG}\n\nor\n\n{WRONG}", 0),  # the last two count
        ("1 2 3 4", 0),
        ("1 2\n3 4\n5 6", 0),
        ("1 2\n3", 0),
        ("", 0),
    ],
)
def test_the_last_two_grids_count_if_shape_and_cells_are_right(response, score):
    assert grid_match([[1, 2], [3, 4]], response) == score


@pytest.mark.parametrize(
    ("text", "grids"),
    [
        ("[[5, 6]]\nthen\n1 2\n3 4\nand [[7, 8]]", [[[5, 6]], [[1, 2], [3, 4]], [[7, 8]]]),
        ("[[1, oops], [2, oops]]", []),
        ("[[], []]", []),
        ("[[1.5, 2]]", []),
        ("[[1, oops]] but [[1, 2]]", [[[1, 2]]]),
    ],
)
def test_grids_are_found_in_the_order_of_the_text(text, grids):
    assert find_grids(text) == grids


@given(st.text(alphabet="0123456789[], \nx", max_size=200))
def test_reading_grids_never_raises(text):
    assert all(row for grid in find_grids(text) for row in grid)
