"""Run one check over many files in a single test; a test per file would cost more than the check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def for_each(files: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Turn a check of one file into a test of all `files`; a failure names the file."""

    def over(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            for file in files:
                try:
                    check(file)
                except AssertionError as error:
                    error.add_note(f"in {file}")
                    raise

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return over
