from __future__ import annotations

import json
import tomllib
from email.message import Message

import pytest

from support.scripts import FOLDER, script

audit = script("audit")


class Package:
    """An installed package, as the audit sees it."""

    def __init__(self, name="thing", version="1.0", requires=(), **said: str | list[str]) -> None:
        self.name, self.version, self.requires = name, version, list(requires)
        self.metadata = Message()
        for key, value in said.items():
            for each in [value] if isinstance(value, str) else value:
                self.metadata[key.replace("_", "-")] = each


def test_the_installed_packages_pass():
    assert audit.main([]) == 0


def test_transitive_dependencies_are_found():
    found, _ = audit.installed(extras=())
    assert {"odar", "rich", "markdown-it-py", "mdurl"} <= set(found)
    assert "pytest" not in found
    assert "pyarrow" not in found  # an extra's


@pytest.mark.parametrize(
    ("requires", "fault"),
    [
        (["yarl"], "yarl has no lower bound"),
        (["yarl<9"], "yarl has no lower bound"),
        (["yarl>=999"], "is installed; >=999 is asked for"),
        (["yarl @ https://example.com/yarl.whl"], "yarl is asked for by its address"),
        (["yarl>=1"], None),
        (["yarl>=999; sys_platform == 'nowhere'"], None),
        (["yarl>=999; extra == 'dev'"], None),
        (["thing[more]"], None),
    ],
)
def test_bounds_are_checked(requires, fault):
    faults = list(audit.check_bounds(Package(requires=requires), {"yarl": Package("yarl", "1.25")}))
    assert bool(faults) == (fault is not None)
    assert fault is None or fault in faults[0]


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ({"License_Expression": "Apache-2.0 AND MIT"}, True),
        ({"License_Expression": "LGPL-3.0-only"}, True),
        ({"License_Expression": "GPL-3.0-or-later"}, False),
        ({"License_Expression": "AGPL-3.0"}, False),
        ({"Classifier": ["Topic :: X", "License :: OSI Approved :: BSD License"]}, True),
        ({"Classifier": ["License :: OSI Approved :: GNU Affero General Public License v3"]}, False),
        ({"Classifier": ["License :: Other/Proprietary License"]}, False),
        ({"License": "MIT License\n\nCopyright GPL people"}, True),
        ({"License": "ask us"}, False),
        ({}, False),
    ],
)
def test_licences_are_checked(said, good):
    faults = list(audit.check_licences({"thing": Package(**said)}))
    assert (not faults) == good
    assert good or faults[0].startswith("thing 1.0: licence ")


@pytest.mark.parametrize(
    ("installed", "bound", "faults"),
    [("2.1", ">=2.1", 0), ("2.0", ">=2.1", 1), ("2.1", ">=2.0", 1), ("2.0", ">=1", 2), ("2.1", "", 0)],
)
def test_known_vulnerabilities_are_reported(tmp_path, installed, bound, faults):
    file = tmp_path / "advisories.toml"
    file.write_text('[[advisory]]\npackage = "Thing_X"\naffected = "<2.1"\nid = "CVE-1"\nwhat = "bad"\n')
    project = Package("odar", requires=[f"thing-x{bound}"])
    found = list(audit.check_advisories({"thing-x": Package("thing-x", installed)}, project, file))
    assert len(found) == faults
    assert all("CVE-1 (bad)" in each for each in found)


def test_every_advisory_is_complete():
    entries = tomllib.loads((FOLDER / "release" / "advisories.toml").read_text())["advisory"]
    found, _ = audit.installed()
    for entry in entries:
        assert set(entry) == {"package", "affected", "id", "what"}
        assert entry["package"] in found, f"{entry['package']} is no dependency any more: drop {entry['id']}"
    assert len({entry["id"] for entry in entries}) == len(entries)


@pytest.mark.parametrize(
    ("packages", "said", "flawed"),
    [
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-9"}]}], "pip-audit: a 1: CVE-9", True),
        ([{"name": "a", "version": "1", "vulns": []}], "no known vulnerability in 1 packages, 0 unknown", False),
        ([{"name": "a", "skip_reason": "not found"}], "knows none of 1 packages; only the list", False),
    ],
)
def test_skipped_packages_of_the_service_are_reported(packages, said, flawed):
    told, found = audit.read_service(json.dumps({"dependencies": packages}), "")
    assert said in told
    assert found is flawed


@pytest.mark.parametrize("out", ["", "{}", "[]", "Traceback"])
def test_a_network_error_is_reported_without_a_finding(out):
    told, found = audit.read_service(out, "Traceback\nConnectionError: no route")
    assert (found, "ConnectionError: no route" in told, "only the list" in told) == (False, True, True)
