from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odar.evals.scorers.boxed import last_boxed


def test_boxes():
    assert last_boxed("\\boxed{1} then \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}"
    assert last_boxed("\\fbox{7}") == "7"
    assert last_boxed("$\\boxed 3$") == "3"
    assert last_boxed("\\boxed{4} and cut off \\boxed{5") == "4"
    assert last_boxed("\\boxed{\\{1,2\\}}") == "\\{1,2\\}"
    assert last_boxed("boxed{3}") is None


@given(st.text(alphabet="\\boxed{}1 $", max_size=100))
def test_any_text(text):
    last_boxed(text)
