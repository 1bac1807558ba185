"""Benchmarks of ODAR itself: start-up, difficulty estimator, routing quality. Those of the gateway are in qa/load."""

from __future__ import annotations

import click
from bench_quality import difficulty, routing
from bench_startup import startup

from odar.cli.main import main


@click.group("bench")
def command() -> None:
    """Measure what ODAR itself costs, and what it gains.

    \b
    python scripts/benchmarks/bench.py startup               # import, --help, the hard path
    python scripts/benchmarks/bench.py difficulty            # estimates per second, one core
    python scripts/benchmarks/bench.py routing --data DIR    # APGR and CPT on recorded outcomes
    """


for subcommand in (startup, difficulty, routing):
    command.add_command(subcommand)

if __name__ == "__main__":
    main(group=command, prog="bench.py")
