"""The static files: complete, without other hosts, and served with a content security policy."""

from __future__ import annotations

import re

import pytest

from odar.serving.dashboard_api import CONTENT_SECURITY_POLICY, HEADERS, INDEX, files
from support.dashboard import board

SCRIPTS = sorted(name for name in files() if name.endswith(".js"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    with board(tmp_path_factory.mktemp("files")) as running:
        yield running


def text(name: str) -> str:
    return files()[name][0].decode()


def test_referenced_files_exist():
    named = set(re.findall(r'(?:src|href)="/dashboard/([^"]+)"', text(INDEX)))
    assert {"main.js", "theme.js", "base.css", "icon.svg"} <= named <= set(files())
    imported = {name for script in SCRIPTS for name in re.findall(r'from "\./([^"]+)"', text(script))}
    assert imported <= set(files())
    assert imported | named | {INDEX} == set(files())  # and none that nobody uses


def test_the_policy_allows_only_this_server():
    for directive in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"):
        assert directive in CONTENT_SECURITY_POLICY.split("; ")
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_files_are_served_with_the_policy_and_an_etag(empty):
    for address in ("/", "/dashboard/main.js", "/dashboard/base.css"):
        reply = empty.file(address)
        assert reply.status == 200
        assert all(reply.headers[name] == value for name, value in HEADERS.items())
        again = empty.file(address, if_none_match=reply.headers["etag"])
        assert (again.status, again.body) == (304, b"")
    assert empty.file("/dashboard/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_files_of_unknown_type_are_not_served(tmp_path, monkeypatch):
    """Backup and system files in the folder must not be served."""
    (tmp_path / "static").mkdir()
    for name in ("main.js", "main.js~", ".DS_Store", "notes", "key.pem"):
        (tmp_path / "static" / name).write_text("x")
    monkeypatch.setattr("odar.serving.dashboard_api.resources.files", lambda package: tmp_path)
    found = files.__wrapped__()  # without the memory of those that were read before
    assert list(found) == ["main.js"]
    assert found["main.js"][1] == "text/javascript; charset=utf-8"
