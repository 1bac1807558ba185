"""Mathematics: equal numbers, equal LaTeX (math-verify, in a process with limits), and proofs by checklist."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import resources

from odar.errors import InputError
from odar.files import install_command
from odar.policy.equivalence import equivalent
from odar.policy.quantities import parse_quantity

_NUMBER = re.compile(r"(?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?|(?<![\w.])[-+]?\.\d+")
TIMEOUT_S = 5.0
"""Timeout of a comparison; answers that take longer count as different."""
_MAX_CHARACTERS = 1_000
_WORKER_MEMORY = 2 * 1024**3
_BRACKETS = re.compile(r"[()\[\]{}]")
Verifier = Callable[[str], str]
"""A function that sends a prompt to a model at temperature 0 and returns its text."""
PROOF_PROMPT = resources.files("odar.lab.graders").joinpath("proof.txt").read_text("utf-8")
_CLAIM_LINE = re.compile(r"^[*_ \t]*(\d{1,3})[*_ \t]*[:.)][*_ \t]*(YES|NO)\b", re.MULTILINE | re.IGNORECASE)
_CONSISTENT_LINE = re.compile(r"^[*_ \t]*CONSISTENT[*_ \t]*:[*_ \t]*(YES|NO)\b", re.MULTILINE | re.IGNORECASE)


def number_match(gold: str, answer: str, tolerance: float = 0.0) -> float:
    """1 if the answer is the gold number, in any unit.

    An answer may be a quantity (`$1,000`, `3/4`, `18 dollars`, `1.5e3`); of a sentence, the last number counts, as
    in GSM8K's own script. Thousands separators, currency signs, a closing full stop, bold marks and Unicode minus
    signs do not matter; rounding does, unless it is within the tolerance.
    """
    wanted = parse_number(gold)
    given = parse_number(answer)
    return float(wanted is not None and given is not None and abs(wanted - given) <= Fraction(str(tolerance)))


def parse_number(text: str) -> Fraction | None:
    """The number that a text consists of, or the last number in it."""
    plain = unicodedata.normalize("NFKC", text[-2_000:]).replace("−", "-").replace("\\$", "$").strip().strip("*`$ ")
    plain = plain.rstrip(".") or plain
    whole = parse_quantity(plain.casefold())
    if whole is not None:
        return whole[0]
    found = _NUMBER.findall(plain)
    if not found:
        return None
    try:
        return Fraction(found[-1].replace(",", "").replace("$", ""))
    except ZeroDivisionError:
        return None


def math_equal(gold: str, answer: str) -> float:
    """1 if the answer is mathematically equal to the gold one: `\\frac12` is `0.5`, `x+1` is `1+x`.

    Algebra runs in a worker process with limits on memory and time, because models may write `9^{9^{9^9}}`. An
    answer that cannot be parsed, takes too long, or has more than 1,000 characters is not equal.
    """
    if not answer.strip() or len(answer) > _MAX_CHARACTERS:
        return 0.0
    if not (_BRACKETS.search(gold) or _BRACKETS.search(answer)) and equivalent(gold, answer):
        return 1.0
    if " ".join(gold.split()) == " ".join(answer.split()):
        return 1.0
    return float(_WORKER.equal(gold, answer, TIMEOUT_S))


class Worker:
    """A process that compares answers; starts on first use, restarts after a timeout. Thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # process id of the starter: a forked child must not use its parent's pipe
        self._lock = threading.Lock()

    def equal(self, gold: str, answer: str, seconds: float) -> bool:
        """False after the timeout; raises InputError if math-verify is not installed."""
        with self._lock:
            process = self._ensure_running()
            reply = _exchange(process, json.dumps([gold, answer]).encode() + b"\n", seconds)
            if reply not in (b"0\n", b"1\n"):
                self.close()
            return reply == b"1\n"

    def close(self) -> None:
        """Stop the process; the next comparison starts another one."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()  # waits for it, and closes its pipes
        self._process = None

    def _ensure_running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._owner = os.getpid()
            command = [sys.executable, "-m", "odar.lab.graders.mathematics"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
            if _exchange(self._process, b"", 60.0) != b"ready\n":  # sympy takes a second to import, or more
                self.close()
                install = install_command("evals")
                raise InputError(f"comparing mathematical answers needs math-verify: {install}")
        return self._process


def _exchange(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> bytes:
    """Send a line, and return the reply; empty after the timeout."""
    assert process.stdin
    assert process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(timeout=seconds) else b""


_WORKER = Worker()
atexit.register(_WORKER.close)


def run_worker() -> None:
    """For each line with a JSON pair of answers, write a line with 1 (equal) or 0."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_WORKER_MEMORY, _WORKER_MEMORY))
    except (ImportError, ValueError, OSError):  # not on this system; the timeout of the parent still applies
        pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    logging.disable(logging.CRITICAL)
    try:
        import math_verify  # noqa: F401 - only to see whether it is installed
    except ModuleNotFoundError:
        return
    out = sys.stdout
    sys.stdout = sys.stderr  # keeps the output of libraries out of the replies
    _equal("1", "2")  # loads libraries before the first timed comparison
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(int(_equal(*json.loads(line))), file=out, flush=True)


def _equal(gold: str, answer: str) -> bool:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    configs = [LatexExtractionConfig(), ExprExtractionConfig()]
    marked = [text if "$" in text or "\\boxed" in text else f"${text}$" for text in (gold, answer)]
    try:
        wanted, given = (parse(text, extraction_config=configs, parsing_timeout=None) for text in marked)
        return bool(wanted and given and verify(wanted, given, timeout_seconds=None))
    except Exception:
        return False


def proof_score(problem: str, checklist: Sequence[str], proof: str, verifier: Verifier) -> float:
    """The share of the checklist that a verifier confirms; 0 if it finds the proof inconsistent.

    An empty proof costs no call and scores 0. A claim that the verifier does not mention is not confirmed; one that
    it mentions twice needs YES both times. Without a line on consistency the score is 0.

    >>> proof_score("P", ["a", "b"], "proof", lambda prompt: "1: YES\\n2: NO\\nCONSISTENT: YES")
    0.5
    """
    if not proof.strip() or not checklist:
        return 0.0
    reply = verifier(proof_prompt(problem, checklist, proof))
    said: dict[int, set[str]] = {}
    for number, word in _CLAIM_LINE.findall(reply):
        said.setdefault(int(number), set()).add(word.upper())
    consistent = {word.upper() for word in _CONSISTENT_LINE.findall(reply)} == {"YES"}
    confirmed = sum(said.get(number) == {"YES"} for number in range(1, len(checklist) + 1))
    return confirmed / len(checklist) if consistent else 0.0


def proof_prompt(problem: str, checklist: Sequence[str], proof: str) -> str:
    """The prompt for a verifier; the proof cannot close its own tags."""
    listed = "\n".join(f"{number}. {' '.join(claim.split())}" for number, claim in enumerate(checklist, start=1))
    safe = re.sub(r"<(?=\s*/?\s*proof)", "‹", proof, flags=re.IGNORECASE)
    return PROOF_PROMPT.format(problem=problem.strip(), proof=safe.strip(), checklist=listed)


if __name__ == "__main__":
    run_worker()
