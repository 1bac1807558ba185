"""The tree of the source on the architecture page, and what README and the home page link to."""

from __future__ import annotations

import re

from docsite.markdown import ROOT, Page

README = Page(ROOT / "README.md")


def test_the_tree_lists_the_modules_of_the_package():
    page = Page(ROOT / "docs" / "architecture.md")
    (tree,) = [block.text for block in page.blocks if block.text.startswith("src/odar/\n")]
    named = re.findall(r"(?m)^  ([\w.]+)", tree)
    there = {
        path.name for path in (ROOT / "src" / "odar").iterdir() if path.suffix in (".py", ".toml") or path.is_dir()
    }
    assert sorted(named) == sorted(there - {"__init__.py", "__pycache__"})


def test_the_readme_links_to_every_part_of_the_documentation():
    targets = {link.target.partition("#")[0] for link in README.links}
    assert {
        "docs/index.md",
        "docs/peers.md",
        "docs/limits.md",
        "docs/guides/gateway.md",
        "docs/guides/models.md",
    } <= targets


def test_the_home_page_links_to_every_section():
    home = {link.target.split("/")[0] for link in Page(ROOT / "docs" / "index.md").links}
    assert {"guides", "concepts", "reference", "quickstart.md", "peers.md", "limits.md"} <= home
