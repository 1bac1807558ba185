"""The table of faults × outcomes, as the run found them."""

from __future__ import annotations

import os
import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from chaos.environment import Outcome
from chaos.gateway import DEADLINE_S, FLUSH_S
from chaos.load import ANSWER, BROKEN, DEGRADED, ERROR, LEFT, SLACK_S
from chaos.promises import errors_by_code

_HEAD = """# What happens when things break

Made by `{command}` on {date}, in {minutes:.1f} minutes; do not edit. {machine}.

A real `odar serve` with its store on, in front of two model servers on the same machine, asked by {clients} clients at a time over all
three protocols, streamed and whole, on every path. Each fault of a model server is done to the fast agent's server, then to the slow
one's, then to both, {pace:g} s each. The gateway's deadline is {deadline:g} s, its breakers cool down for 0.5 s, traces are flushed every {flush:g} s.

After each fault four promises are checked, and the run fails where one does not hold:

1. **Answered.** Every question got an answer, or an error with a code and a message, within the deadline and {slack:g} s for a busy machine.
2. **Nothing left.** As many tasks, sockets and open files as before the load; nothing in the log that was never retrieved or not foreseen.
3. **Ledger.** Question by question, the requests and tokens on the bill are those that the servers counted themselves. A call whose tokens
   nobody knows (it broke off, or was given up) is marked unknown on the bill; without such a mark the sums are equal.
4. **Traces.** Every trace that a client was told of is in the store. A `kill -9` may take what was answered in the last {window:g} s.
"""
_COLUMNS = (
    "fault", "questions", "answers", "of one agent", "errors", "median, longest", "as before after", "left behind",
    "requests, tokens", "unknown calls", "traces", "",
)  # fmt: skip


def render(
    outcomes: Sequence[Outcome], *, command: str, date: str, seconds: float, clients: int, pace: float
) -> str:
    """The whole page."""
    head = _HEAD.format(
        command=command, date=date, minutes=seconds / 60, machine=machine(), clients=clients, pace=pace,
        deadline=DEADLINE_S, flush=FLUSH_S, slack=SLACK_S, window=FLUSH_S + 2,
    )  # fmt: skip
    rows = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *(_line(_cells(each)) for each in outcomes)]
    parts = [head, *rows, "", *_notes(outcomes)]
    return "\n".join(parts) + "\n"


def machine() -> str:
    """What it ran on."""
    cpu = (
        next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ":").split(":")[1].strip()
    )
    system = next((line for line in _lines("/etc/os-release") if line.startswith("PRETTY_NAME")), '=""').split('"')[
        1
    ]
    return f"{os.cpu_count()} cores of {cpu or platform.machine()}, {system or platform.system()}, Python {platform.python_version()}"


def _cells(outcome: Outcome) -> list[str]:
    if outcome.skipped:
        return [f"**{outcome.fault}**", *["–"] * (len(_COLUMNS) - 2), "skipped"]
    kinds = Counter(each.outcome for each in outcome.asked)
    times = [each.seconds for each in outcome.asked]
    gone = "".join(f", {kinds[kind]} {kind}" for kind in (BROKEN, LEFT) if kinds[kind])
    recovered = "never" if outcome.recovered_s is None else f"{outcome.recovered_s:.1f} s"
    left = outcome.after.more_than(outcome.before) if outcome.before and outcome.after else []
    return [
        f"**{outcome.fault}**",
        f"{len(times):,}",
        f"{kinds[ANSWER]:,}",
        f"{kinds[DEGRADED]:,}",
        f"{kinds[ERROR]:,}{gone}",
        f"{statistics.median(times):.2f}, {max(times):.2f} s" if times else "–",
        recovered,
        ", ".join(left) or "nothing",
        f"{outcome.requests:,}, {outcome.tokens:,}",
        f"{outcome.unknown:,}",
        f"{outcome.traces:,}" + (f" ({outcome.lost} answered in the last moment are gone)" if outcome.lost else ""),
        "held" if outcome.held else "**broken**",
    ]


def _notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What each fault was, which errors it gave, and what it broke."""
    lines = ["## The faults", ""]
    for each in outcomes:
        codes = ", ".join(f"{count} × `{code}`" for code, count in errors_by_code(each.asked).items())
        lines.append(f"- **{each.fault}**: {each.what}." + (f" Errors: {codes}." if codes else ""))
        if each.skipped:
            lines.append(f"  Skipped: {each.skipped}.")
        lines += [f"  Broken: {why}" for why in each.broken]
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
