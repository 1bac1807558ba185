"""`make attack`: every attack in turn against a running `odar serve`, and a table; exit code 1 where one succeeds.

PYTHONPATH=tests:qa python -m attack [--out FILE] [--seconds S] [--workers N] [--clients N] [ATTACK ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from attack.attacks import ATTACKS
from attack.report import render
from attack.scene import Attack, Result, run


async def run_all(attacks: list[Attack], folder: Path, seconds: float, clients: int) -> list[Result]:
    """Each attack against a gateway of its own."""
    results = []
    for number, attack in enumerate(attacks):
        try:
            result = await run(attack, folder / str(number), seconds, clients=clients)
        except Exception as error:  # one that cannot be made must not hide the others
            result = Result(attack, problems=[f"could not be made: {type(error).__name__}: {error}"])
        results.append(result)
        _tell(result)
    return results


def _tell(result: Result) -> None:
    state = "held" if result.held else "BROKEN"
    p99 = f"/healthz p99 {result.health(0.99):4.0f} ms" if result.health_ms else ""
    print(
        f"{state:7} {result.attack.number:5} {result.attack.name:40} {result.answers:5} answers  {p99}", flush=True
    )
    for why in result.problems:
        print(f"        {why}", flush=True)


def main() -> int:
    """Run it."""
    names = ", ".join(ATTACKS)
    parser = argparse.ArgumentParser(prog="python -m attack", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"by name or number of the item: {names}")
    parser.add_argument("--out", type=Path, help="write the table here")
    parser.add_argument("--seconds", type=float, default=6.0, help="about how long each attack lasts")
    parser.add_argument("--workers", type=int, help="of the gateway; both 1 and 2 if it is not given")
    parser.add_argument("--clients", type=int, default=4, help="healthy ones")
    options = parser.parse_args()
    chosen = [
        each
        for each in sorted(ATTACKS.values(), key=lambda each: each.item)
        if not options.attacks or each.name in options.attacks or each.number in options.attacks
    ]
    if not chosen:
        parser.error(f"no such attack: {options.attacks}; known: {names}")
    began, by_workers = time.monotonic(), {}
    for workers in [options.workers] if options.workers else (1, 2):
        print(f"workers: {workers}", flush=True)
        os.environ["ODAR_GATEWAY_WORKERS"] = str(workers)
        with tempfile.TemporaryDirectory(prefix="odar-attack-") as folder:
            by_workers[workers] = asyncio.run(run_all(chosen, Path(folder), options.seconds, options.clients))
    page = render(by_workers, date=datetime.now(UTC).date().isoformat(), minutes=(time.monotonic() - began) / 60)
    if options.out is not None:
        options.out.write_text(page, encoding="utf-8")
    print(page)
    results = [result for each in by_workers.values() for result in each]
    succeeded = [result.attack.name for result in results if not result.held]
    verdict = f"attacks that succeeded: {', '.join(succeeded)}" if succeeded else "no attack succeeded"
    print(f"{len(results)} attacks; {verdict}")
    return 1 if succeeded else 0


if __name__ == "__main__":
    sys.exit(main())
