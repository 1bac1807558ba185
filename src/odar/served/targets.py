"""Targets of one engine (SPEC 9.5), kept in a small file next to the traces, so that a restart loses nothing.

The processes of a machine add their questions up in the file. Each corrects its own surplus, so that no two correct
the same one; a process that ends leaves its own to the next.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odar.policy.dial import Dial, TargetState
from odar.served.counts import SYNC_S, SharedCounts, add_count
from odar.types import Spend

MAX_TARGETS_PER_SCOPE = 200
"""Beyond it the oldest is dropped in memory, and the one with fewest questions in the file, which holds ten times
as many of all scopes."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """State of one target."""

    scope: str
    kind: str
    target: float
    actual: float | None
    """Mean over all questions with this target, of all processes; None before the first."""
    questions: int
    factor: float


class Target(NamedTuple):
    """A mean to meet, and the questions that meet it together."""

    scope: str
    """settings, a key's, a request's."""
    kind: str
    value: float


class ServedTargets(SharedCounts[Target, TargetState]):
    """All targets of an engine. Thread-safe.

    Args:
        file: the file of the state; None keeps it in memory.
    """

    FORMAT = "odar-targets-3"
    ROWS = list[tuple[Target, TargetState]]

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file)
        self._states: dict[Target, TargetState] = {}
        self._sync_at = time.monotonic() + SYNC_S
        self._at_start: Mapping[Target, TargetState] | None = None
        """The counts of all processes at the first sync."""

    def factor(self, scope: str, dial: Dial) -> float:
        """The factor of V for the next question under this dial; 1 without a target. Can read a file."""
        if not dial.target:
            return 1.0
        self.read()
        with self._lock:
            return self._state(Target(scope, dial.target, dial.target_value)).factor(dial.target_value)

    def count(self, scope: str, dial: Dial, spend: Spend) -> None:
        """Count the spending of a question; one of unknown cost is not counted."""
        spent = spend.calls if dial.target == "calls" else spend.cost_usd
        if not dial.target or spent is None or not spend.calls:
            return
        target = Target(scope, dial.target, dial.target_value)
        with self._lock:
            self._state(target).count(spent, dial.target_value)
            add_count(self._unsaved, target, TargetState(1, spent))
        self._sync_if_due()

    def report(self) -> list[TargetReport]:
        """The targets in use by any process since this one started, the settings' first. Can read a file."""
        if self._is_due():
            self.sync()
        rows = []
        with self._lock:
            total = self.total or {}
            at_start = total if self._at_start is None else self._at_start
            elsewhere = {target: TargetState() for target in total if total[target] != at_start.get(target)}
            for target, state in (elsewhere | self._states).items():
                of_all = total.get(target, TargetState()) + self._unsaved.get(target, TargetState())
                rows.append(TargetReport(*target, of_all.mean, of_all.questions, state.factor(target.value)))
        return sorted(rows, key=lambda row: (row.scope != "settings", row.scope, row.target))

    def close(self) -> None:
        """Write unsaved counts, and leave the surplus of each target to the next process."""
        with self._lock:
            for target, state in self._states.items():
                add_count(self._unsaved, target, TargetState(debt=state.debt))
                state.debt = 0.0
        super().close()

    def _after_sync(self, total: Mapping[Target, TargetState]) -> None:
        if self._at_start is None:
            self._at_start = total

    def _state(self, target: Target) -> TargetState:
        """The state of a target, from the file if it is new here; call it with the lock held."""
        if target not in self._states:
            own = [known for known in self._states if known.scope == target.scope]
            # a client can choose any target, and must not evict those of others
            if len(own) >= MAX_TARGETS_PER_SCOPE:
                del self._states[own[0]]
            left = (self.total or {}).get(target, TargetState()).debt  # by a process that has ended
            self._states[target] = TargetState(debt=left)
            if left:
                add_count(self._unsaved, target, TargetState(debt=-left))
        return self._states[target]

    def _prune(self, counts: dict[Target, TargetState]) -> dict[Target, TargetState]:
        of_scope: Counter[str] = Counter()
        kept = []
        for target in sorted(counts, key=lambda target: -counts[target].questions):
            of_scope[target.scope] += 1
            if of_scope[target.scope] <= MAX_TARGETS_PER_SCOPE:
                kept.append(target)
        return {target: counts[target] for target in kept[: 10 * MAX_TARGETS_PER_SCOPE]}
