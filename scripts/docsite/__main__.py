"""The commands; see the docstring of the package."""

from __future__ import annotations

import sys
from pkgutil import resolve_name

from docsite.build import build

WRITERS = {
    "reference": "docsite.reference:write_all",
    "paper": "docsite.paper:write",
    "cases": "docsite.paper:write_cases",
    "explanations": "docsite.explanations:write_explanations",
    "screenshots": "docsite.screenshots:write_screenshots",
}
"""What writes pages and figures, imported when it runs: some need matplotlib or a browser."""


def main(arguments: list[str]) -> int:
    """Run one of the commands and return the exit code."""
    match arguments:
        case [name] if name in WRITERS:
            for path in resolve_name(WRITERS[name])():
                print(f"wrote {path}")
            return 0
        case ["build", generator]:
            found = build(generator)
            print(*found, sep="\n")
            print(f"{len(found)} faults" if found else "no broken link, nothing fetched from elsewhere")
            return 1 if found else 0
        case _:
            print(sys.modules["docsite"].__doc__)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
