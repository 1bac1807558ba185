"""The page of observations: figures, differing answers side by side, settings, and the banner of a fallback."""

from __future__ import annotations

from typing import Any

import pytest

from odar.traces.observations import Observation
from support.dashboard import Board, board
from support.traces import ago, make_record


def observe(running: Board, same: bool, number: int, **fields: Any) -> None:
    row = Observation(
        id=f"{number:032x}", at=ago(), key_id="", kind="number", stages="fast,slow", slow_usd=0.01,
        cascade_usd=0.004, spent_usd=0.001, same=same, slow_same=True, **fields,
    )  # fmt: skip
    running.store.observations.add(row, at_most_differ=0.05)


def test_figures_answers_and_settings(visit: Any, tmp_path: Any) -> None:
    with board(tmp_path, store__content=True) as running:
        for number in range(30):
            observe(running, True, number)
        texts = {"question": "What is <b>6 * 7</b>?", "slow_answer": "It is 42.", "cascade_answer": "Answer: 41"}
        observe(running, False, 99, **texts)
        page = visit(running, "#/observation")
        assert page.locator(".figure .value").all_inner_texts()[:3] == ["60%", "96.8%", "100.0%"]
        article = page.locator("article", has_text="What is <b>6 * 7</b>?")
        assert article.locator(".candidate").all_inner_texts() == ["Slow\nIt is 42.", "Cascade\nAnswer: 41"]
        assert page.locator("svg[aria-label^='Agreement with slow']").count() == 1
        page.get_by_text("odar.toml").click()
        lines = page.locator("details pre").inner_text()
        assert 'model = "deep"' in lines and "at_most_differ = 0.05" in lines and "share = 0.05" in lines
        page.get_by_role("button", name="Copy the settings").click()
        page.get_by_role("status").filter(has_text="Copied").or_(page.get_by_text("Select the lines")).wait_for()


def test_without_observations_and_without_content(visit: Any, tmp_path: Any) -> None:
    with board(tmp_path) as running:
        page = visit(running, "#/observation")
        assert "odar serve --observe" in page.locator("main").inner_text()
        observe(running, False, 1)
        page = visit(running, "#/observation")
        assert "Texts are kept with store.content = true only" in page.locator("main").inner_text()


def test_a_fallback_is_a_banner_on_both_pages(visit: Any, tmp_path: Any) -> None:
    with board(tmp_path, [make_record(id="a" * 32)]) as running:
        for number in range(40):
            observe(running, False, number)
        banner = visit(running, "#/observation").get_by_role("alert")
        assert "odar observe --resume" in banner.inner_text()
        assert "slow answers every request" in visit(running, "#/").locator(".aside").first.inner_text()


@pytest.mark.parametrize("since", ["soon", "0001-01-01T00:00:00+23:59"])
def test_a_wrong_time_is_refused(tmp_path: Any, since: str) -> None:
    with board(tmp_path) as running:
        assert running.get("/observation", since=since).status == 400


def test_a_key_sees_its_own_observations(tmp_path: Any) -> None:
    secrets: dict[str, str] = {}
    with board(tmp_path, keys=[("mine", False), ("boss", True)], secrets=secrets) as running:
        observe(running, False, 1)
        assert running.get("/observation").status == 401
        assert running.get("/observation", secrets["mine"]).json["total"]["questions"] == 0
        assert running.get("/observation", secrets["boss"]).json["total"]["questions"] == 1
