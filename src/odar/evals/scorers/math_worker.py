"""The process behind `mathematics`: reads a JSON pair of answers a line, writes 1 or 0 a line.

Run as `python -m odar.evals.scorers.math_worker`. Its parent keeps the time and kills it; the limit on memory is
its own.
"""

from __future__ import annotations

import json
import logging
import signal
import sys

_MEMORY = 2 * 1024**3


def main() -> None:
    """Answer until standard input ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, ValueError, OSError):  # not on this system: the parent's clock still holds
        pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    logging.disable(logging.CRITICAL)
    try:
        import math_verify  # noqa: F401 - is it there?
    except ModuleNotFoundError:
        return
    out = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints must not look like a verdict
    out.write("ready\n")
    out.flush()
    for line in sys.stdin:
        gold, answer = json.loads(line)
        out.write("1\n" if _equal(gold, answer) else "0\n")
        out.flush()


def _equal(gold: str, answer: str) -> bool:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    configs = [LatexExtractionConfig(), ExprExtractionConfig()]
    try:
        wanted, given = (
            parse(_marked(text), extraction_config=configs, parsing_timeout=None) for text in (gold, answer)
        )
        return bool(wanted and given and verify(wanted, given, timeout_seconds=None))
    except Exception:
        return False


def _marked(text: str) -> str:
    """A bare answer as the display formula that the parser looks for."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


if __name__ == "__main__":
    main()
