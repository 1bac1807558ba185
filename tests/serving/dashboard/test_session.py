"""Theme, key, help and shortcuts of all pages, and the models page."""

from __future__ import annotations

import pytest

from odar.errors import ProviderUnreachable
from support.dashboard import board
from support.scripted import ScriptedProvider
from support.traces import make_record


def background(page):
    return page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")


def brightness(page):
    return sum(map(int, background(page)[4:-1].split(",")[:3])) / 3


def test_the_theme_follows_the_system_and_the_button(visit, busy):
    assert brightness(visit(busy, color_scheme="light")) > 200
    page = visit(busy, color_scheme="dark")
    assert brightness(page) < 50
    button = page.locator("#theme")
    button.click()
    assert (page.evaluate("document.documentElement.dataset.theme"), brightness(page) > 200) == ("light", True)
    page.reload()
    page.wait_for_selector(".figure")
    assert brightness(page) > 200  # it stays
    button.click()
    assert button.get_attribute("aria-label").startswith("Theme: dark")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(visit, busy, hard, scheme):
    """WCAG AA: every text has a contrast of 4.5 with its background, token shades included."""
    page = visit(busy, f"#/traces/{hard(busy)}", color_scheme=scheme)
    poor = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
          const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
          const light = ([r, g, b]) => { const f = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
          const behind = (node) => { for (; node; node = node.parentElement) { const c = rgb(getComputedStyle(node).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
          const found = [];
          for (const node of document.querySelectorAll("main *, header *")) {
            if (![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || node.closest("[hidden], .hidden, .newline, .mark, button:disabled")) continue;
            const a = light(rgb(getComputedStyle(node).color)), b = light(behind(node));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) found.push(`${node.className || node.tagName} ${ratio.toFixed(2)} ${node.textContent.slice(0, 20)}`);
          }
          return [...new Set(found)];
        }"""
    )
    assert poor == []


def test_help_and_its_shortcuts_work(visit, busy):
    page = visit(busy)
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    for keys, heading in (("gt", "Traces"), ("gm", "Models"), ("gp", "Playground")):
        page.locator("main").focus()
        for key in keys:
            page.keyboard.press(key)
        page.get_by_role("heading", name=heading, exact=True, level=1).wait_for()
        assert page.locator("nav [aria-current=page]").inner_text() == heading


def test_the_tab_key_reaches_all_controls_in_order(visit, busy):
    page = visit(busy)
    seen = []
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement !== document.body"):
        seen.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent ?? ''"
            )
        )
        outline = page.evaluate(
            "[getComputedStyle(document.activeElement).outlineStyle, document.activeElement.type]"
        )
        page.keyboard.press("Tab")
        assert outline[0] != "none" or outline[1] == "radio", seen[-1]
    names = ["Skip to content", "ODAR, overview", "Overview", "Traces", "Models", "Playground", "Theme"]
    assert [next(s for s in seen if s.startswith(name)) for name in names] == [
        s for s in seen if s.startswith(tuple(names))
    ]


def test_reduced_motion_disables_animations(visit, busy):
    page = visit(busy, "#/traces", reduced_motion="reduce")
    page.evaluate("document.querySelector('tbody tr').classList.add('fresh')")
    assert page.evaluate("getComputedStyle(document.querySelector('tbody tr')).animationName") == "none"


def test_a_key_is_kept_in_the_tab_and_never_in_an_address(visit, tmp_path):
    secrets: dict[str, str] = {}
    with board(tmp_path, keys=(("ann", False), ("chief", True)), secrets=secrets) as running:
        for name in ("ann", "bob"):
            key = running.store.key_cache.verify(secrets["ann"]).id if name == "ann" else "key_bob"
            running.store.put(make_record(id=name * 8, key_id=key))
        running.store._writer.flush().result(10)
        page = visit(running, "#/traces")
        addresses: list[str] = []
        page.on("request", lambda request: addresses.append(request.url))
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("API key").fill("odar_sk_wrong")
        page.keyboard.press("Enter")
        assert "unknown API key" in dialog.get_by_role("alert").inner_text()
        dialog.get_by_label("API key").fill(secrets["ann"])
        page.keyboard.press("Enter")
        page.wait_for_selector("tbody tr")
        assert page.locator("tbody tr").count() == 1
        assert page.locator("#key").inner_text() == "ann"
        assert "questions of key ann" in page.locator(".head").inner_text()
        with page.expect_download() as download:
            page.get_by_role("link", name="Export JSONL").click()
        assert download.value.path().read_text().count("\n") == 1
        page.reload()
        page.wait_for_selector("tbody tr")  # not asked again
        page.locator("#key").click()
        dialog.get_by_label("API key").fill(secrets["chief"])
        page.keyboard.press("Enter")
        page.wait_for_selector("tbody tr:nth-child(2)")
        assert page.evaluate("[JSON.stringify(localStorage), document.cookie]") == ["{}", ""]
        page.locator("#key").click()
        page.get_by_role("button", name="Forget the key").click()
        dialog.wait_for()
        assert page.evaluate("JSON.stringify(sessionStorage)") == "{}"
        assert not [address for address in addresses if "odar_sk_" in address]


def test_the_models_page_shows_state_and_breaker(visit, tmp_path, monkeypatch):
    monkeypatch.setattr("odar.providers.breaker.FAILURES", 1)
    down = ScriptedProvider(lambda request, index: ProviderUnreachable("p: gone", provider="p"), "p")
    with board(tmp_path, provider=down) as running:
        running.ask("Hi", path="simple")
        page = visit(running, "#/models")
        quick = page.get_by_role("article", name="quick")
        assert "$0.10 in, $0.40 out" in quick.inner_text()
        assert "128,000 tokens" in quick.inner_text()
        assert "Open" in quick.inner_text()
        assert "Not calibrated" in quick.inner_text() and "too few" not in quick.inner_text()
        page.get_by_text("more in the catalogue").click()
        assert page.get_by_role("row", name="smollm2-135m").inner_text().count("$0") == 3
        assert page.get_by_role("row", name="gpt-5.1 ").is_visible()
