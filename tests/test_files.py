from __future__ import annotations

import json
import os
import pwd
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.config import load_settings
from odar.errors import InputError, SettingsError, UsageError
from odar.files import atomic_write, cache_folder, install_command, user_path

NOBODY = "~nobody_such/x.json"
SETTINGS = {
    "calibration": {"calibration": NOBODY},
    "store.url": {"store": {"url": NOBODY}},
    "routing.estimator": {"routing": {"estimator": NOBODY}},
    "prompts": {"prompts": NOBODY},
    "providers.p.api_key_file": {"providers": {"p": {"kind": "openai", "api_key_file": NOBODY}}},
    "providers.p.recordings": {"providers": {"p": {"kind": "replay", "recordings": NOBODY}}},
}


def test_a_tilde_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/data/a.jsonl") == tmp_path / "data" / "a.jsonl"
    assert user_path(Path("~")) == tmp_path
    me = pwd.getpwuid(os.getuid())
    assert user_path(f"~{me.pw_name}/a") == Path(me.pw_dir) / "a"


@given(
    st.text(st.characters(exclude_characters="~/\0", codec="utf-8"), min_size=1).filter(lambda name: name != ".")
)
def test_a_path_without_a_leading_tilde_is_unchanged(name):
    assert user_path(name) == Path(name)
    assert user_path(f"{name}/~root") == Path(name) / "~root"


@pytest.mark.parametrize("given", ["~nobody_such", "~nobody_such/x", Path("~nobody_such/x"), "~no\0body/x"])
def test_the_home_of_an_unknown_user_is_a_usage_error(given):
    with pytest.raises(InputError, match=r"no home is known for '~no.*'; write the whole path"):
        user_path(given)
    with pytest.raises(SettingsError, match=r"^store\.url = '~no"):
        user_path(given, setting="store.url")


def test_a_tilde_without_a_home_directory_is_rejected(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    with pytest.raises(InputError, match="no home is known for '~'"):
        user_path("~/x")
    assert user_path("/x") == Path("/x")


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_with_an_unknown_home_is_named(key):
    with pytest.raises(UsageError) as raised:
        _use(load_settings("tiny", config="/dev/null", environ={}, **SETTINGS[key]))
    assert key in str(raised.value) and "'~nobody_such'" in str(raised.value)


def _use(settings):
    """Open everything that the settings name by a path."""
    from odar.agents.prompts import load_prompts
    from odar.difficulty.base import open_estimator
    from odar.providers.pool import KINDS
    from odar.served.alignment import alignment_path
    from odar.traces.database import Database

    load_prompts(settings.prompts)
    open_estimator(settings.routing.estimator)
    for name, provider in settings.providers.items():
        if name == "p":
            KINDS[provider.kind](name, provider, settings)
    if settings.store.url:
        with pytest.raises(SettingsError, match=r"store\.url"):
            alignment_path(settings.store)
        Database(settings.store)


def test_a_key_that_begins_with_a_tilde_is_not_shown():
    from odar.secrets import api_key
    from odar.settings import ProviderSettings

    with pytest.raises(SettingsError, match="hidden: is it the key itself") as raised:
        api_key("p", ProviderSettings(kind="openai", api_key_file="~sk-0123456789"))
    assert "sk-0123456789" not in str(raised.value)


def test_the_cache_folder_is_set_by_a_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("ODAR_CACHE_DIR", NOBODY)
    with pytest.raises(SettingsError, match="ODAR_CACHE_DIR"):
        cache_folder()


class TestAtomicWrite:
    def test_the_draft_replaces_the_file(self, tmp_path):
        file = tmp_path / "a.json"
        file.write_text("old")
        with atomic_write(file) as draft:
            draft.write_text("new")
            assert file.read_text() == "old"
        assert file.read_text() == "new"
        assert list(tmp_path.iterdir()) == [file]

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_failure_leaves_the_file_unchanged(self, tmp_path, error):
        file = tmp_path / "a.json"
        file.write_text("old")
        expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected) as raised, atomic_write(file) as draft:
            draft.write_text("ne")
            raise error
        assert file.read_text() == "old"
        assert list(tmp_path.iterdir()) == [file]
        if expected is InputError:
            assert str(raised.value) == f"{file} cannot be written: No space left on device"

    def test_a_missing_folder_is_named(self, tmp_path):
        file = tmp_path / "none" / "a.json"
        with pytest.raises(InputError, match=r"none/a\.json cannot be written: No such file"):  # noqa: SIM117
            with atomic_write(file) as draft:
                draft.write_text("x")

    def test_a_folder_with_the_files_name_is_not_removed(self, tmp_path):
        with pytest.raises(InputError, match="cannot be written"), atomic_write(tmp_path / "b") as draft:
            (tmp_path / "b").mkdir()
            draft.write_text("x")
        assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'odar[evals]'"),
        ({"url": "https://example.com/odar.whl", "archive_info": {}}, "pip install 'odar[evals]'"),
        ({"url": "file:///home/ann/my%20odar", "dir_info": {}}, "pip install '/home/ann/my odar[evals]'"),
        ({"url": "file:///src/odar", "dir_info": {"editable": True}}, "pip install -e '/src/odar[evals]'"),
        ("damaged", "pip install 'odar[evals]'"),
    ],
)
def test_an_extra_is_installed_from_where_odar_came_from(monkeypatch, origin, command):
    """ODAR is not on PyPI: the advice must work for an installation from a checkout."""
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(
        metadata.Distribution, "from_name", lambda name: SimpleNamespace(read_text=lambda file: text)
    )
    assert install_command("evals") == command
