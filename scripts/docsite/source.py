"""Convert Markdown for GitHub to Markdown for the generator of the site.

Links out of docs/ lead to the file on GitHub, and on the site to a page that shows it.

A source page is Markdown with one code block, so that it follows the theme; links to lines such as `#L12` are
translated to the anchors of the generator.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath

from docsite.markdown import ROOT

LANGUAGES = {
    ".css": "css",
    ".html": "html",
    ".js": "js",
    ".json": "json",
    ".md": "markdown",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yaml": "yaml",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_LINE = re.compile(r"#L(\d+)")
LARGEST = 200_000


def staged(text: str, page: Path, wanted: dict[Path, PurePosixPath]) -> str:
    """A page's text in which links out of docs/ lead to pages of source; those are added to `wanted`.

    Args:
        text: the page as written.
        page: its path in the repository.
        wanted: files of the repository and the page of the site that shows each.
    """

    def lead(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match.groups()
        if "://" in target or target.startswith(("mailto:", "/")):
            return match[0]
        file = Path(os.path.normpath(page.parent / target))
        if file.is_relative_to(ROOT / "docs") and not file.is_dir():
            return match[0]
        name = wanted.setdefault(file, place(file))
        here = PurePosixPath(page.relative_to(ROOT / "docs")).parent
        line = _LINE.fullmatch(anchor or "")
        anchor = f"#__span-0-{line[1]}" if line else anchor or ""
        return f"{opening}{posixpath.relpath(name, here)}{anchor}{closing}"

    fences = re.split(r"(?ms)(^```.*?^```$)", text)
    fences[::2] = [_LINK.sub(lead, portable(prose)) for prose in fences[::2]]
    return "".join(fences)


def portable(prose: str) -> str:
    """Lists that the generator sees as such: it wants an empty line before one, and four spaces inside.

    >>> portable("Tried:\\n- this\\n\\n1. one\\n\\n   more\\n")
    'Tried:\\n\\n- this\\n\\n1. one\\n\\n    more\\n'
    """
    prose = re.sub(r"(?m)^((?![-*|>#\s]|\d+\. ).+)\n(?=- |1\. )", r"\1\n\n", prose)
    items = re.split(r"(?m)^(?=\d+\. )", prose)
    items[1:] = [re.sub(r"(?m)^ {3}(?=\S)", "    ", item) for item in items[1:]]
    if any("\n\n" in item.strip() for item in items[1:-1]):  # items of several paragraphs stand apart
        items[1:-1] = [item.rstrip("\n") + "\n\n" for item in items[1:-1]]
    return "".join(items)


def place(file: Path) -> PurePosixPath:
    """Where the page of a source file is."""
    return PurePosixPath("source", *file.relative_to(ROOT).parts[:-1], f"{file.name}.md")


def source_page(file: Path) -> str:
    """The page that shows a file, or lists a folder."""
    name = file.relative_to(ROOT)
    head = f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide:\n  - toc\n  - navigation\n---\n\n# `{name}`\n\n"
    if file.is_dir():
        entries = sorted(each.name + "/" * each.is_dir() for each in file.iterdir() if each.name != "__pycache__")
        return head + "".join(f"- `{entry}`\n" for entry in entries)
    if file.stat().st_size > LARGEST:
        return head + f"{file.stat().st_size:,} bytes: too large to show here.\n"
    text = file.read_text(encoding="utf-8")
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
    language = LANGUAGES.get(file.suffix, "text")
    return f'{head}{fence}{language} linenums="1"\n{text}\n{fence}\n'
