"""Estimates in this process."""

from __future__ import annotations

import threading

from odar.conversation import Message
from odar.difficulty.baselines import LengthEstimator
from odar.difficulty.sticky import estimate_turn
from odar.estimates.here import Here
from odar.types import Estimate, Query


class Watched(LengthEstimator):
    """Notes which thread estimates."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []

    def estimate(self, query: Query) -> Estimate:
        self.threads.append(threading.current_thread())
        return super().estimate(query)


async def test_only_what_loads_goes_to_a_thread() -> None:
    watched = Watched()
    here = Here(watched)
    for _ in range(3):
        await here(Query("How long?"))
    assert [thread is threading.main_thread() for thread in watched.threads] == [False, True, True, True]
    await here.close()


async def test_earlier_turns_count() -> None:
    hard = Message("user", "word " * 60)
    query = Query.of((hard, Message("assistant", "Yes."), Message("user", "Commit it.")))
    estimate = await Here(LengthEstimator())(query)
    assert estimate == estimate_turn(LengthEstimator(), query)
    assert estimate.contributions[-1][0] == "inherited"
