"""Targets of one engine (SPEC 5.13), kept in a small file next to the traces, so that a restart loses nothing.

Each process compensates its own surplus or deficit, so that every process meets the mean by itself and no two
correct the same one; a process that ends leaves its own to the next. Recent difficulties and the cost of each path
are added up in the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from odar.policy.path import Routing, Thresholds
from odar.policy.target import Target, TargetController, TargetState, ThresholdPath
from odar.store.shared_counts import SYNC_S, SharedCounts
from odar.types import Decision, Path, Spend, TargetUse

MAX_SCOPES = 200
"""Maximum number of targets; those with the fewest questions are dropped. Clients can choose any target."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """State of one target."""

    scope: str
    kind: str
    target: float
    actual: float | None
    """Mean over all questions with this target, of all processes; None before the first."""
    questions: int
    t: float


class Booking(NamedTuple):
    """A question that was routed by a target and is not settled yet."""

    key: str
    path: Path
    difficulty: float
    assumed: float


class ServedTargets(SharedCounts[str, TargetState]):
    """All targets of an engine by scope: the settings', a key's, a request's. Thread-safe.

    Args:
        path: the thresholds at each t.
        calls: assumed calls on Simple, Medium and Hard before the first question.
        file: the file of the state; None keeps it in memory.
        timer: monotonic seconds, for the syncs.
    """

    FORMAT = "odar-targets-1"

    def __init__(
        self,
        path: ThresholdPath,
        calls: tuple[float, float, float],
        file: FilePath | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, timer)
        self._path = path
        self._calls = calls
        self._controllers: dict[str, TargetController] = {}
        self._sync_at = timer() + SYNC_S

    def choose(self, target: Target, scope: str = "settings") -> TargetUse:
        """Return the thresholds for the next question under a target, and the mean cost of its questions so far."""
        key = _key(target, scope)
        with self._lock:
            known = key in self._controllers
        if not known:
            self._open(key, target)
        with self._lock:
            return self._controllers[key].choose()

    def book(self, target: Target, scope: str, difficulty: float, path: Path) -> Booking:
        """Count a question that takes this path."""
        key = _key(target, scope)
        with self._lock:
            return Booking(key, path, difficulty, self._controllers[key].book(difficulty, path))

    def settle(self, booking: Booking, actual: float | None) -> None:
        """Count the actual cost of a question; None if it failed or the cost is unknown."""
        with self._lock:
            controller = self._controllers.get(booking.key)
            if controller is None:
                return
            if actual is None:
                controller.cancel(booking.assumed)
                return
            controller.settle(booking.path, booking.assumed, actual)
            self._unsaved.setdefault(booking.key, TargetState()).count(booking.difficulty, booking.path, actual)
            due = self._file is not None and self._is_due()
        if due:
            self._sync_in_thread()

    def report(self) -> list[TargetReport]:
        """Return the state of every target, the settings' first."""
        with self._lock:
            rows = []
            for key, controller in self._controllers.items():
                state, target, scope = controller.state, controller.target, key.rpartition("|")[0]
                t = controller.choose().t
                rows.append(TargetReport(scope, target.kind, target.value, state.mean, state.questions, t))
        return sorted(rows, key=lambda row: (row.scope != "settings", row.scope, row.target))

    def close(self) -> None:
        """Write unsaved counts, and leave the debt of each target to the next process."""
        with self._lock:
            for key, controller in self._controllers.items():
                self._unsaved.setdefault(key, TargetState()).debt += controller.state.debt
                controller.state.debt = 0.0
        super().close()

    def _open(self, key: str, target: Target) -> None:
        if self._file is not None:
            self.sync()
        with self._lock:
            if len(self._controllers) >= MAX_SCOPES:
                least = min(self._controllers, key=lambda each: self._controllers[each].state.questions)
                del self._controllers[least]
            controller = self._controllers.setdefault(key, TargetController(target, self._path, self._calls))
            stored = (self.total or {}).get(key)
            if stored is not None and not controller.state.questions:
                controller.restore(stored.followed_by(TargetState()), stored.debt)
                self._unsaved.setdefault(key, TargetState()).debt -= stored.debt

    def _after_sync(self, total: Mapping[str, TargetState]) -> None:
        with self._lock:
            for key, controller in self._controllers.items():
                if key in total:
                    state = total[key].followed_by(self._unsaved.get(key, TargetState()))
                    controller.restore(state, controller.state.debt)

    def _merge(self, old: dict[str, TargetState], new: Mapping[str, TargetState]) -> dict[str, TargetState]:
        total = old | {key: old.get(key, TargetState()).followed_by(state) for key, state in new.items()}
        kept = sorted(total, key=lambda key: -total[key].questions)[:MAX_SCOPES]
        return {key: total[key] for key in kept}

    def _to_json(self, counts: dict[str, TargetState]) -> dict[str, Any]:
        return {"targets": {key: state.to_dict() for key, state in counts.items()}}

    def _from_json(self, body: Mapping[str, Any]) -> dict[str, TargetState]:
        return {str(key): TargetState.from_dict(row) for key, row in body["targets"].items()}


class Aim:
    """The target of one question: chooses its routing and books its cost. Without a target, `configured` is used.

    Questions with the same scope and target meet it together.
    """

    def __init__(self, targets: ServedTargets, target: Target | None, scope: str, configured: Routing) -> None:
        self.target = target
        self.use: TargetUse | None = None
        """The chosen thresholds, for the trace."""
        self._targets = targets
        self._scope = scope
        self._configured = configured
        self._booking: Booking | None = None

    def routing(self) -> Routing:
        """Return the routing for this question; reads a small file for the first question with a target."""
        if self.target is None:
            return self._configured
        self.use = self._targets.choose(self.target, self._scope)
        return self._configured.for_target(Thresholds(self.use.tau1, self.use.tau2))

    def book(self, decision: Decision) -> None:
        """Count the chosen path."""
        if self.target is not None:
            self._booking = self._targets.book(self.target, self._scope, decision.difficulty, decision.path)

    def settle(self, spend: Spend) -> None:
        """Count the actual cost of the question."""
        if self._booking is not None and self.target is not None:
            self._targets.settle(self._booking, spend.calls if self.target.kind == "calls" else spend.cost_usd)


def targets_file(served: FilePath | None) -> FilePath | None:
    """Return the file of targets, next to the file of alignments; None without one.

    >>> str(targets_file(FilePath("/tmp/odar.alignment.json")))
    '/tmp/odar.targets.json'
    """
    if served is None:
        return None
    stem = served.name.removesuffix(".json").removesuffix(".alignment")
    return served.with_name(f"{stem}.targets.json")


def _key(target: Target, scope: str) -> str:
    return f"{scope}|{target.kind}:{target.value:g}"
