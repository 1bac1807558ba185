"""What is measured, each in a process of its own: the stub upstream, the gateway before it; and what they use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from odar.errors import OdarError

_CONFIG = """
profile = "tiny"
[providers.stub]
kind = "openai"
base_url = {upstream}
[models.stub]
provider = "stub"
logprobs = true
[fast]
model = "stub"
[slow]
model = "stub"
[gateway]
log_requests = false # nobody would read them
[store]
url = {store} # not the user's: their keys would lock us out, and our traces are no news to them
"""
_LOOK_S = 0.02


@contextmanager
def stub(port: int = 0, delay_s: float = 0.0) -> Iterator[str]:
    """An upstream that knows one answer; its address."""
    command = [sys.executable, "-m", "odar.gateway.bench.stub", str(port), str(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise OdarError(f"the stub upstream did not start; is port {port} taken?")
            yield f"http://127.0.0.1:{int(line)}/v1"
        finally:
            process.stdin.close()
            process.terminate()


@contextmanager
def gateway(upstream: str, environ: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """`odar serve` before this upstream, with these variables more; its address and its process.

    It has a store of its own, unless ODAR_STORE_URL names one.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder) / "odar.toml", Path(folder) / "log"
        store = json.dumps(str(Path(folder) / "odar.db"))
        config.write_text(_CONFIG.format(upstream=json.dumps(upstream), store=store), encoding="utf-8")
        code = "from odar.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", "--port", "0", "--config", str(config)]
        # Into a file: a pipe would be full at some time, and nobody reads it while the load runs.
        with (
            log.open("wb") as stream,
            subprocess.Popen(command, stderr=stream, env={**os.environ, **(environ or {})}) as process,
        ):
            try:
                yield f"{_address(process, log)}/v1", process.pid
            finally:
                process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What the gateway says it listens on, as soon as it does."""
    while True:
        ended = process.poll() is not None
        said = log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"http://\S+(?=\s)", said):
            return found.group()
        if ended:
            raise OdarError(f"the gateway did not start: {' '.join(said.split())}")
        time.sleep(_LOOK_S)


def cpu_s(pid: int | None) -> float | None:
    """CPU seconds so far of a process of ours and those that it started; None where the system does not say."""
    ticks = [int(user) + int(system) for *_, user, system in (fields[:13] for _, fields in _family(pid))]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def memory_mb(pid: int | None) -> float | None:
    """Resident megabytes of a process of ours and those that it started; None where the system does not say."""
    pages = [int(fields[21]) for _, fields in _family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20 if pages else None


def _family(pid: int | None) -> Iterator[tuple[int, list[str]]]:
    """A process and its children, each with what Linux counts of it, from its state on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            number, _, rest = stat.read_text(encoding="utf-8", errors="replace").partition(" ")
            fields = rest.rpartition(")")[2].split()
            if pid in (int(number), int(fields[1])):
                yield int(number), fields
