"""Faults of a built site: broken links, pages that fetch from other hosts, unrendered Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
NOT_FETCHED = {"canonical", "next", "prev", "author", "license", "edit", "alternate"}
_LEFT_OVER = re.compile(r"<p>(?:(?!</p>).)*?(\|---|\n\s*[-*] |\n\s*\d\. |```)", re.DOTALL)
"""A list, table or block inside a paragraph: the generator did not take it for one."""
_STYLE_ADDRESS = re.compile(r"""(?:url\(|@import\s+)['"]?(?:https?:)?//([^'")\s]+)""")


@dataclass
class Document(HTMLParser):
    """The ids, links and fetched things of one HTML page."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.text = self.path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names and where it leads."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHED and FETCHED[tag] in values and not NOT_FETCHED & set(values.get("rel", "").split()):
            self.fetched.append(values[FETCHED[tag]])


def faults(site: Path) -> list[str]:
    """Everything wrong with the site, one line each."""
    documents = {path: Document(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = [f"{site} holds no page"] if not documents else []
    for path, document in documents.items():
        name = path.relative_to(site)
        found += [f"{name}: fetches {address}" for address in document.fetched if _outside(address)]
        found += [f"{name}: {address} leads nowhere" for address in document.fetched if not _leads(address, path)]
        found += [f"{name}: {link} leads nowhere" for link in _broken(document, documents)]
        found += [f"{name}: {left[0][-80:]!r} was not understood" for left in _LEFT_OVER.finditer(document.text)]
    for style in sorted(site.rglob("*.css")):
        hosts = _STYLE_ADDRESS.findall(style.read_text(encoding="utf-8"))
        found += [f"{style.relative_to(site)}: fetches from {host}" for host in hosts]
    return found


def _broken(document: Document, documents: dict[Path, Document]) -> Iterator[str]:
    for link in document.links:
        if _outside(link) or link.startswith(("mailto:", "data:", "javascript:")):
            continue
        parts = urlsplit(link)
        target = (document.path.parent / unquote(parts.path)).resolve() if parts.path else document.path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists() or (
            parts.fragment and target in documents and unquote(parts.fragment) not in documents[target].ids
        ):
            yield link


def _outside(address: str) -> bool:
    return urlsplit(address).netloc != ""


def _leads(address: str, page: Path) -> bool:
    parts = urlsplit(address)
    return bool(parts.scheme or parts.netloc or (page.parent / unquote(parts.path)).exists())
