"""`make chaos`: every fault in turn, a table into the docs, and exit code 1 where a promise did not hold.

PYTHONPATH=tests:qa python -m chaos [--out FILE] [--pace SECONDS] [--clients N] [FAULT ...]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from chaos.environment import Environment, Outcome, start_environment
from chaos.gateway import Gateway
from chaos.machine_faults import MACHINE_FAULTS
from chaos.promises import short
from chaos.report import render
from chaos.upstream_faults import LEAVING, UPSTREAM_FAULTS, try_leaving, try_upstream

_NAMES = (*(fault.name for fault in UPSTREAM_FAULTS), LEAVING, *MACHINE_FAULTS)


async def run(folder: Path, names: list[str], pace: float, clients: int) -> list[Outcome]:
    """Every fault that was asked for."""
    async with start_environment(folder, pace=pace, clients=clients) as env:
        outcomes = await _upstream(env, names)
        for name, attempt in MACHINE_FAULTS.items():
            if name in names:
                try:
                    outcome = await attempt(env)
                except LookupError as reason:
                    outcome = Outcome(name, (attempt.__doc__ or "").rstrip("."), skipped=str(reason))
                outcomes.append(_tell(outcome))
    return outcomes


async def _upstream(env: Environment, names: list[str]) -> list[Outcome]:
    """One gateway for all of these: what each leaves behind would add up."""
    if not set(names) - MACHINE_FAULTS.keys():
        return []
    store = str(env.folder / "traces.db")
    gateway = await Gateway.start(env.folder / "gateway", env.fast, env.slow, store)
    outcomes: list[Outcome] = []
    try:
        before = await env.warm(gateway)
        for fault in UPSTREAM_FAULTS:
            if fault.name in names:
                outcomes.append(_tell(await try_upstream(env, gateway, store, fault, before)))
        if LEAVING in names:
            outcomes.append(_tell(await try_leaving(env, gateway, store, before)))
    finally:
        await gateway.stop()
    if outcomes:  # on the way out
        outcomes[-1].broken += short(gateway.complaints())
    return outcomes


def _tell(outcome: Outcome) -> Outcome:
    state = "skipped" if outcome.skipped else "held" if outcome.held else "BROKEN"
    print(f"{state:8} {outcome.fault:20} {len(outcome.asked):6,} questions", flush=True)
    for why in (*outcome.broken, *([outcome.skipped] if outcome.skipped else [])):
        print(f"         {why}", flush=True)
    return outcome


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"one of: {', '.join(_NAMES)}; default: all")
    parser.add_argument("--out", type=Path, help="write the table here")
    parser.add_argument("--pace", type=float, default=1.5, help="seconds that each phase of a fault lasts")
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    if unknown := set(options.faults) - set(_NAMES):
        parser.error(f"unknown fault {sorted(unknown)[0]!r}; known: {', '.join(_NAMES)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odar-chaos-") as folder:
        outcomes = asyncio.run(run(Path(folder), options.faults or list(_NAMES), options.pace, options.clients))
    seconds = time.monotonic() - began
    if options.out is not None:
        date = datetime.now(UTC).date().isoformat()
        page = render(
            outcomes, command="make chaos", date=date, seconds=seconds, clients=options.clients, pace=options.pace
        )
        options.out.write_text(page, encoding="utf-8")
    bad = [outcome.fault for outcome in outcomes if not outcome.held]
    verdict = f"broken by: {', '.join(bad)}" if bad else "every promise held"
    print(f"{len(outcomes)} faults in {seconds:.0f} s; {verdict}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
