"""Build the site from docs/: stage the pages, run the generator, check the result."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath

from docsite.check import faults
from docsite.equations import equations_page
from docsite.markdown import ROOT
from docsite.source import source_page, staged

STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"


def stage() -> None:
    """Copy docs/ to build/docs, with pages of source for links that lead out of it."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGE)
    wanted: dict[Path, PurePosixPath] = {}
    # Line numbers change with every commit: the page in the repository names functions, the one of the site their lines.
    (STAGE / "reference" / "equations.md").write_text(equations_page(lines=True), encoding="utf-8")
    for page in sorted(STAGE.rglob("*.md")):
        original = ROOT / "docs" / page.relative_to(STAGE)
        page.write_text(staged(page.read_text(encoding="utf-8"), original, wanted), encoding="utf-8")
    for file, name in wanted.items():
        target = STAGE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source_page(file), encoding="utf-8")


def build(generator: str) -> list[str]:
    """Build the site with the generator's command; what is wrong with the result, one line each."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [generator, "build", "--clean", "--strict", "--config-file", str(ROOT / "zensical.toml")]
    subprocess.run(command, check=True, cwd=ROOT)
    return faults(SITE)
