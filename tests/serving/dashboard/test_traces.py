"""The list of traces: updates, filters, pages and keyboard."""

from __future__ import annotations

from support.dashboard import board
from support.traces import make_record


def ids(page):
    return page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.id)")


def test_rows_are_newest_first_and_paged(visit, busy):
    page = visit(busy, "#/traces")
    first = ids(page)
    assert first == [trace["id"] for trace in busy.get("/traces").json["traces"]]
    page.get_by_role("button", name="Older").click()
    page.get_by_text("Page 2,").wait_for()
    second = ids(page)
    assert len(second) == 50
    assert not set(first) & set(second)
    page.get_by_role("button", name="Newer").click()
    page.get_by_text("Page 1,").wait_for()
    assert ids(page) == first


def test_filters_are_kept_in_the_address(visit, busy):
    page = visit(busy, "#/traces")
    page.get_by_label("Path", exact=True).select_option("hard")
    page.wait_for_url("**/#/traces?path=hard")
    page.wait_for_selector("tbody tr")
    page.get_by_label("Least difficulty").fill("0.8")
    page.get_by_label("Least difficulty").press("Enter")
    page.wait_for_url("**min_difficulty=0.8")
    page.wait_for_selector("tbody tr")
    wanted = busy.get("/traces", path="hard", min_difficulty=0.8).json["traces"]
    assert ids(page) == [trace["id"] for trace in wanted]
    page.go_back()
    page.wait_for_url("**/#/traces?path=hard")


def test_search_finds_texts_and_ids(visit, busy, hard):
    page = visit(busy, "#/traces")
    page.keyboard.press("/")
    page.keyboard.type("planar")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=planar")
    page.wait_for_selector("main[aria-busy=false]")
    assert all("planar" in text for text in page.locator("td.what").all_inner_texts())
    page.keyboard.press("/")
    page.get_by_label("Search").fill(hard(busy))
    page.keyboard.press("Enter")
    page.get_by_text("Page 1, 1 trace").wait_for()
    assert ids(page) == [hard(busy)]
    page.get_by_label("Search").fill("no such words")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_selector("tbody tr:nth-child(50)")


def test_rows_can_be_selected_and_opened_by_keyboard(visit, busy):
    page = visit(busy, "#/traces")
    rows = ids(page)
    page.locator("tbody tr").first.focus()
    for key in ("ArrowDown", "j", "ArrowDown", "k"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.id") == rows[2]
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.id") == rows[-1]
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#/traces/{rows[0]}")


def test_new_traces_appear_until_paused(visit, tmp_path):
    with board(tmp_path, [make_record(id="a" * 32)]) as running:
        page = visit(running, "#/traces")
        assert ids(page) == ["a" * 32]
        page.locator("tbody tr").first.focus()
        running.store.put(make_record(id="b" * 32))
        page.wait_for_selector("tbody tr:nth-child(2)")
        assert ids(page) == ["b" * 32, "a" * 32]
        assert page.evaluate("document.activeElement.dataset.id") == "a" * 32  # the row in hand stays in hand
        page.keyboard.press("p")
        assert page.get_by_role("button", name="Paused").is_visible()
        running.store.put(make_record(id="c" * 32))
        page.wait_for_timeout(2500)
        assert len(ids(page)) == 2
        page.get_by_role("button", name="Paused").click()
        page.wait_for_selector("tbody tr:nth-child(3)")


def test_missing_texts_are_explained(visit, tmp_path):
    with board(tmp_path, [make_record("What is 2 plus 2?")], store__content=False) as running:
        page = visit(running, "#/traces?q=words")
        assert "Texts are not kept here" in page.locator(".empty").inner_text()
        page.get_by_role("button", name="Clear filters").click()
        assert page.locator("td.what").inner_text() == "17 characters"
