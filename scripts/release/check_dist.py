"""Check the distributions that `make dist` built: sizes, required files, forbidden files.

python scripts/release/check_dist.py dist
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

WHEEL_MB = 15.0
NEEDED = (
    "odar/catalogue.toml",
    "odar/lab/benchmarks/benchmarks.toml",
    "odar/lab/report/exhibits.toml",
    "odar/lab/rewrites.toml",
    "odar/lab/graders/proof.txt",
    "odar/profiles/local.toml",
    "odar/profiles/tiny.toml",
    "odar/providers/weights.toml",
    "odar/agents/prompts/default/answer.toml",
    "odar/data/starter.jsonl",
    "odar/data/calibration-tiny.json",
    "odar/difficulty/data/estimator.json",
    "odar/policy/belief.json",
    "odar/policy/quantiles.json",
    "odar/serving/dashboard/static/index.html",
    "odar/py.typed",
)
"""A wheel without one of these installs, and fails at the first question."""
NEEDED_SOURCE = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "NOTICE",
    "CHANGELOG.md",
    "Makefile",
    "tests/conftest.py",
    "docs/lab-notes.md",
)
UNWANTED = re.compile(r"__pycache__|\.pyc$|\.gguf$|\.env$|(^|/)\.venv|(^|/)secret\.yaml$|\.db$|\.ipynb_checkpoints")


def main(folder: Path) -> int:
    """Print what is there and what is wrong with it; returns the exit code."""
    wheels, sources = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        print(f"{folder} holds {len(wheels)} wheels and {len(sources)} source archives; expected one of each")
        return 1
    faults = [*check_wheel(wheels[0]), *check_source(sources[0])]
    for file in (*wheels, *sources):
        print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB")
    print("\n".join(faults) or "ok: everything is inside, and nothing else")
    return 1 if faults else 0


def check_wheel(wheel: Path) -> list[str]:
    """What is wrong with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        text = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    faults = _contents(wheel.name, names, NEEDED)
    if (size := wheel.stat().st_size / 1e6) > WHEEL_MB:
        faults.append(f"{wheel.name} has {size:.1f} MB; at most {WHEEL_MB:g} are allowed")
    outside = sorted({name.split("/")[0] for name in names} - {"odar"} - {_info(names)})
    if outside:
        faults.append(f"{wheel.name} would install {', '.join(outside)} beside odar")
    if "-none-any" not in wheel.name:
        faults.append(f"{wheel.name} is for one platform only")
    if "\nLicense-Expression: Apache-2.0" not in text or not any(n.endswith("licenses/LICENSE") for n in names):
        faults.append(f"{wheel.name} does not carry its licence")
    return faults


def check_source(source: Path) -> list[str]:
    """What is wrong with the source archive."""
    with tarfile.open(source) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return _contents(source.name, names, NEEDED_SOURCE)


def _contents(archive: str, names: list[str], needed: tuple[str, ...]) -> list[str]:
    missing = [f"{archive} lacks {name}" for name in needed if name not in names]
    return missing + [f"{archive} holds {name}" for name in names if UNWANTED.search(name)]


def _info(names: list[str]) -> str:
    return next(name.split("/")[0] for name in names if ".dist-info/" in name)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
