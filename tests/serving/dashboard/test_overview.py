"""The overview: figures equal those of the store."""

from __future__ import annotations

import pytest


def test_the_figures_equal_those_of_the_store(visit, busy):
    page = visit(busy)
    view = busy.get("/overview").json
    assert page.locator(".figure .value").nth(0).inner_text() == "300"
    assert page.locator(".figure .value").nth(1).inner_text() == f"{view['calls_per_query']:.2f}"
    assert f"{view['cost_unknown']} questions of unknown cost" in page.locator(".figure").nth(2).inner_text()
    assert "of 20 marked" in page.locator(".figure").nth(3).inner_text()
    rows = page.locator("section", has_text="Paths").locator("tbody tr").all_inner_texts()
    assert len(rows) == 4
    assert page.locator("svg[aria-label^='Questions over time: 300']").count() == 1


def test_savings_are_shown(visit, busy):
    page = visit(busy)
    found = busy.get("/overview").json["savings"]
    card = page.locator("section.card", has=page.get_by_role("heading", name="Savings"))
    values = card.locator(".value").all_inner_texts()
    assert [float(value.strip("$")) for value in values] == [
        pytest.approx(figure, abs=0.006) for figure in (found["cost_usd"], found["always_slow_usd"])
    ]
    rows = card.locator("tbody tr").all_inner_texts()
    assert f"{found['calls_saved']:,.0f}".replace("-", "−") in rows[0]
    assert f"changed {100 * found['changed']:.0f}% of the" in card.inner_text()
    assert f"{found['unpriced']} questions have an unknown cost and are left out" in card.inner_text()


def test_a_warning_is_shown_at_the_top(visit, busy):
    page = visit(busy)
    (warning,) = busy.get("/overview").json["warnings"]
    assert page.locator(".aside").inner_text() == warning
    assert "of always asking the slow model" in warning


def test_stages_and_difficulty_are_shown(visit, busy):
    page = visit(busy)
    view = busy.get("/overview").json
    total = sum(view["stages"].values())
    card = page.locator("section.card", has=page.get_by_role("heading", name="Stages"))
    names = card.locator(".name").all_inner_texts()
    assert names == [stages.replace(",", ", ") for stages in view["stages"]]
    shares = card.locator(".value").all_inner_texts()
    assert shares == [f"{100 * count / total:.0f}%" for count in view["stages"].values()]
    card = page.locator("section.card", has=page.get_by_role("heading", name="Difficulty"))
    tenths = [int(text) for text in card.locator(".tenths .r").all_inner_texts()]
    bins = [sum(column) for column in zip(*view["difficulty"]["routed"].values(), strict=True)]
    assert tenths == [sum(bins[10 * i : 10 * i + 10]) for i in range(10)]


def test_a_time_range_is_in_the_address_and_survives_a_reload(visit, busy):
    page = visit(busy)
    page.get_by_role("radio", name="1 h").check()
    page.wait_for_url("**/#/?range=1h")
    page.locator("svg[aria-label*='minutes']").wait_for()
    shown = page.locator(".figure .value").first.inner_text()
    page.reload()
    page.wait_for_selector(".figure .value")
    assert page.get_by_role("radio", name="1 h").is_checked()
    assert page.locator(".figure .value").first.inner_text() == shown


def test_an_empty_store_shows_the_first_steps(visit, empty):
    page = visit(empty)
    assert page.get_by_role("heading", name="No questions in the last 24 h").is_visible()
    assert f"curl {empty.url}/v1/chat/completions" in page.locator("pre").inner_text()
    page.get_by_role("main").get_by_role("link", name="playground").click()
    page.wait_for_selector("textarea")


def test_a_store_error_is_shown_and_retried(visit, busy):
    page = visit(busy)
    page.route(
        "**/api/overview*", lambda route: route.fulfill(status=400, json={"error": {"message": "disk is full"}})
    )
    page.get_by_role("radio", name="7 d").check()
    assert page.get_by_role("alert").inner_text() == "disk is full"
    page.unroute("**/api/overview*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".figure")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("hash_", ["#/", "#/traces", "#/models", "#/observation", "#/playground"])
def test_every_page_fits_a_phone(visit, busy, hash_, scheme):
    page = visit(busy, hash_, width=390, height=844, color_scheme=scheme, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    beyond = page.evaluate(
        """() => [...document.querySelectorAll(".card")].flatMap((card) => [...card.querySelectorAll("*")]
          .filter((node) => !node.closest(".scroll") && node.getBoundingClientRect().right > card.getBoundingClientRect().right)
          .map((node) => node.outerHTML.slice(0, 80)))"""
    )
    assert beyond == []
