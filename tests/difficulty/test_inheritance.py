from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import Message
from odar.difficulty.base import estimate_turn
from odar.types import Estimate, Query

unit = st.floats(0, 1)


class Table:
    """An estimator that looks up difficulties by word."""

    name = "table"

    def __init__(self, **known: float) -> None:
        self.known = known
        self.asked: list[str] = []

    def estimate(self, query: Query) -> Estimate:
        self.asked.append(query.text)
        return Estimate(self.known.get(query.text.split()[0], 0.1), self.name)


def talk(*users: str) -> Query:
    turns = [Message("system", "s")]
    for user in users:
        turns += [Message("user", user), Message("assistant", "…")]
    return Query.from_messages(tuple(turns))


def test_a_short_turn_after_a_hard_one_is_not_simple():
    estimate = estimate_turn(Table(prove=0.9, commit=0.02), talk("prove the theorem", "commit it"))
    assert 0.3 <= estimate.difficulty < 0.7
    assert estimate.contributions[-1][0] == "inherited"


def test_inherited_difficulty_decays():
    users = ["prove it", *["go on"] * 5]
    estimator = Table(prove=0.9, go=0.02)
    levels = [estimate_turn(estimator, talk(*users[: n + 1])).difficulty for n in range(6)]
    assert [level >= 0.3 for level in levels] == [True, True, True, True, False, False]


def test_a_long_turn_inherits_nothing():
    estimator = Table(prove=0.9)
    words = "what is the weather like in the north of the country on a day in spring when it has rained hard all night long"
    assert estimate_turn(estimator, talk("prove it", words)).difficulty == 0.1
    assert estimator.asked == [words]


def test_a_single_question_has_its_own_estimate():
    assert estimate_turn(Table(prove=0.9), Query("prove it")) == Estimate(0.9, "table")


@given(unit, st.integers(1, 50), st.lists(unit))
def test_inheritance_only_raises_difficulty(own, words, earlier):
    known = {f"turn{i}": d for i, d in enumerate(earlier)}
    estimator = Table(last=own, **known)
    assert own <= estimate_turn(estimator, talk(*known, "last " * words)).difficulty <= 1
