"""The source must not run data as code, start a shell, or disable a security check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import odar
from support.each import for_each

SOURCE = Path(odar.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
STATIC = sorted((SOURCE / "serving" / "dashboard" / "static").iterdir())
LOADERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "torch", "yaml"}
"""Packages whose `load` may run what it reads."""


def name_of(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


@cache
def nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text())))


def calls(module: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call by its dotted name."""
    return ((ast.unparse(node.func), node) for node in nodes(module) if isinstance(node, ast.Call))


def option(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == name), None)


@for_each(MODULES)
def test_no_module_unpickles_or_evaluates_data(module):
    imported = {
        alias.name.split(".")[0] for node in nodes(module) if isinstance(node, ast.Import) for alias in node.names
    } | {(node.module or "").split(".")[0] for node in nodes(module) if isinstance(node, ast.ImportFrom)}
    assert not imported & LOADERS
    for name, call in calls(module):
        assert name not in ("eval", "exec", "compile", "__import__"), f"{name} at line {call.lineno}"
        if name.endswith(("np.load", "numpy.load")):
            assert option(call, "allow_pickle") == "False"


@for_each(MODULES)
def test_no_shell_unverified_tls_or_predictable_temp_file(module):
    for name, call in calls(module):
        assert option(call, "shell") in (None, "False")
        assert not name.startswith(("os.system", "os.popen", "subprocess.getoutput", "tempfile.mktemp")), name
        assert option(call, "verify") != "False"
        assert option(call, "ssl") != "False"
        assert "_create_unverified_context" not in name
        assert not name.endswith("hashlib.md5") or option(call, "usedforsecurity") == "False", "say what it is for"


HTTP_CLIENTS = {"aiohttp", "http", "httpx", "niquests", "pycurl", "requests", "urllib", "urllib3"}
"""Packages that can follow a redirect and would then send the API key to another host."""
KEYLESS = {"defaults.py", "providers/download.py", "providers/llamacpp.py"}
"""Modules that hold no key: one fetches public files, one asks the model server in its own process."""
PROXY_LOOKUPS = {"getproxies", "getproxies_environment", "proxy_bypass", "proxy_bypass_environment"}
"""Functions of urllib.request that read the environment and send nothing."""


def test_only_keyless_modules_import_another_http_client():
    """Keys are sent only by ODAR's own client; tests/security/test_hostile_upstream.py checks that it follows no redirect."""
    users = set()
    for module in MODULES:
        for node in nodes(module):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} - PROXY_LOOKUPS:
                names += [node.module or ""]
            used = {name.split(".")[0] for name in names if name not in ("urllib.parse", "http")}
            if used & HTTP_CLIENTS:
                users.add(name_of(module))
    assert users == KEYLESS  # equality also shows that the search finds something


@for_each(MODULES)
def test_no_ssl_context_disables_certificate_checks(module):
    for name, _ in calls(module):
        assert not name.endswith("SSLContext"), "ssl.create_default_context checks names and certificates"
    for node in nodes(module):
        targets = node.targets if isinstance(node, ast.Assign) else []
        assert not {ast.unparse(target).rpartition(".")[2] for target in targets} & {
            "check_hostname",
            "verify_mode",
        }


@pytest.mark.parametrize("file", STATIC, ids=lambda file: file.name)
def test_dashboard_has_no_inline_script_and_no_external_url(file):
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"\son[a-z]+\s*=\s*[\"']", text) or file.suffix == ".js"  # no handlers in markup
    assert "javascript:" not in text
    if file.suffix == ".html":
        for tag, inside in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL):
            assert "src=" in tag
            assert not inside.strip()
        assert "<style" not in text
        assert " style=" not in text
    if file.suffix == ".js":
        assert not re.search(
            r"\b(eval|Function|insertAdjacentHTML|document\.write)\s*\(|(inner|outer)HTML\s*=", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/)", text)
