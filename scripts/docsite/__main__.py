"""The commands; see the docstring of the package."""

from __future__ import annotations

import sys

from docsite.build import build
from docsite.reference import write_all


def main(arguments: list[str]) -> int:
    """Run one of the commands and return the exit code."""
    match arguments:
        case ["reference"]:
            for path in write_all():
                print(f"wrote {path}")
            return 0
        case ["paper"]:
            from docsite import paper  # numpy and the recordings

            for path in paper.write():
                print(f"wrote {path}")
            return 0
        case ["screenshots"]:
            from docsite.screenshots import write_screenshots

            for path in write_screenshots():
                print(f"wrote {path}")
            return 0
        case ["cases"]:
            from docsite import paper

            print(f"wrote {paper.write_cases()}")
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
