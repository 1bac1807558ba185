"""The table of attacks, as a run found them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attack.scene import DEADLINE_S, HEALTH_P99_MS, MEMORY_MB, Result
from chaos.report import machine

from odar.errors import plural

_HEAD = """# Attacks on a running gateway

Made by `make attack` on {date}, in {minutes:.1f} minutes; do not edit. {machine}.

Each attack is made over HTTP against a real `odar serve` of its own (deadline {deadline:g} s, store on) with two model servers on the same
machine. Healthy clients ask questions from another address meanwhile, and `/healthz` is asked for 50 times a second. An attack
succeeds, and the run fails, where the attacker gets what it wants, a healthy client gets no answer, the 99th percentile of
`/healthz` exceeds {p99:g} ms, or the gateway keeps tasks, sockets or more than {memory:g} MB of memory a worker. Memory is the sum of all workers. The numbers in the first column
are those of the threats in issue 14, and after 36 those of issue 36 (36.15 is `make audit`); [Security](../security.md) says what protects against each.
"""
_TABLE = """
## {workers}

| | attack | healthy answers | `/healthz` median, p99, longest | memory before, peak, after | seen | |
| --- | --- | --- | --- | --- | --- | --- |
"""


def render(by_workers: Mapping[int, Sequence[Result]], *, date: str, minutes: float) -> str:
    """The whole page: a table for each number of workers."""
    page = _HEAD.format(
        date=date, minutes=minutes, machine=machine(), deadline=DEADLINE_S, p99=HEALTH_P99_MS, memory=MEMORY_MB
    )
    for workers, results in by_workers.items():
        page += _TABLE.format(workers=plural(workers, "worker")) + "\n".join(map(_row, results)) + "\n"
    attacks = [result.attack for result in next(iter(by_workers.values()))]
    return page + "\n## The attacks\n\n" + "\n".join(f"- **{each.name}**: {each.what}" for each in attacks) + "\n"


def _row(result: Result) -> str:
    health = [f"{result.health(share):.0f}" for share in (0.5, 0.99, 1.0)] if result.health_ms else ["–"]
    memory = [f"{figure:.0f}" for figure in result.memory_mb]
    cells = (
        result.attack.number,
        f"**{result.attack.name}**",
        f"{result.answers:,}" if result.attack.healthy else "not asked",
        f"{', '.join(health)} ms",
        f"{', '.join(memory)} MB",
        "; ".join(result.notes).replace("|", "\\|"),
        "held" if result.held else "**succeeded**: " + "; ".join(result.problems).replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |"
