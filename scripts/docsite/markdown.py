"""Parse a Markdown page: code blocks, links and headings with their lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
_PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
_REMARK = re.compile(r"<!-- (?P<key>run|not run|output): (?P<value>[^>]+?) -->")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """A code block, and what the comment in front of it says about running it."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    """The file it is, by `title="…"` behind the language."""
    remarks: dict[str, str] = field(default_factory=dict)
    fenced: bool = True

    @property
    def where(self) -> str:
        """page:line, for messages."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


@dataclass(frozen=True)
class Link:
    """A link or a picture."""

    page: Path
    line: int
    target: str

    @property
    def where(self) -> str:
        """page:line, for messages."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @cached_property
    def text(self) -> str:
        """The text of the file."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def _tokens(self) -> list[Token]:
        return _PARSER.parse(self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        """Every code block, indented ones included; not those that are quoted from somebody else."""
        found, remarks, quotes = [], {}, 0
        for token in self._tokens:
            if token.type.startswith("blockquote"):
                quotes += token.nesting
            elif quotes:
                continue
            elif token.type == "html_block":
                remarks |= {match["key"]: match["value"] for match in _REMARK.finditer(token.content)}
            elif token.type in ("fence", "code_block"):
                language, _, rest = token.info.partition(" ")
                title = dict(_ATTRIBUTE.findall(rest)).get("title", "")
                line = (token.map or [0])[0] + 1
                fenced = token.type == "fence"
                found.append(Block(self.path, line, language, token.content, title, remarks, fenced))
                remarks = {}
            elif token.type == "inline":
                remarks = {}
        return found

    @cached_property
    def links(self) -> list[Link]:
        """Every link and picture, wherever it leads."""
        return [
            Link(self.path, line, str(target))
            for token, line in self._inline()
            if (target := token.attrGet("href") or token.attrGet("src"))
        ]

    @cached_property
    def code(self) -> list[tuple[str, int]]:
        """Code within sentences, with its line."""
        return [(token.content, line) for token, line in self._inline() if token.type == "code_inline"]

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """Level and words of every heading."""
        pairs = zip(self._tokens, self._tokens[1:], strict=False)
        return [(int(opening.tag[1]), _plain(words)) for opening, words in pairs if opening.type == "heading_open"]

    @cached_property
    def anchors(self) -> set[str]:
        """What a link may name after `#`, by GitHub's rule for headings."""
        seen: dict[str, int] = {}
        names = set()
        for _, words in self.headings:
            slug = slugify(words)
            count = seen[slug] = seen.get(slug, -1) + 1
            names.add(f"{slug}-{count}" if count else slug)
        return names | set(re.findall(r'<a (?:id|name)="([^"]+)"', self.text))

    def _inline(self) -> Iterator[tuple[Token, int]]:
        for token in self._tokens:
            if token.type == "inline":
                line = (token.map or [0])[0] + 1
                for child in token.children or ():
                    yield child, line
                    line += child.type in ("softbreak", "hardbreak")


def slugify(words: str) -> str:
    """The anchor that GitHub gives a heading.

    >>> slugify("E and V: what `fep` weighs (SPEC 5.3)")
    'e-and-v-what-fep-weighs-spec-53'
    """
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def pages() -> list[Page]:
    """All pages: those at the root, and all under docs."""
    at_root = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [Page(path) for path in [*at_root, *sorted((ROOT / "docs").rglob("*.md"))]]


def _plain(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))
