"""Coverage by package and of the least covered modules, from the data that `pytest --cov` left; see `make coverage`.

    python scripts/coverage_table.py [--least 90]

Ends with 1 where the whole of src/odar, without `omit` of pyproject.toml, has fewer of its branches taken than asked
for. Branches alone are the hardest of the three figures; "both" is what coverage.py calls its total.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN = 25


@dataclass(frozen=True, slots=True)
class Taken:
    """What tests ran of a module, a package or everything."""

    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Taken:
        """From a summary as `coverage json` writes it."""
        names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
        return cls(*(summary[name] for name in names))

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            self.lines + other.lines,
            self.all_lines + other.all_lines,
            self.branches + other.branches,
            self.all_branches + other.all_branches,
        )

    @property
    def percents(self) -> tuple[float, float, float]:
        """Of lines, of branches, and of both counted together."""
        both = _percent(self.lines + self.branches, self.all_lines + self.all_branches)
        return _percent(self.lines, self.all_lines), _percent(self.branches, self.all_branches), both


def by_package(files: Mapping[str, Taken]) -> dict[str, Taken]:
    """Sums over each package of odar; `.` are the modules beside them.

    >>> by_package({"engine.py": Taken(1, 1), "cli/ask.py": Taken(1, 2), "cli/top.py": Taken(3, 3)})["cli"].lines
    4
    """
    packages: dict[str, Taken] = defaultdict(Taken)
    for name, taken in files.items():
        packages[name.partition("/")[0] if "/" in name else "."] += taken
    return dict(packages)


def table(title: str, rows: Mapping[str, Taken]) -> str:
    """The least covered first."""
    least = sorted(rows, key=lambda name: (rows[name].percents[2], name))[:SHOWN]
    shown = [" ".join(f"{percent:7.1f}%" for percent in rows[name].percents) + f"  {name}" for name in least]
    return "\n".join([f"{'lines':>8} {'branches':>8} {'both':>8}  {title}", *shown])


def verdict(whole: Taken, least: float) -> str:
    """What is true of the whole tree, in a line."""
    lines, branches, both = whole.percents
    word = "enough" if branches >= least else "NOT ENOUGH"
    return (
        f"src/odar as a whole: {branches:.1f}% of {whole.all_branches:,} branches, {lines:.1f}% of "
        f"{whole.all_lines:,} lines, {both:.1f}% of both; {word}: {least:g}% of branches are asked for"
    )


def read_report() -> dict[str, Any]:
    """What coverage.py knows of the last run, all processes together."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", file], check=True)
        report: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return report


def main(arguments: list[str] | None = None) -> int:
    """Print both tables and the verdict; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--least", type=float, default=90.0, metavar="PERCENT")
    least: float = parser.parse_args(arguments).least
    report = read_report()
    files = {name.rpartition("odar/")[2]: Taken.of(each["summary"]) for name, each in report["files"].items()}
    whole = Taken.of(report["totals"])
    print(table("package", by_package(files)), table("module", files), verdict(whole, least), sep="\n\n")
    return 0 if whole.percents[1] >= least else 1


def _percent(some: int, every: int) -> float:
    """
    >>> _percent(1, 4), _percent(0, 0)
    (25.0, 100.0)
    """
    return 100.0 * some / every if every else 100.0


if __name__ == "__main__":
    sys.exit(main())
