"""Targets of one engine (SPEC 5.13), kept in a small file beside the traces, so that a restart loses nothing.

Each process compensates its own surplus or deficit, so that every process meets the mean by itself and no two
correct the same one. Recent difficulties and the cost of each path are added up in the file: a new process starts
with what the others know.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from odar.errors import StoreError
from odar.policy.path import Routing, Thresholds
from odar.policy.target import Target, TargetChoice, TargetController, TargetState, ThresholdPath
from odar.store.alignment import AlignmentFile
from odar.store.state_file import StateFile
from odar.types import Decision, Path, Spend, TargetUse

FORMAT = "odar-targets-1"
MAX_SCOPES = 200
"""Clients choose targets, and each choice is kept apart: the ones with the fewest questions are forgotten."""
_SYNC_S = 30.0
_MAX_WAITING = 20_000


@dataclass(frozen=True, slots=True)
class TargetReport:
    """State of one target."""

    scope: str
    kind: str
    target: float
    actual: float | None
    """Mean over all questions under it, of all processes; None before the first."""
    questions: int
    t: float


@dataclass(frozen=True, slots=True)
class Booking:
    """A question that was routed by a target and is not settled yet."""

    key: str
    path: Path
    difficulty: float
    assumed: float


@dataclass(slots=True)
class _Scope:
    controller: TargetController
    waiting: list[tuple[float, Path, float]] = field(default_factory=list)
    """(difficulty, path, spent) of questions that the file does not have yet."""
    restored: bool = False


class ServedTargets:
    """All targets of an engine by scope: the settings', a key's, a request's. Thread-safe.

    Args:
        path: how t moves the thresholds.
        calls: calls on Simple, Medium and Hard before any was seen.
        file: where the state is kept; None keeps it in memory.
        timer: seconds by which syncs are due.
    """

    def __init__(
        self,
        path: ThresholdPath,
        calls: tuple[float, float, float],
        file: FilePath | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.complaint: str | None = None
        """Why the file could not be used, while it cannot."""
        self._path = path
        self._calls = calls
        self._file = None if file is None else _state_file(file)
        self._timer = timer
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._scopes: dict[str, _Scope] = {}
        self._sync_at = timer() + _SYNC_S

    def choose(self, target: Target, scope: str = "settings") -> TargetChoice:
        """The thresholds for the next question under a target."""
        with self._lock:
            known = self._scopes.get(_key(target, scope))
        if known is None:
            self._open(target, scope)
        with self._lock:
            return self._scopes[_key(target, scope)].controller.choose()

    def mean(self, target: Target, scope: str = "settings") -> float | None:
        """What questions under a target cost on average; None before the first."""
        with self._lock:
            known = self._scopes.get(_key(target, scope))
            return None if known is None else known.controller.state.mean

    def book(self, target: Target, scope: str, difficulty: float, path: Path) -> Booking:
        """Count a question that takes this path."""
        key = _key(target, scope)
        with self._lock:
            return Booking(key, path, difficulty, self._scopes[key].controller.book(difficulty, path))

    def settle(self, booking: Booking, actual: float | None) -> None:
        """Count what a question really cost; None if it failed or the cost is unknown."""
        with self._lock:
            scope = self._scopes.get(booking.key)
            if scope is None:
                return
            if actual is None:
                scope.controller.cancel(booking.assumed)
                return
            scope.controller.settle(booking.path, booking.assumed, actual)
            if len(scope.waiting) < _MAX_WAITING:
                scope.waiting.append((booking.difficulty, booking.path, actual))
            due = self._file is not None and self._timer() >= self._sync_at
            if due:
                self._sync_at = self._timer() + _SYNC_S
        if due:
            threading.Thread(target=self.sync, name="odar-targets", daemon=True).start()

    def report(self) -> list[TargetReport]:
        """Return the state of every target, the settings' first."""
        with self._lock:
            found = []
            for key, scope in self._scopes.items():
                controller, name = scope.controller, key.rpartition("|")[0]
                state, target = controller.state, controller.target
                t = controller.choose().t
                found.append(TargetReport(name, target.kind, target.value, state.mean, state.questions, t))
        return sorted(found, key=lambda row: (row.scope != "settings", row.scope, row.target))

    def sync(self, *, closing: bool = False) -> None:
        """Add what was counted to the file and read the sum; a failure is kept in `complaint`."""
        if self._file is None:
            return
        with self._syncing:
            with self._lock:
                taken = {key: scope.waiting for key, scope in self._scopes.items()}
                for scope in self._scopes.values():
                    scope.waiting = []
                debts = {key: s.controller.state.debt for key, s in self._scopes.items()} if closing else {}
                new = {key for key, scope in self._scopes.items() if not scope.restored}
            try:
                total, restored = self._merge(taken, debts, new)
            except StoreError as error:
                self.complaint = str(error)
                with self._lock:
                    for key, events in taken.items():
                        if key in self._scopes:
                            self._scopes[key].waiting[:0] = events
                return
            self.complaint = None
            with self._lock:
                for key, scope in self._scopes.items():
                    if key not in total:
                        continue
                    state, debt = total[key], scope.controller.state.debt + restored.get(key, 0.0)
                    state = state.added(_counted(scope.waiting)) if scope.waiting else state
                    scope.controller.restore(state, debt)
                    scope.restored = True

    def close(self) -> None:
        """Write unsaved counts and the remaining debt."""
        if self._scopes:
            self.sync(closing=True)

    def _open(self, target: Target, scope: str) -> None:
        with self._lock:
            if len(self._scopes) >= MAX_SCOPES:
                least = min(self._scopes, key=lambda key: self._scopes[key].controller.state.questions)
                del self._scopes[least]
            controller = TargetController(target, self._path, self._calls)
            self._scopes.setdefault(_key(target, scope), _Scope(controller))
        self.sync()

    def _merge(
        self, taken: dict[str, list[tuple[float, Path, float]]], debts: dict[str, float], new: set[str]
    ) -> tuple[dict[str, TargetState], dict[str, float]]:
        """The sum of the file and what this process counted, and the debts that closed processes left to it."""
        assert self._file is not None
        before: dict[str, float] = {}

        def add(states: dict[str, TargetState]) -> dict[str, TargetState]:
            for key in new & states.keys():
                before[key], states[key].debt = states[key].debt, 0.0
            for key, events in taken.items():
                states[key] = states.get(key, TargetState()).added(_counted(events))
                states[key].debt += debts.get(key, 0.0)
            kept = sorted(states, key=lambda key: -states[key].questions)[:MAX_SCOPES]
            return {key: states[key] for key in kept}

        return self._file.update(add), before


class Aim:
    """The target of one question: chooses its routing, and books what it costs.

    Args:
        targets: all targets of the engine.
        target: the one that counts here; None leaves the routing of the settings.
        scope: questions with the same scope and target meet it together.
        configured: the routing of the settings.
    """

    def __init__(self, targets: ServedTargets, target: Target | None, scope: str, configured: Routing) -> None:
        self.target = target
        self.use: TargetUse | None = None
        """What was chosen, for the trace."""
        self._targets = targets
        self._scope = scope
        self._configured = configured
        self._booking: Booking | None = None

    def routing(self) -> Routing:
        """Return the routing for this question; the first time of a target it reads a small file."""
        if self.target is None:
            return self._configured
        target, choice = self.target, self._targets.choose(self.target, self._scope)
        actual = self._targets.mean(target, self._scope)
        self.use = TargetUse(target.kind, target.value, choice.t, choice.tau1, choice.tau2, actual)
        return self._configured.moved(Thresholds(choice.tau1, choice.tau2))

    def book(self, decision: Decision) -> None:
        """Count the path that was decided on."""
        if self.target is not None:
            self._booking = self._targets.book(self.target, self._scope, decision.difficulty, decision.path)

    def settle(self, spend: Spend) -> None:
        """Count what the question really cost."""
        if self._booking is not None and self.target is not None:
            self._targets.settle(self._booking, spend.calls if self.target.kind == "calls" else spend.cost_usd)


def targets_file(served: AlignmentFile | None) -> FilePath | None:
    """The file of targets beside that of alignments; None if nothing is kept.

    >>> str(targets_file(AlignmentFile(FilePath("/tmp/odar.alignment.json"))))
    '/tmp/odar.targets.json'
    """
    if served is None:
        return None
    stem = served.path.name.removesuffix(".json").removesuffix(".alignment")
    return served.path.with_name(f"{stem}.targets.json")


def _state_file(path: FilePath) -> StateFile[str, TargetState]:
    def read(body: Mapping[str, Any]) -> dict[str, TargetState]:
        return {str(key): TargetState.from_document(row) for key, row in body["targets"].items()}

    def write(states: dict[str, TargetState]) -> dict[str, Any]:
        return {"targets": {key: state.document() for key, state in states.items()}}

    return StateFile(path, FORMAT, read, write)


def _key(target: Target, scope: str) -> str:
    return f"{scope}|{target.kind}:{target.value:g}"


def _counted(events: list[tuple[float, Path, float]]) -> TargetState:
    """A state of these questions alone."""
    state = TargetState()
    for difficulty, path, spent in events:
        state.count(difficulty, path, spent)
    return state
