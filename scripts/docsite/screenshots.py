"""Take the pictures of the dashboard that the documentation shows: `python -m docsite screenshots`.

A gateway answers the everyday set (docs/data/everyday.jsonl) with stub models whose replies were written beforehand;
slow costs twenty times as much as fast. Needs Chromium and playwright (the extra `dev`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.everyday import PRICE, SET, STUBS, Stub, gateway, post

from docsite.markdown import ROOT

FOLDER = ROOT / "docs" / "images"
RATIO = 20
WIDTH = 1200
SECOND = """
[second]
model = "other"
[models.other]
provider = "stub"
family = "another"
logprobs = true
price = { input = 0.5, output = 2.0 }
[store]
content = true
"""
VERDICT_ENDS = 1490
"""Pixels of a trace down to the end of its verdict; the candidates have a picture of their own."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class ThreeModels(Stub):
    """The stub of the everyday set with a second cheap model, which is right on other questions than the first."""

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] != "other":
            return super().reply(body)
        digits = sum(map(ord, str(body["messages"][-1]["content"])))
        like = "deep" if digits % 4 else "quick"
        return super().reply(body | {"model": like}) | {"model": "other"}


@contextmanager
def browser() -> Iterator[Any]:
    """Yield headless Chromium."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def take(
    url: str, address: str, file: Path, width: int, height: int | None = None, part: str | None = None
) -> None:
    """Save the page at an address of the dashboard, its upper `height` pixels, or one element."""
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme="light")
        page.goto(f"{url}/#{address}")
        page.wait_for_selector("main[aria-busy=false]")
        target = page.locator(part) if part else page
        clip = {"x": 0, "y": 0, "width": width, "height": height} if height else None
        target.screenshot(path=file, **({} if part else {"full_page": True, "clip": clip}))


def disagreement(connection: HTTPConnection) -> str:
    """The id of a trace in which the two cheap models differ and the slow one decides."""

    def get(address: str) -> Any:
        connection.request("GET", f"/dashboard/api/traces{address}")
        return json.loads(connection.getresponse().read())

    for trace in get("?path=medium&limit=100")["traces"]:
        document = get(f"/{trace['id']}")["document"]
        groups = document["groups"]
        if len(groups) == 3 and groups[0] != groups[1] and "\n" not in document["query"]["text"]:
            return str(trace["id"])
    raise SystemExit("no question of the set has two cheap answers that differ")


def write_screenshots() -> list[Path]:
    """Ask the everyday set, and save the overview, a trace and its candidates."""
    items = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    slow = {f"slow_{name}": price * RATIO for name, price in PRICE.items()}
    files = [FOLDER / name for name in ("overview.png", "trace.png", "candidates.png")]
    with ThreeModels(items) as stub, gateway(STUBS.format(url=stub.url, **PRICE, **slow) + SECOND) as connection:
        for item in items:
            post(connection, "odar", item)
        url = f"http://{connection.host}:{connection.port}"
        trace = disagreement(connection)
        take(url, "/", files[0], WIDTH)
        take(url, f"/traces/{trace}", files[1], WIDTH, height=VERDICT_ENDS)
        take(url, f"/traces/{trace}", files[2], WIDTH, part="section.card:has(div.candidates)")
    return files
