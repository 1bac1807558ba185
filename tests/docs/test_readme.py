"""The tree and the links of the README."""

from __future__ import annotations

import re

from docsite.markdown import ROOT, Page

README = Page(ROOT / "README.md")


def test_the_tree_lists_the_modules_of_the_package():
    (tree,) = [block.text for block in README.blocks if block.text.startswith("src/odar/\n")]
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


def test_the_papers_policy_is_in_the_table_of_results():
    """Its accuracy and cost are those of docs/results.md, for every row with models of its own."""
    results = (ROOT / "docs/results.md").read_text("utf-8")
    rows = [line.split(" | ") for line in re.findall(r"(?m)^\| paper \|.*$", results)]
    known = {f"{row[1].partition(' ')[0]} at {row[3]}" for row in rows}
    shown = re.search(r"<!-- RESULTS.*?END RESULTS", README.text, re.S)[0].splitlines()
    cells = [line.rstrip(" |").rsplit("| ", 1)[1] for line in shown if re.search(r"\d at \d", line)]
    assert len(cells) == 4
    assert set(cells) <= known
