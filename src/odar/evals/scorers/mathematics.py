"""MATH equivalence: whether two LaTeX answers are the same, by math-verify in a process that may be killed."""

from __future__ import annotations

import atexit
import json
import os
import re
import selectors
import subprocess
import sys
import threading
from dataclasses import dataclass, field

from odar.errors import InputError
from odar.policy.equivalence import equivalent

SECONDS = 5.0
"""Longest comparison; what takes longer counts as different."""
_LONGEST = 1_000
_BRACKETS = re.compile(r"[()\[\]{}]")


def math_equal(gold: str, answer: str, seconds: float = SECONDS) -> float:
    """1 where the answer equals the gold one as mathematics: `\\frac12` is `0.5`, `x+1` is `1+x`.

    Answers that odar.fusion finds equal need no algebra, except with brackets, where `(0,1)` and `[0,1]` differ.
    Algebra runs in a worker process with limits on memory and time: LaTeX comes from models, and `9^{9^{9^9}}` must
    cost five seconds at most, not the machine. What cannot be parsed, or takes too long, is not equal.
    An answer of more than 1,000 characters is no final answer.

    >>> math_equal("\\\\frac{1}{2}", "0.5")
    1.0
    """
    if not answer.strip() or len(answer) > _LONGEST:
        return 0.0
    if not (_BRACKETS.search(gold) or _BRACKETS.search(answer)) and equivalent(gold, answer):
        return 1.0
    if " ".join(gold.split()) == " ".join(answer.split()):
        return 1.0
    return float(_WORKER.equal(gold, answer, seconds))


@dataclass(slots=True)
class Worker:
    """A process that compares; started when first needed, replaced when it had to be killed. Safe to share."""

    _process: subprocess.Popen[bytes] | None = None
    _owner: int = 0
    """Who started it: after a fork, a child must not speak into its parent's pipe."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def equal(self, gold: str, answer: str, seconds: float) -> bool:
        """Whether two answers are equal; False where that cannot be found out in time.

        Raises:
            InputError: math-verify is not installed.
        """
        with self._lock:
            process = self._running()
            line = json.dumps([gold, answer]).encode() + b"\n"
            try:
                assert process.stdin
                process.stdin.write(line)
                process.stdin.flush()
                reply = _line_within(process, seconds)
            except BrokenPipeError:
                reply = b""
            if reply not in (b"0\n", b"1\n"):
                self.close()
            return reply == b"1\n"

    def close(self) -> None:
        """Kill the process; the next comparison starts another."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            self._process, self._owner = None, os.getpid()
            atexit.register(self.close)
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = [sys.executable, "-m", "odar.evals.scorers.math_worker"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            ready = _line_within(self._process, 60.0)  # sympy takes a second to import, more on a busy machine
            if ready != b"ready\n":
                self.close()
                raise InputError("comparing mathematical answers needs math-verify: pip install 'odar[evals]'")
        return self._process


def _line_within(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """A line that a process writes in the time given; empty where it does not."""
    assert process.stdout
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(timeout=seconds) else b""


_WORKER = Worker()
