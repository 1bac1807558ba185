"""Headless Chromium with the dashboard; the tests are skipped without a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.dashboard import Board, board
from support.traffic import traffic

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser per module: the event loop of Playwright must end before a module with async tests starts."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'"
    )
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("no Chromium: apt-get install chromium, or see `make chromium`")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page; check at the end for errors, policy violations and other hosts."""
    contexts: list[tuple[Any, Any, Board, list[str]]] = []

    def go(running: Board, hash_: str = "#/", *, width: int = 1280, height: int = 860, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(60_000)  # a busy machine
        page = context.new_page()
        page.add_init_script(WATCH)
        trouble: list[str] = []
        # Statuses of 400 and more are logged by Chromium itself; which were expected the test knows better.
        page.on(
            "console",
            lambda m: (
                trouble.append(m.text) if m.type in ("error", "warning") and "status of 4" not in m.text else None
            ),
        )
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith((running.url, "data:", "blob:")) else trouble.append(r.url),
        )
        contexts.append((context, page, running, trouble))
        page.goto(f"{running.url}/{hash_}")
        settled(page)
        return page

    yield go
    for context, page, _, trouble in contexts:
        violations = page.evaluate("window.violations")
        context.close()
        assert trouble == []
        assert violations == []


def settled(page: Any) -> None:
    """Wait until the page has drawn its data."""
    page.wait_for_selector("main[aria-busy=false]")


@pytest.fixture(scope="module")
def busy(tmp_path_factory) -> Iterator[Board]:
    """A dashboard with 300 queries of the last day, with texts and some feedback."""
    with board(tmp_path_factory.mktemp("busy"), traffic(300), store__content=True) as running:
        for index in range(250, 290, 2):
            running.store.archive.mark(f"{index:032x}", index % 8 != 0)
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Iterator[Board]:
    with board(tmp_path_factory.mktemp("empty")) as running:
        yield running


@pytest.fixture(scope="session")
def hard() -> Callable[[Board], str]:
    """Return a function that returns the newest trace of the Hard path."""
    return lambda running: running.get("/traces", path="hard", limit=1).json["traces"][0]["id"]
