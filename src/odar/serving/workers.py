"""Several worker processes on one listening socket: `odar serve --workers N` (SPEC 11.4).

The parent binds the socket, forks the workers and replaces those that end; it answers no request. Workers share
the store (keys, budgets, rates, traces, observation), the files of counts next to it (targets, agreement), and the
memory of `Workers`, which is allocated before the fork, so that it survives a killed worker.

- SIGTERM, SIGINT and SIGHUP to the parent stop all workers gracefully.
- SIGTERM to one worker: it closes each connection after its next answer and is replaced.
- A killed worker is replaced; its successor frees its reservations and continues its counters.
- If the parent is killed, the workers finish their requests and end.
"""

from __future__ import annotations

import gc
import mmap
import os
import secrets
import signal
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from odar.errors import SettingsError
from odar.providers.llamacpp import usable_cores
from odar.serving.sessions import SessionTable
from odar.settings import Settings

MAX_DEFAULT_WORKERS = 4
PUBLISH_S = 1.0
"""Seconds between snapshots of a worker's counters, which the other workers add up for `/metrics`."""
_SNAPSHOT_BYTES = 1 << 20
_HEAD = struct.Struct("<II")
"""Length and checksum of a snapshot."""
_RESTART_PAUSE_S = 1.0
"""Pause before replacing a worker that ended before it was ready."""
STARTED, READY, LEAVING = 1, 2, 3
"""States of a worker: its settings are valid, so others can be started; ready; accepts no more connections."""
_CANNOT_FORK = not hasattr(os, "fork")


def worker_count(settings: Settings) -> int:
    """`gateway.workers`; by default one per core up to four, or one if a model runs in this process."""
    chosen = settings.gateway.workers
    names = {name for agent in settings.agent_names for name in settings.models_of(agent)}
    local = sorted(name for name in names if settings.providers[settings.card(name).provider].kind == "local")
    if chosen is None:
        return 1 if local or _CANNOT_FORK else min(usable_cores(), MAX_DEFAULT_WORKERS)
    if chosen > 1 and (local or _CANNOT_FORK):
        reason = "this system cannot fork processes" if _CANNOT_FORK else f"every worker would load {local[0]!r}"
        raise SettingsError(f"gateway.workers = {chosen}, but {reason}; set it to 1")
    return chosen


class Workers:
    """Memory that the workers of a gateway share; a gateway without child processes counts as its only worker.

    Each worker writes only its own entries, so no locks are needed.
    """

    def __init__(self, count: int = 1, sessions: int = 0) -> None:
        self.count = count
        self.number = 0
        """Which of the workers this process is."""
        self.is_first = True
        """Whether this worker prints the start-up messages: number 0, unless it replaces another."""
        self.parent_pipe: int | None = None
        """A pipe that is closed when the parent ends; None without child processes."""
        self.sessions = SessionTable(sessions)
        self._id = secrets.token_hex(8)
        self.in_flight = _shared_integers(count)
        self.connections = _shared_integers(count)
        self.states = _shared_integers(count)
        """`STARTED`, `READY` or `LEAVING`, or 0 before."""
        self._flags = _shared_integers(2)
        self._snapshots = [mmap.mmap(-1, _SNAPSHOT_BYTES) for _ in range(count if count > 1 else 0)]

    @property
    def owner(self) -> str:
        """Name of this worker in the store, which its successor inherits."""
        return f"{self._id}-{self.number}"

    @property
    def fewest_connections(self) -> int:
        """The lowest number of connections of any worker that accepts connections."""
        counts = zip(self.connections, self.states, strict=True)
        return min((count for count, state in counts if state == READY), default=0)

    @property
    def stopping(self) -> bool:
        """Whether all workers are to stop, not only this one."""
        return self.count == 1 or bool(self._flags[0])

    def stop(self) -> None:
        self._flags[0] = 1

    @property
    def keys_required(self) -> bool:
        return bool(self._flags[1])

    def require_keys(self) -> None:
        self._flags[1] = 1

    def mark(self, state: int) -> None:
        self.states[self.number] = state

    def publish(self, snapshot: bytes) -> None:
        """Show a snapshot to the other workers, unless it is too large."""
        if self._snapshots and len(snapshot) <= _SNAPSHOT_BYTES - _HEAD.size:
            head = _HEAD.pack(len(snapshot), zlib.crc32(snapshot))
            self._snapshots[self.number][: _HEAD.size + len(snapshot)] = head + snapshot

    def snapshot(self, number: int) -> bytes | None:
        """The last snapshot of a worker, or of its predecessor; None if there is none."""
        if not self._snapshots:
            return None
        memory = self._snapshots[number]
        for _ in range(3):  # it may be written just now
            length, checksum = _HEAD.unpack_from(memory)
            body = memory[_HEAD.size : _HEAD.size + length]
            if length and zlib.crc32(body) == checksum:
                return body
        return None

    # ── starting and replacing them ─────────────────────────────────────────────────────────────────────────

    def fork(self, log: Callable[[str], None]) -> None:
        """Fork all workers and return in each of them; the parent replaces them, and exits when all have ended."""
        if self.count > 1:
            gc.collect()
            gc.freeze()  # the collector would otherwise write to, and so copy, the memory that workers share
            _Supervisor(self, log).run()


class _Supervisor:
    """The parent process."""

    def __init__(self, workers: Workers, log: Callable[[str], None]) -> None:
        self._workers = workers
        self._log = log
        self._pids: dict[int, int] = {}
        """The number of each worker, by its process."""
        self._signal: int | None = None
        self._code = 0
        workers.parent_pipe, self._parent_pipe_end = os.pipe()
        names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
        handlers = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
        self._handlers = {number: old for number, old in handlers.items() if old != signal.SIG_IGN}  # as by nohup

    def run(self) -> None:
        """Return in each worker; in the parent, raise SystemExit or KeyboardInterrupt when all have ended."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in self._handlers:
            signal.signal(number, self._on_signal)
        for number in range(self._workers.count):
            if self._fork(number):
                return
            while number == 0 and not self._workers.states[0] and self._pids:
                self._reap(os.WNOHANG)  # an error of the settings is reported once
                time.sleep(0.01)
        while self._pids:
            number, ready = self._reap()
            if number is None or self._signal or self._code:
                continue
            if not ready:
                time.sleep(_RESTART_PAUSE_S)
            if not self._signal and self._fork(number, replacement=True):
                return
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + signal.SIGTERM if self._signal else self._code)

    def _fork(self, number: int, *, replacement: bool = False) -> bool:
        """Start a worker; return True in it. Signals wait until it is known."""
        workers = self._workers
        while not (self._signal or self._code):
            signal.pthread_sigmask(signal.SIG_BLOCK, self._handlers)
            try:
                pid = os.fork()
            except OSError as error:  # too little memory, or too many processes
                signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handlers)
                if not replacement:
                    raise
                self._log(f"worker {number} cannot be replaced yet: {error.strerror}")
                time.sleep(_RESTART_PAUSE_S)
                continue
            if pid == 0:
                os.setpgid(0, 0)  # a terminal's Ctrl-C goes to the parent alone, which stops all
                os.close(self._parent_pipe_end)
                for signal_number, handler in self._handlers.items():
                    signal.signal(signal_number, handler)
                workers.number = number
                workers.is_first = number == 0 and not replacement
            else:
                self._pids[pid] = number
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handlers)
            return pid == 0
        return False

    def _reap(self, options: int = 0) -> tuple[int | None, bool]:
        """Wait for a process to end; return the number of the worker that it was, and whether it had been ready."""
        workers = self._workers
        pid, status = os.waitpid(-1, options)
        number = self._pids.pop(pid, None)
        if number is None:
            return None, False
        ready = workers.states[number] >= READY
        code = os.waitstatus_to_exitcode(status)
        for counter in (workers.states, workers.in_flight, workers.connections):
            counter[number] = 0
        if not self._signal:
            outcome = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            if not ready and not any(workers.states):
                self._stop(signal.SIGTERM, code if code > 0 else 128 - code)  # none can start
            else:
                self._log(f"worker {number} (process {pid}) {outcome}, and is replaced")
        return number, ready

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_second = self._signal is not None
        self._signal = number
        self._stop(number if is_second and number == signal.SIGINT else signal.SIGTERM)

    def _stop(self, number: int, code: int = 0) -> None:
        self._code = self._code or code
        self._workers.stop()
        for pid in list(self._pids):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _shared_integers(count: int) -> memoryview:
    return memoryview(mmap.mmap(-1, 8 * count)).cast("q")
