"""Estimates made in a process beside this one: no request waits for the parse of another's question.

The parse is a millisecond of pure Python, a tenth of a second for a book; in the event loop every request would
wait for it. What crosses is a text and 24 numbers (`child`). Where the process beside is lost, estimates are made
here until a new one has started: they are slower then, never wrong or missing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from odar.difficulty.base import Estimator
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.sticky import in_their_light, turns
from odar.estimates.child import ROW, pack
from odar.estimates.here import Estimates, Here
from odar.types import Estimate, Query

COMMAND = (sys.executable, "-m", "odar.estimates.child")
RESTART_S = 5.0
"""Between a loss and the next start, so that one that cannot start is not started for every request."""
PATIENCE_S = 20.0
"""Without any answer, its start included, it hangs, and is ended."""
FAREWELL_S = 2.0
"""What it has been asked already takes no longer, unless it hangs."""
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
"""Of the environment: it needs no keys, so it gets none."""


class Lost(Exception):
    """The process beside is gone, with what it had been asked."""


def beside(estimator: Estimator) -> Estimates:
    """Estimates in a process beside for the learned estimator; the others take microseconds, and stay here."""
    if isinstance(estimator, LearnedEstimator) and estimator.extractor is None:
        return Beside(estimator)
    return Here(estimator)


class Beside:
    """Estimates by the learned estimator, its features computed in a process of their own."""

    def __init__(self, estimator: LearnedEstimator, command: Sequence[str] = COMMAND) -> None:
        self._estimator, self._command = estimator, command
        self._here = Here(estimator)
        self._link: asyncio.Task[_Link] | None = None
        self._again_at = 0.0

    async def __call__(self, query: Query) -> Estimate:
        """The estimate; the first one starts the process."""
        try:
            link = await self._linked()
            asked = [link.ask(turn) for turn in turns(query)]
            rows = [await features for features in asked]
        except (Lost, OSError):
            return await self._here(query)
        return in_their_light(query, [self._estimator.explained(ROW.unpack(row)) for row in rows])

    async def close(self) -> None:
        """Let the process end, also one that has only just been started."""
        if self._link is not None:
            with suppress(OSError):  # it could not be started
                await (await self._link).close()

    async def _linked(self) -> _Link:
        """The running process; a new one where it is lost, but not at once."""
        now = asyncio.get_running_loop().time()
        if self._link is not None and _broken(self._link):
            self._link, self._again_at = None, now + RESTART_S
        if self._link is None:
            if now < self._again_at:
                raise Lost
            self._link = asyncio.create_task(_start(self._command))
        if self._link.done():  # without a turn of the loop, as nearly always
            return self._link.result()
        return await asyncio.shield(self._link)


class _Link(asyncio.SubprocessProtocol):
    """The pipes to the process, and who waits for an answer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._unread = b""
        self._ended = asyncio.Event()
        self._answers = 0
        self._watch: asyncio.TimerHandle | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._process = cast(asyncio.SubprocessTransport, transport)  # uvloop's is none by inheritance
        self._questions = cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))

    def ask(self, query: Query) -> asyncio.Future[bytes]:
        """The features of a query, as 24 doubles, in time."""
        if self.lost:
            raise Lost
        try:
            self._questions.write(pack(query))
        except RuntimeError:  # uvloop's word for a pipe that has broken, but has not told us yet
            raise Lost from None
        features = self._loop.create_future()
        self._waiting.append(features)
        if self._watch is None:
            self._watch = self._loop.call_later(PATIENCE_S, self._look, self._answers)
        return features

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Give each answer to who waits for it; one who left is passed over."""
        if self.lost:
            return  # on its way when the other pipe was closed: everybody who waited has been told
        data = self._unread + data
        whole = len(data) - len(data) % ROW.size
        for start in range(0, whole, ROW.size):
            features = self._waiting.popleft()
            if not features.done():
                features.set_result(data[start : start + ROW.size])
        self._answers += whole // ROW.size
        self._unread = data[whole:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Whichever pipe: nobody will get an answer any more."""
        self.lost = True
        self._questions.close()  # should it still live, this ends it
        for features in self._waiting:
            if not features.done():
                features.set_exception(Lost())
        self._waiting.clear()

    def _look(self, before: int) -> None:
        """End it where it has answered nobody since. One timer for all: a timeout for each would cost more."""
        self._watch = None
        if self._waiting and not self.lost:
            if self._answers == before:
                self._process.kill()
            else:
                self._watch = self._loop.call_later(PATIENCE_S, self._look, self._answers)

    def process_exited(self) -> None:
        """It is gone."""
        if self._watch is not None:
            self._watch.cancel()
        self._ended.set()
        self._process.close()

    async def close(self) -> None:
        """No more questions; it ends by itself, or is ended."""
        self._questions.close()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._ended.wait()
        except TimeoutError:
            self._process.kill()
            await self._ended.wait()


async def _start(command: Sequence[str]) -> _Link:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    _, link = await asyncio.get_running_loop().subprocess_exec(_Link, *command, stderr=None, env=environment)
    return link


def _broken(link: asyncio.Task[_Link]) -> bool:
    return link.done() and (link.cancelled() or link.exception() is not None or link.result().lost)
