"""Branch coverage by package and the least covered modules, from the data that `pytest --cov` left; see `make coverage`.

    python scripts/coverage_table.py [--least 90]

Ends with 1 where the whole of src/odar is covered less than asked for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

SHOWN = 25


def percent(summary: dict[str, Any]) -> float:
    """Lines and branches that were taken, of all there are."""
    every = summary["num_statements"] + summary["num_branches"]
    return 100.0 * (summary["covered_lines"] + summary["covered_branches"]) / every if every else 100.0


def main() -> int:
    """Print both tables; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--least", type=float, default=90.0, metavar="PERCENT")
    least = parser.parse_args().least
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "--quiet", "-o", file], check=True)
        report = json.loads(file.read_text("utf-8"))
    files = {name.rpartition("odar/")[2]: each["summary"] for name, each in report["files"].items()}
    packages: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, summary in files.items():
        for key in ("num_statements", "num_branches", "covered_lines", "covered_branches"):
            packages[name.rpartition("/")[0].partition("/")[0] or "."][key] += summary[key]
    for title, rows in (("package", packages), ("module", files)):
        print(f"{'covered':>8}  {title}")
        for name in sorted(rows, key=lambda name: percent(rows[name]))[:SHOWN]:
            print(f"{percent(rows[name]):7.1f}%  {name}")
        print()
    total = percent(report["totals"])
    print(f"{total:7.1f}%  lines and branches of src/odar; at least {least:g} are asked for")
    return 0 if total >= least else 1


if __name__ == "__main__":
    sys.exit(main())
