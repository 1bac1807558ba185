"""Measure the CPU time per request of logs and spans in the gateway; the median of several rounds.

    python qa/load/bench_telemetry.py

The upstream is a stub that answers at once; the model is `odar-simple`, with 16 connections. CPU time of the gateway's process is
measured, including log writer and span exporter, because wall time is unreliable on a shared machine.
"""

from __future__ import annotations

import asyncio
import http.server
import statistics
import threading

from load_generator import bodies, cpu_s, gateway, measure, stub

ROUNDS, SECONDS, CONNECTIONS = 5, 3.0, 16


class Sink(http.server.BaseHTTPRequestHandler):
    """A collector that discards what it receives."""

    def do_POST(self) -> None:
        """Read the body and answer 200."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


async def cpu_ms(url: str, pid: int) -> float:
    """CPU milliseconds per request."""
    asked = bodies("odar-simple")
    await measure(url, asked, CONNECTIONS, 1.0)
    before = cpu_s(pid)
    load = await measure(url, asked, CONNECTIONS, SECONDS)
    assert not load.errors, load
    return (cpu_s(pid) - before) / load.requests * 1e3


def main() -> None:
    """Measure in turns, so that a busy minute affects all of them."""
    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    variants = {
        "neither": {},
        "text log": {"ODAR_GATEWAY_LOG_REQUESTS": "true"},
        "json log": {"ODAR_GATEWAY_LOG_REQUESTS": "true", "ODAR_GATEWAY_LOG_FORMAT": "json"},
        "spans": {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink.server_port}"},
        "spans, 1 in 10": {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sink.server_port}",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.1",
        },
    }
    found: dict[str, list[float]] = {name: [] for name in variants}
    with stub() as upstream:
        for _ in range(ROUNDS):
            for name, environ in variants.items():
                with gateway(upstream, environ) as (url, pid):
                    found[name].append(asyncio.run(cpu_ms(url, pid)))
    for name, times in found.items():
        print(f"{name:15} {statistics.median(times):.3f} ms  ({min(times):.3f} to {max(times):.3f})")


if __name__ == "__main__":
    main()
