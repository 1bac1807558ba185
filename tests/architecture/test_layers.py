"""Rules for the source that a test can check: layers, pure packages, side effects of imports, exported names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import odar
from support.each import for_each

SOURCE = Path(odar.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
PURE = ("difficulty", "policy")
HEAVY = ("aiohttp", "asyncio", "click", "numpy", "rich", "spacy", "sqlalchemy", "ssl", "xllamacpp")


def name_of(module: Path) -> str:
    return str(module.relative_to(SOURCE))


def imports_of(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@for_each(MODULES)
def test_every_module_has_a_docstring(module):
    assert ast.get_docstring(ast.parse(module.read_text()))


@for_each([m for m in MODULES if m.relative_to(SOURCE).parts[0] in PURE])
def test_pure_packages_import_no_io_modules(module):
    # threading is allowed: caches need a lock when two threads call
    impure = {"asyncio", "aiohttp", "os", "random", "requests", "socket", "subprocess", "sys", "time"}
    assert not {name.split(".")[0] for name in imports_of(module)} & impure


@for_each([m for m in MODULES if name_of(m) != "files.py"])
def test_only_files_module_calls_expanduser(module):
    """`Path.expanduser` raises RuntimeError for an unknown user, which no command handles."""
    assert ".expanduser(" not in module.read_text(), "use odar.files.user_path, or UserPath for an option"


def test_layers_in_contributing_match_the_import_contract():
    root = SOURCE.parent.parent
    contract, *_ = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (documented,) = re.findall(r"```text\n(cli →.*?)```", (root / "CONTRIBUTING.md").read_text(), re.DOTALL)
    configured = [layer.replace("odar.", "") for layer in contract["layers"]]
    assert [" ".join(layer.split()) for layer in documented.split("→")] == configured


def test_every_package_is_in_the_import_contract():
    """A package that is missing from the import contract could import anything."""
    contract = (SOURCE.parent.parent / "pyproject.toml").read_text()
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {
        "data",
        "profiles",
    }  # no code in these
    assert all(f"odar.{package}" in contract for package in packages)


@for_each(MODULES)
def test_every_noqa_and_type_ignore_has_a_reason(module):
    """The forms are `# type: ignore[code]  # reason` and `# noqa: CODE - reason`."""
    for number, line in enumerate(module.read_text().splitlines(), start=1):
        if "# type: ignore" in line:
            assert re.search(r"# type: ignore\[[a-z, -]+\]  # \w.{9,}$", line), f"line {number}: {line.strip()}"
        if "# noqa" in line:
            assert re.search(r"# noqa: [A-Z0-9, ]+ - \w.{9,}$", line), f"line {number}: {line.strip()}"


def test_public_names_are_sorted_exist_and_are_at_most_20():
    assert odar.__all__ == sorted(odar.__all__)
    assert len(odar.__all__) <= 20
    for name in odar.__all__:
        assert getattr(odar, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = odar.nonsense


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_importing_odar_loads_nothing_heavy():
    loaded = run_python("import sys, odar; print(*sys.modules)").split()
    assert not {name.split(".")[0] for name in loaded} & set(HEAVY)


def test_help_loads_no_heavy_module():
    code = (
        "import sys\nfrom odar.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print('LOADED', *sys.modules)"
    )
    loaded = run_python(code).split("LOADED")[1].split()
    assert not {name.split(".")[0] for name in loaded} & (set(HEAVY) - {"click"})


def test_importing_every_module_prints_nothing_and_starts_no_thread():
    names = [
        "odar." + ".".join(m.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for m in MODULES[1:]
    ]
    code = (
        f"import importlib, threading\nfor name in {names!r}: importlib.import_module(name)\n"
        "print(threading.active_count())"
    )
    assert run_python(code) == "1"


def test_no_registry_address_is_committed():
    root = SOURCE.parent.parent
    for file in [root / "pyproject.toml", root / "Makefile", *MODULES]:
        text = file.read_text()
        assert "pypi." not in text.lower(), file
