"""Write deploy/requirements.txt: what the container image installs, each package with its version and the hashes of its wheels;
and deploy/requirements-evals.txt: what the image with EVALS=1 installs besides.

    make lock        # asks the package index of this machine's pip; run it to update, and review the difference

The wheels are those for the image's Python on x86_64 and aarch64. No address is written: pip finds the files itself, and
refuses those with another hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "requirements.txt"
EVALS_FILE = ROOT / "deploy" / "requirements-evals.txt"
EXTRAS = ("postgres", "otel")
PYTHON = "3.11"
PLATFORMS = {
    machine: [f"manylinux_{version}_{machine}" for version in ("2_36", "2_28", "2_27", "2_24", "2_17", "2_5")]
    + [f"manylinux2014_{machine}"]
    for machine in ("x86_64", "aarch64")
}
HEAD = """\
# Made by `make lock`; do not edit. What the image installs, for Python {python} on {machines}: odar's dependencies with the
# extras {extras}, and hatchling, which builds odar.
"""
EVALS_HEAD = """\
# Made by `make lock`; do not edit. What the image with EVALS=1 installs besides requirements.txt: the extra evals, for Python {python}
# on {machines}.
"""
Lock = dict[str, tuple[str, set[str]]]
"""Version and hashes by name."""


def requirements(extras: tuple[str, ...] = EXTRAS) -> list[str]:
    """Return what is asked for: dependencies, extras and what builds the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    known = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *(each for extra in extras for each in known[extra])]
    return [*wanted, *project["build-system"]["requires"]]


def resolve(wanted: list[str], platforms: list[str]) -> Lock:
    """Return what pip would install for one machine."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary=:all:", "--target", folder, "--python-version", PYTHON, "--report", str(report)]
        command += [part for each in platforms for part in ("--platform", each)]
        subprocess.run([*command, *wanted], check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    return {
        each["metadata"]["name"].lower().replace("_", "-"): (
            each["metadata"]["version"],
            {each["download_info"]["archive_info"]["hashes"]["sha256"]},
        )
        for each in found
    }


def lock(wanted: list[str]) -> Lock:
    """Return the packages for all machines; the first decides on the versions."""
    (first, *others) = PLATFORMS.values()
    chosen = resolve(wanted, first)
    for platforms in others:
        for name, (version, hashes) in resolve([f"{n}=={v}" for n, (v, _) in chosen.items()], platforms).items():
            chosen.setdefault(name, (version, set()))[1].update(hashes)
    return chosen


def render(packages: Lock, head: str = HEAD) -> str:
    """Return the text of a file."""
    lines = [
        " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in sorted(hashes))])
        for name, (version, hashes) in sorted(packages.items())
    ]
    about = head.format(python=PYTHON, machines=" and ".join(PLATFORMS), extras=" and ".join(EXTRAS))
    return about + "\n".join(lines) + "\n"


def main() -> None:
    """Write both files; the second takes the versions of the first."""
    base = lock(requirements())
    FILE.write_text(render(base), encoding="utf-8")
    more = lock([*(f"{name}=={version}" for name, (version, _) in base.items()), *requirements(("evals",))])
    added = {name: each for name, each in more.items() if name not in base}
    EVALS_FILE.write_text(render(added, EVALS_HEAD), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)} and {EVALS_FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
