"""Targets of one engine (SPEC 9.5), kept in a small file next to the traces, so that a restart loses nothing.

The processes of a machine add their questions up in the file. Each corrects its own surplus, so that no two correct
the same one; a process that ends leaves its own to the next.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odar.policy.dial import Dial, TargetState
from odar.served.counts import SYNC_S, SharedCounts
from odar.types import Spend

MAX_SCOPES = 200
"""Maximum number of targets in all, and of one scope; the oldest of the same scope is dropped first."""


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
    """Factor of V for the next question."""


class ServedTargets(SharedCounts[str, TargetState]):
    """All targets of an engine by scope: the settings', a key's, a request's. Thread-safe.

    Args:
        file: the file of the state; None keeps it in memory.
        timer: monotonic seconds, for the syncs.
    """

    FORMAT = "odar-targets-2"

    def __init__(self, file: Path | None = None, timer: Callable[[], float] = time.monotonic) -> None:
        super().__init__(file, timer)
        self._states: dict[str, TargetState] = {}
        self._sync_at = timer() + SYNC_S
        self._at_start: Mapping[str, TargetState] | None = None
        """The counts of all processes at the first sync."""

    def factor(self, scope: str, dial: Dial) -> float:
        """Return the factor of V for the next question under this dial; 1 without a target. Can read a file."""
        if not dial.target:
            return 1.0
        key = _key(scope, dial)
        if self._file is not None and self.total is None:
            self.sync()
        with self._lock:
            return self._state(key).factor(dial.target_value)

    def count(self, scope: str, dial: Dial, spend: Spend) -> None:
        """Count the spending of a question; one of unknown cost is not counted."""
        spent = spend.calls if dial.target == "calls" else spend.cost_usd
        if not dial.target or spent is None or not spend.calls:
            return
        key = _key(scope, dial)
        with self._lock:
            self._state(key).count(spent, dial.target_value)
            new = self._unsaved.get(key, TargetState())
            self._unsaved[key] = TargetState(new.questions + 1, new.total + spent, new.debt)
            due = self._file is not None and self._is_due()
        if due:
            self._sync_in_thread()

    def report(self) -> list[TargetReport]:
        """Return the targets in use by any process since this one started, the settings' first. Can read a file."""
        with self._lock:
            due = self._file is not None and self._is_due()
        if due:
            self.sync()
        rows = []
        with self._lock:
            total = self.total or {}
            at_start = total if self._at_start is None else self._at_start
            elsewhere = {key: TargetState() for key in total if total[key] != at_start.get(key)}
            for key, state in (elsewhere | self._states).items():
                scope, kind, value = key.rsplit("|", 2)
                target = float(value)
                of_all = total.get(key, TargetState()) + self._unsaved.get(key, TargetState())
                factor = state.factor(target)
                rows.append(TargetReport(scope, kind, target, of_all.mean, of_all.questions, factor))
        return sorted(rows, key=lambda row: (row.scope != "settings", row.scope, row.target))

    def close(self) -> None:
        """Write unsaved counts, and leave the surplus of each target to the next process."""
        with self._lock:
            for key, state in self._states.items():
                self._unsaved[key] = self._unsaved.get(key, TargetState()) + TargetState(debt=state.debt)
                state.debt = 0.0
        super().close()

    def _after_sync(self, total: Mapping[str, TargetState]) -> None:
        if self._at_start is None:
            self._at_start = total

    def _state(self, key: str) -> TargetState:
        """Return the state of a target, from the file if it is new here; call it with the lock held."""
        if key not in self._states:
            scope = key.rsplit("|", 2)[0]
            own = [each for each in self._states if each.rsplit("|", 2)[0] == scope]
            if len(own) >= MAX_SCOPES:  # a client can choose any target, and must not evict those of others
                del self._states[own[0]]
                if self._file is None:  # otherwise the next sync writes it
                    self._unsaved.pop(own[0], None)
            left = (self.total or {}).get(key, TargetState()).debt  # by a process that has ended
            self._states[key] = TargetState(debt=left)
            if left:
                self._unsaved[key] = self._unsaved.get(key, TargetState()) + TargetState(debt=-left)
        return self._states[key]

    def _merge(self, old: dict[str, TargetState], new: Mapping[str, TargetState]) -> dict[str, TargetState]:
        total = old | {key: old.get(key, TargetState()) + state for key, state in new.items()}
        of_scope: Counter[str] = Counter()
        kept = []
        for key in sorted(total, key=lambda key: -total[key].questions):
            scope = key.rsplit("|", 2)[0]
            of_scope[scope] += 1
            if of_scope[scope] <= MAX_SCOPES:
                kept.append(key)
        return {key: total[key] for key in kept[: 10 * MAX_SCOPES]}

    def _to_json(self, counts: dict[str, TargetState]) -> dict[str, Any]:
        return {"targets": {key: state.to_dict() for key, state in counts.items()}}

    def _from_json(self, body: Mapping[str, Any]) -> dict[str, TargetState]:
        return {str(key): TargetState.from_dict(row) for key, row in body["targets"].items()}


def _key(scope: str, dial: Dial) -> str:
    return f"{scope}|{dial.target}|{dial.target_value:g}"
