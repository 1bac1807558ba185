"""Weights in the cache: verified once, downloaded again if damaged, one-line errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from odar.errors import UnknownName, WeightsError
from odar.providers import weights as module
from odar.providers.weights import (
    Weights,
    ensure_weights,
    find_weights,
    model_sha256,
    offline,
    weights_status,
)
from support.weights_hub import CONTENT, Hub, cache, hub, weights, wheels

__all__ = ["cache", "hub", "weights", "wheels"]


def test_a_verified_file_is_not_hashed_again(hub: Hub, weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights_status(weights)[0] == "absent"
    path = ensure_weights(weights)
    monkeypatch.setattr(module, "sha256_of", lambda path: pytest.fail("hashed again"))
    assert ensure_weights(weights) == path
    assert weights_status(weights) == ("present", weights.size)


def test_a_file_with_another_date_is_verified_again(hub: Hub, weights: Weights) -> None:
    path = ensure_weights(weights)
    os.utime(path, (1, 1))
    assert ensure_weights(weights) == path
    path.with_name(path.name + ".verified").write_bytes(b"\xff\xfe nonsense")
    assert ensure_weights(weights) == path
    assert len(hub.requests) == 1


@pytest.mark.parametrize("damage", [CONTENT[:100], b"x" * len(CONTENT), b""])
def test_a_damaged_file_is_downloaded_again(hub: Hub, weights: Weights, damage: bytes) -> None:
    path = ensure_weights(weights)
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert weights_status(weights)[0] == "damaged"
    ensure_weights(weights)
    assert path.read_bytes() == CONTENT


def test_offline_only_existing_files_are_used(hub: Hub, weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODAR_OFFLINE", "1")
    with pytest.raises(
        WeightsError, match=r"model is not in .* ODAR_OFFLINE is set; unset it and run `odar pull model`"
    ):
        ensure_weights(weights)
    assert not hub.requests
    monkeypatch.setenv("ODAR_OFFLINE", "0")
    path = ensure_weights(weights)
    monkeypatch.setenv("ODAR_OFFLINE", "yes")
    assert offline()
    assert ensure_weights(weights) == path


def test_a_full_disk_is_a_one_line_error(hub: Hub, weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WeightsError, match=r"cannot keep weights in .*weights: No space left.* ODAR_CACHE_DIR"):
        ensure_weights(weights)


def test_an_unwritable_cache_is_a_one_line_error(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(
        WeightsError, match=r"cannot keep weights in .*weights: Permission denied; .* ODAR_CACHE_DIR"
    ):
        ensure_weights(weights)


def test_a_cache_path_that_is_a_file_is_a_one_line_error(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    for look in (ensure_weights, weights_status):
        with pytest.raises(WeightsError, match="ODAR_CACHE_DIR"):
            look(weights)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown local model 'qwen2.5-coder-0.5'; did you mean 'qwen2.5-coder-0.5b'"
    ):
        find_weights("qwen2.5-coder-0.5")


def test_the_hash_of_a_gguf_file_is_computed(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    first = model_sha256(f"gguf:{tmp_path}/mine.gguf")
    (tmp_path / "mine.gguf").write_bytes(b"GGUF2")
    os.utime(tmp_path / "mine.gguf", ns=(5, 5))
    assert first != model_sha256(f"gguf:{tmp_path}/mine.gguf")
    assert model_sha256("smollm2-135m").startswith("b179c9523d0e")
