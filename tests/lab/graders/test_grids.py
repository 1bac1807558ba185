from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.text import find_grids, format_grid, grid_match

GOLD = [[1, 2], [3, 4]]
rectangles = st.integers(2, 6).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=2, max_size=6)
)


def test_grids_are_read_in_every_notation():
    assert grid_match(GOLD, "1 2\n3 4") == 1.0
    assert grid_match(GOLD, "Answer:\n```\n12\n34\n```") == 1.0
    assert grid_match(GOLD, "[[1, 2],\n [3, 4]]") == 1.0
    assert grid_match(GOLD, "[1, 2]\n[3, 4]") == 1.0
    assert grid_match(GOLD, "1,2\n3,4") == 1.0


def test_wrong_shapes_and_cells_do_not_match():
    assert grid_match(GOLD, "1 2\n3 5") == 0.0
    assert grid_match(GOLD, "1 2 3 4") == 0.0
    assert grid_match(GOLD, "1 2\n3 4\n5 6") == 0.0
    assert grid_match(GOLD, "1 2\n3") == 0.0
    assert grid_match(GOLD, "") == 0.0


def test_the_last_two_grids_count():
    right, wrong = "1 2\n3 4", "9 9\n9 9"
    assert grid_match(GOLD, f"{wrong}\n\nor\n\n{right}") == 1.0
    assert grid_match(GOLD, f"{right}\n\nor\n\n{wrong}") == 1.0
    assert grid_match(GOLD, f"{right}\n\nthen\n\n{wrong}\n\nor\n\n{wrong}") == 0.0  # the last two count


def test_grids_have_the_order_of_the_text():
    assert find_grids("[[5, 6]]\nthen\n1 2\n3 4\nand [[7, 8]]") == [[[5, 6]], [[1, 2], [3, 4]], [[7, 8]]]
    assert find_grids("[[1, 2], [3, [4]]]") != [[1, 2], [3, [4]]]


@given(rectangles)
def test_a_shown_grid_is_read_back(grid):
    assert find_grids(format_grid(grid)) == [grid]
    assert grid_match(grid, f"I think\n\n{format_grid(grid)}\n\nis it.") == 1.0


@given(st.text(alphabet="0123456789[], \nx", max_size=200))
def test_reading_grids_never_raises(text):
    assert all(row for grid in find_grids(text) for row in grid)


def test_brackets_without_a_grid_are_skipped():
    assert find_grids("[[1, oops], [2, oops]]") == []
    assert find_grids("[[], []]") == []
    assert find_grids("[[1.5, 2]]") == []
    assert find_grids("[[1, oops]] but [[1, 2]]") == [[[1, 2]]]
