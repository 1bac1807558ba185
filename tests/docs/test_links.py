"""Every relative link of README and docs leads somewhere, as GitHub sees it: files from the page's folder, headings by GitHub's anchors."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
from docsite.markdown import ROOT, Link, Page, pages, slugify

PAGES = {page.path: page for page in pages()}
NAMES = {page: str(page.path.relative_to(ROOT)) for page in PAGES.values()}


def fault_of(link: Link) -> str | None:
    """Return the fault of a link; None for a valid one, and for one to another host."""
    target, _, anchor = unquote(link.target).partition("#")
    if re.match(r"[a-z]+:", target):
        return None
    file = (link.page.parent / target).resolve() if target else link.page
    if not file.exists():
        return f"{link.where}: {link.target} is not there"
    if not file.is_relative_to(ROOT):
        return f"{link.where}: {link.target} is outside the repository"
    if anchor and file.suffix == ".md" and anchor not in (anchors := (PAGES.get(file) or Page(file)).anchors):
        return f"{link.where}: {link.target} names no heading; there are {', '.join(sorted(anchors))}"
    return None


@pytest.mark.parametrize("page", PAGES.values(), ids=NAMES.get)
def test_links_have_a_target(page):
    assert not [fault for link in page.links if (fault := fault_of(link))]


@pytest.mark.parametrize("page", PAGES.values(), ids=NAMES.get)
def test_a_page_has_one_title_and_no_heading_twice(page):
    """The site and GitHub number equal headings differently, so links to them would break on one of them."""
    assert [level for level, _ in page.headings].count(1) == 1
    slugs = [slugify(words) for _, words in page.headings]
    linked = {unquote(link.target).partition("#")[2] for other in PAGES.values() for link in other.links}
    assert not {slug for slug in slugs if slugs.count(slug) > 1} & linked


def test_every_page_is_in_the_navigation_once():
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())
    listed = re.findall(r"'([^']+\.md)'", str(settings["project"]["nav"]))
    written = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    assert sorted(listed) == written, "put the page into `nav` of zensical.toml"


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("nowhere.md", "is not there"),
        ("README.md#no-such-heading", "names no heading"),
        ("../../../etc/passwd", "outside"),
        ("README.md#try-it", None),
        ("src/odar/engine.py#L3", None),
        ("docs", None),
        ("#try-it", None),
        ("https://example.com/x", None),
        ("mailto:a@example.com", None),
    ],
)
def test_broken_links_are_recognised(target, wrong):
    fault = fault_of(Link(ROOT / "README.md", 1, target))
    assert fault is None if wrong is None else wrong in fault


@pytest.mark.parametrize(
    ("words", "anchor"),
    [
        ("Limits, honestly", "limits-honestly"),
        ("`[models.NAME]`", "[models.NAME]"),
        ("Up to six, not always six", "up-to-six-not-always-six"),
        ("2. Difficulty estimator (DE)", "2-difficulty-estimator-de"),
        ("2026-11-16 · The store", "2026-11-16--the-store"),
    ],
)
def test_anchors_follow_the_rules_of_github(words, anchor):
    expected = "modelsname" if words.startswith("`") else anchor
    assert slugify(words.strip("`")) == expected


def test_equal_headings_are_numbered(tmp_path):
    file = tmp_path / "page.md"
    file.write_text('# A\n\n## B\n\n## B\n\n<a id="own"></a>\n')
    assert Page(file).anchors == {"a", "b", "b-1", "own"}


def test_blocks_links_and_remarks_of_a_page_are_found(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(
        "# `odar` page\n\n[a link](x.md)\n![a picture](y.png) and `odar ask`\n\n<!-- not run: because -->\n\n"
        '```bash title="run.sh"\nls\n```\n\nwords\n\n    indented\n\n| a | b |\n|---|---|\n| [cell](z.md) | |\n'
    )
    page = Page(file)
    assert [(link.target, link.line) for link in page.links] == [("x.md", 3), ("y.png", 4), ("z.md", 18)]
    assert [code for code, _ in page.code] == ["odar ask"] or [code for code, _ in page.code] == [
        "odar",
        "odar ask",
    ]
    fenced, indented = page.blocks
    assert (fenced.language, fenced.title, fenced.text, fenced.line) == ("bash", "run.sh", "ls\n", 8)
    assert fenced.remarks == {"not run": "because"} and not indented.remarks and not indented.fenced


def test_a_remark_applies_only_to_the_next_block(tmp_path):
    file = Path(tmp_path / "page.md")
    file.write_text("<!-- output: varies -->\n\nWords between.\n\n```console\n$ ls\n```\n")
    assert not Page(file).blocks[0].remarks
