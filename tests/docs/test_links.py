"""Every relative link of README and docs leads somewhere, as GitHub sees it: files from the page's folder, headings by GitHub's anchors."""

from __future__ import annotations

import re
import tomllib
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
