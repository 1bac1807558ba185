"""Check the dependencies of odar without a network: licences, lower bounds, known vulnerabilities.

    python scripts/release/audit.py             # part of `make check`; never needs the network
    python scripts/release/audit.py --online    # `make audit`: also runs pip-audit, if it is installed and its service is reachable

Every installed package that odar and its extras depend on is checked, and the versions that the container image pins
(deploy/requirements.txt). What could not be checked is named at the end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

EXTRAS = ("evals", "otel", "postgres", "ray")
ALLOWED = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|HPND|CC0|Unlicense|LGPL)",
    re.IGNORECASE,
)
"""Licences under which Apache-2.0 software may be used with a package that is installed beside it."""
FORBIDDEN = re.compile(r"\bA?GPL|Affero|Commercial|Proprietary", re.IGNORECASE)
CHOSEN = {"pyphen": "MPL 1.1, one of the three it offers"}
"""Where a package offers several licences, the one we take it under."""
BY_HAND = {"agent-client-protocol": "Apache-2.0", "ray": "Apache-2.0"}
"""Where a package's metadata says nothing."""
Installed = dict[str, Distribution]


def installed(root: str = "odar", extras: tuple[str, ...] = EXTRAS) -> tuple[Installed, set[str]]:
    """Every package that is pulled in here, by name, and the names of those that are not installed."""
    found: Installed = {}
    missing: set[str] = set()
    waiting = [(root, extras)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            missing.add(name)
            continue
        waiting += [(canonicalize_name(r.name), tuple(sorted(r.extras))) for r in needs(found[name], wanted)]
    return found, missing


def needs(package: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What a package asks for on this system, with these of its extras."""
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
            yield requirement


def check_bounds(project: Distribution, found: Installed) -> Iterator[str]:
    """Direct dependencies have a lower bound, no URL, and an installed version that is allowed."""
    for requirement in needs(project, EXTRAS):
        name = canonicalize_name(requirement.name)
        if requirement.url:
            yield f"{name} is asked for by its address: {requirement.url}"
        if name == canonicalize_name(project.name):
            continue
        if not any(specifier.operator in (">=", "==", "~=") for specifier in requirement.specifier):
            yield f"{name} has no lower bound: any version, with any known flaw, would do"
        if name in found and not requirement.specifier.contains(found[name].version, prereleases=True):
            yield f"{name} {found[name].version} is installed; {requirement.specifier} is asked for"


def licence_of(name: str, package: Distribution) -> str:
    """The licence of a package by its expression, its classifiers, or the first line of its licence file."""
    if name in CHOSEN or name in BY_HAND:
        return CHOSEN.get(name) or BY_HAND[name]
    said = package.metadata
    if expression := said.get("License-Expression"):
        return str(expression)
    listed = [
        line.rpartition("::")[2].strip() for line in said.get_all("Classifier") or () if line[:7] == "License"
    ]
    return "; ".join(listed) or str(said.get("License") or "").strip().partition("\n")[0]


def check_licences(found: Installed) -> Iterator[str]:
    """Every licence is one we may use."""
    for name, package in sorted(found.items()):
        licence = licence_of(name, package)
        if FORBIDDEN.search(licence.replace("LGPL", "")) or not ALLOWED.search(licence):
            yield f"{name} {package.version}: licence {licence or 'unknown'!r} is not one we know to be usable"


def check_advisories(found: Installed, project: Distribution, file: Path) -> Iterator[str]:
    """No installed version has a known flaw, and no lower bound of ours lets one in."""
    floors = {canonicalize_name(r.name): r.specifier for r in needs(project, EXTRAS)}
    for entry in tomllib.loads(file.read_text("utf-8"))["advisory"]:
        name, flawed = canonicalize_name(entry["package"]), Requirement(f"x{entry['affected']}").specifier
        what = f"{entry['id']} ({entry['what']})"
        if name in found and flawed.contains(found[name].version, prereleases=True):
            yield f"{name} {found[name].version} is installed, which has {what}"
        lowest = [Version(each.version) for each in floors.get(name, ()) if each.operator in (">=", "==", "~=")]
        if lowest and flawed.contains(max(lowest), prereleases=True):
            yield f"{name} {floors[name]} lets in a version with {what}"


def pinned(text: str) -> dict[str, str]:
    """The versions that the container image installs, by name.

    >>> pinned("# by make lock\\na==1.0 \\\\\\n    --hash=sha256:00\\n")
    {'a': '1.0'}
    """
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def check_pins(pins: dict[str, str], file: Path) -> Iterator[str]:
    """No version of the image has a known flaw."""
    for entry in tomllib.loads(file.read_text("utf-8"))["advisory"]:
        version = pins.get(canonicalize_name(entry["package"]))
        if version and Requirement(f"x{entry['affected']}").specifier.contains(version, prereleases=True):
            yield f"the image installs {entry['package']} {version}, which has {entry['id']} ({entry['what']})"


def ask_service() -> tuple[str, bool]:
    """What pip-audit says, and whether it found something; not being able to ask is not a finding."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
        "--format",
        "json",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return f"pip-audit: no answer in time; {_ONLY_OURS}", False
    if "No module named" in done.stderr:
        return f"pip-audit is not installed (pip install pip-audit); {_ONLY_OURS}", False
    return read_service(done.stdout, done.stderr)


def read_service(out: str, err: str) -> tuple[str, bool]:
    """The result of pip-audit, and whether it found a vulnerability; packages that its service does not know are no error."""
    try:
        packages = json.loads(out)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (err.strip() or "no message").splitlines()[-1][:200]
        return f"pip-audit could not ask its service ({why}); {_ONLY_OURS}", False
    told = [package for package in packages if "vulns" in package]
    flaws = [f"{p['name']} {p['version']}: {flaw['id']}" for p in told for flaw in p["vulns"]]
    if flaws:
        return "pip-audit: " + "; ".join(flaws), True
    if not told:
        return f"pip-audit's service knows none of {len(packages)} packages; {_ONLY_OURS}", False
    return f"pip-audit: no known vulnerability in {len(told)} packages, {len(packages) - len(told)} unknown", False


_ONLY_OURS = "only the list in this repository was checked"


def unchecked(found: Installed, missing: set[str], pins: dict[str, str]) -> Iterator[str]:
    """What this audit did not look at."""
    if missing:
        yield f"{', '.join(sorted(missing))} and what they pull in, which are not installed here"
    other = sorted(name for name, version in pins.items() if name not in found or found[name].version != version)
    if other:
        yield f"licences of what the image installs and this machine does not: {', '.join(other)}"
    yield "the image's base (Debian and Python), and npm packages of tests"


def main(arguments: list[str]) -> int:
    """Print what is wrong, and what could not be checked; returns the exit code."""
    project = distribution("odar")
    found, missing = installed()
    advisories = Path(__file__).with_name("advisories.toml")
    pins = pinned((Path(__file__).parents[2] / "deploy" / "requirements.txt").read_text("utf-8"))
    faults = [
        *check_bounds(project, found),
        *check_licences(found),
        *check_advisories(found, project, advisories),
        *check_pins(pins, advisories),
    ]
    print("\n".join(faults) or f"audit: {len(found) - 1} packages: bounds, licences and known flaws are in order")
    flawed = False
    if "--online" in arguments:
        said, flawed = ask_service()
        print(said)
    else:
        print(
            "audit: flaws published after scripts/release/advisories.toml was written are not known (make audit asks for them)"
        )
    print(f"audit: not checked: {'; '.join(unchecked(found, missing, pins))}")
    return 1 if faults or flawed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
