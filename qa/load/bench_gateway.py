"""Measure how many requests the gateway takes, beside other gateways in the same run."""

from __future__ import annotations

import dataclasses
import json

import click
from load_generator import Row, run

from odar.cli.main import main
from odar.cli.options import Finite
from odar.errors import InputError


@click.command("bench_gateway")
@click.option("--connections", default="1,32", show_default=True, metavar="N,…", help="Connections, one load each.")
@click.option("--seconds", type=Finite(min=0.1), default=5.0, show_default=True, help="Length of a load.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of rounds; the median is reported.",
)
@click.option(
    "--model",
    "models",
    multiple=True,
    default=("odar", "odar-simple"),
    show_default=True,
    help="Model to request from the gateway; repeatable.",
)
@click.option(
    "--workers", default="1", show_default=True, metavar="N,…", help="Workers of the gateway, one gateway each."
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=URL[#PID]",
    help="Another gateway to measure, and its process; repeatable.",
)
@click.option("--peer-model", default="stub", show_default=True, help="Model to request from the peers.")
@click.option("--peer-header", "peer_headers", multiple=True, metavar="'NAME: VALUE'", help="Header for the peers.")
@click.option("--stub-port", type=int, default=0, help="Port of the stub, for the peers' own settings.")
@click.option("--delay", type=Finite(min=0), default=0.0, metavar="S", help="Delay of the stub, in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def gateway(
    connections: str,
    seconds: float,
    rounds: int,
    models: tuple[str, ...],
    workers: str,
    peers: tuple[str, ...],
    peer_model: str,
    peer_headers: tuple[str, ...],
    stub_port: int,
    delay: float,
    as_json: bool,
) -> None:
    """How many requests the gateway takes, in front of a stub.

    Requests per second, p50, p99, CPU and memory; of any peer too, in the same
    run, in alternating rounds.

    \b
    python qa/load/bench_gateway.py --json
    python qa/load/bench_gateway.py --connections 200 --delay 0.5 --seconds 60
    python qa/load/bench_gateway.py --workers 1,2

    The first row is the stub asked directly: what the gateway adds is the
    difference. odar takes the path that each question needs, some of them with
    several calls; odar-simple makes one call for each, as a plain proxy does.
    """
    pairs = [peer.partition("=") for peer in peers]
    if bad := ["".join(pair) for pair in pairs if not (pair[0] and pair[2].startswith("http://"))]:
        raise InputError(f"--peer {bad[0]!r} is not NAME=http://…")
    rows = run(
        {name: url.rstrip("/") for name, _, url in pairs},
        connections=_counts(connections, "--connections"),
        seconds=seconds,
        rounds=rounds,
        models=models,
        peer_model=peer_model,
        peer_headers=peer_headers,
        workers=_counts(workers, "--workers"),
        stub_port=stub_port,
        delay_s=delay,
        note=lambda text: click.echo(f"odar: measuring {text}", err=True),
    )
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows]))
    else:
        _print(rows)


def _counts(text: str, option: str) -> list[int]:
    """The whole numbers of an option."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise InputError(f"{option} {text!r} is not a list of whole numbers of at least 1, such as 1,32")
    return counts


def _print(rows: list[Row]) -> None:
    from odar.cli.terminal import format_known, print_columns

    loads = [(row, load) for row in rows for load in row.loads]
    columns = {
        "target": [row.name for row, _ in loads],
        "conns": [str(load.connections) for _, load in loads],
        "req/s": [f"{load.per_second:.0f}" for _, load in loads],
        "p50 ms": [f"{load.p50_ms:.2f}" for _, load in loads],
        "p99 ms": [f"{load.p99_ms:.2f}" for _, load in loads],
        "calls": [format_known(load.calls, "{:.2f}") for _, load in loads],
        "CPU ms": [format_known(load.cpu_ms, "{:.2f}") for _, load in loads],
        "errors": [str(load.errors) for _, load in loads],
        "MB": [format_known(row.memory_mb, "{:.0f}") for row, _ in loads],
    }
    print_columns(columns, gap=2)


if __name__ == "__main__":
    main(group=gateway, prog="bench_gateway.py")
