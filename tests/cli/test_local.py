from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from odar.cli import local
from odar.cli.local import DownloadDisplay, fetch_fast_weights, local_models, prepare_models
from odar.config import load_settings
from odar.errors import WeightsError
from odar.providers import weights as catalogue
from support.weights_hub import CONTENT, Hub, cache, hub, no_hub, pip, weights, wheels

__all__ = ["cache", "hub", "no_hub", "pip", "weights", "wheels"]


@pytest.fixture
def listed(weights, monkeypatch):
    """Replace every model of the catalogue by a small one, so that downloads are small."""
    names = catalogue.known_weights()
    monkeypatch.setattr(catalogue, "known_weights", lambda: {**dict.fromkeys(names, weights), "model": weights})
    monkeypatch.setattr("odar.cli.local.known_weights", catalogue.known_weights)
    return weights


def test_pull_downloads_once_and_prints_the_path(odar, hub: Hub, listed):
    first = odar("pull", "model")
    assert (first.code, first.out) == (0, f"{listed.path}\n")
    assert "odar: downloading Model, Q4" in first.err
    assert "odar: source: the hub, official/model" in first.err
    assert "9.0/9.0 MB" in first.err  # the bar
    second = odar("pull", "model")
    assert (second.out, second.err, len(hub.requests)) == (f"{listed.path}\n", "", 1)
    body = json.loads(odar("pull", "model", "--json").out)
    assert body == [{"name": "model", "path": str(listed.path), "bytes": len(CONTENT)}]


def test_a_damaged_file_or_force_downloads_again(odar, hub: Hub, listed):
    odar("pull", "model", "--json")
    listed.path.write_bytes(b"garbage" * 100)
    assert odar("pull", "model").code == 0
    assert (listed.path.read_bytes(), len(hub.requests)) == (CONTENT, 2)
    assert odar("pull", "model", "--force").code == 0
    assert len(hub.requests) == 3


def test_a_profile_name_pulls_its_models(odar, hub: Hub, listed):
    names = [row["name"] for row in json.loads(odar("pull", "--json").out)]
    assert names == ["qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"]
    assert [row["name"] for row in json.loads(odar("pull", "tiny", "--json").out)] == ["smollm2-135m"]
    wrong = odar("pull", "tinny")
    assert (wrong.code, "unknown local model 'tinny'; did you mean 'tiny'" in wrong.err) == (2, True)


@pytest.mark.usefixtures("no_hub")
def test_a_failed_download_has_its_own_exit_code(odar, listed, pip):
    pip("sys.exit('ERROR: No matching distribution found')")
    result = odar("pull", "model")
    assert (result.code, "odar: model cannot be downloaded: the hub cannot be reached" in result.err) == (5, True)
    assert json.loads(odar("pull", "model", "--json").out)["error"]["type"] == "WeightsError"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["smollm2-135m"]),
        ({"fast__model": "gpt-4.1", "slow__model": "gpt-4.1"}, []),
        ({"fast__model": "gguf:/a.gguf"}, ["gguf:/a.gguf", "smollm2-135m"]),
    ],
)
def test_weights_are_downloaded_only_for_models_that_run_here(options, expected, monkeypatch):
    fetched = []
    monkeypatch.setattr(local, "fetch_model", lambda model, quiet: fetched.append(model))
    settings = load_settings("tiny", config="/dev/null", environ={}, **options)
    prepare_models(settings, quiet=True)
    assert fetched == expected == local_models(settings)


def test_the_local_models_are_listed_with_their_state(odar, hub: Hub, listed, monkeypatch):
    for module in ("odar.providers.weights", "odar.cli.models"):
        monkeypatch.setattr(f"{module}.known_weights", lambda: {"model": listed})
    assert odar("models", "--local", "--profile", "tiny").out.split()[-2:] == ["Apache-2.0", "absent"]
    odar("pull", "model")
    (row,) = json.loads(odar("models", "--local", "--json", "--profile", "tiny").out)
    assert (row["name"], row["state"], row["path"], row["bytes"]) == (
        "model",
        "present",
        str(listed.path),
        listed.size,
    )


def test_the_display_shows_a_message_while_the_bar_runs(capsys):
    shown = []
    display = DownloadDisplay(lambda: shown.append("before"))
    display.on_message("downloading")
    display.on_progress("downloading", 1, 2)
    display.on_message("part 2 is damaged")
    display.on_progress("checking", 2, 2)
    assert display._bar is None  # closed at the end of the last stage
    error = capsys.readouterr().err
    assert error.startswith("odar: downloading\n")
    assert "odar: part 2 is damaged" in error
    assert shown == ["before"]


def test_a_gguf_file_needs_no_download(tmp_path: Path):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF....")
    assert local.fetch_model(f"gguf:{tmp_path}/mine.gguf", quiet=False) == tmp_path / "mine.gguf"


@pytest.fixture
def fetched(monkeypatch):
    """Record fetched models; those of Qwen cannot be fetched."""
    models = []

    def fetch(model, *, quiet):
        models.append(model)
        if model.startswith("qwen"):
            raise WeightsError(f"{model} cannot be downloaded: nobody answers")

    monkeypatch.setattr(local, "fetch_model", fetch)
    return models


def test_the_tiny_model_replaces_a_default_that_cannot_be_downloaded(fetched, capsys):
    with click.Context(click.Command("ask")) as context:
        context.params = {"config": "/dev/null", "sets": ("seed=5",)}
        settings = fetch_fast_weights(load_settings(config="/dev/null", environ={}, seed=5), quiet=False)
    assert (settings.profile, settings.seed) == ("tiny", 5)
    assert fetched == ["qwen2.5-coder-0.5b", "smollm2-135m"]  # the slow model was not tried
    assert capsys.readouterr().err.splitlines() == [
        "odar: qwen2.5-coder-0.5b cannot be downloaded: nobody answers",
        "odar: answering with profile tiny, whose answers are often wrong",
    ]


def test_a_named_profile_is_not_replaced(fetched):
    with pytest.raises(WeightsError, match="nobody answers"):
        fetch_fast_weights(load_settings("local", config="/dev/null", environ={}), quiet=True)


def test_doctor_shows_local_models_disk_and_memory(odar, tmp_path, monkeypatch):
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "empty"))
    options = ("doctor", "--json", "--profile", "local", "--config", "/dev/null")
    for offline in ("", "1"):
        monkeypatch.setenv("ODAR_OFFLINE", offline)
        found = json.loads(odar(*options).out)
        models = [finding for finding in found if finding["topic"] == "local model"]
        assert [finding["remedy"] for finding in models] == [
            "odar pull qwen2.5-coder-0.5b",
            "odar pull qwen2.5-coder-1.5b",
        ]
        assert all("absent" in finding["text"] and finding["ok"] is not bool(offline) for finding in models)
        (disk,) = [finding["text"] for finding in found if finding["topic"] == "disk"]
        assert "takes up to 3.2 GB" in disk
    monkeypatch.setenv("ODAR_OFFLINE", "")
    (memory,) = [finding["text"] for finding in json.loads(odar(*options).out) if finding["topic"] == "memory"]
    assert "the local models take 3.8 GB" in memory
    (tmp_path / "mine.gguf").write_bytes(b"no model")
    mine = odar(*options, "--set", f"fast.model=gguf:{tmp_path}/mine.gguf")
    assert (mine.code, "is not a GGUF file" in mine.out) == (1, True)
