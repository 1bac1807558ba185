"""The generated pages and figures, and how to update them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from docsite.cli_page import cli_page
from docsite.equations import equations_page
from docsite.http_page import http_page
from docsite.markdown import ROOT
from docsite.python_page import python_page
from docsite.settings_page import settings_page

NOTE = "<!-- Made by `make docs-reference`; edit what it is made from instead. -->\n\n"
PAGES: dict[str, Callable[[], str]] = {
    "cli": cli_page,
    "equations": lambda: equations_page(lines=False),
    "http": http_page,
    "python": python_page,
    "settings": settings_page,
}


def generated(name: str) -> str:
    """A generated page as it should be."""
    return NOTE + PAGES[name]()


def write_all() -> Iterator[str]:
    """Write every generated page and figure that has changed; yields their names."""
    from docsite.plots import write_plots  # matplotlib, which building the site does not need

    yield from write_plots()
    for name in PAGES:
        path, text = ROOT / "docs" / "reference" / f"{name}.md", generated(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield str(path.relative_to(ROOT))
