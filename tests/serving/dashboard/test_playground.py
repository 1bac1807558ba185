"""The playground: a question and its trace, stopping, errors; once with the local model."""

from __future__ import annotations

import math

import pytest

from odar.providers.weights import ensure_weights, find_weights
from support.dashboard import board
from support.scripted import ScriptedProvider, completion
from support.waiting import wait_until


def ask(page, question, path="Any"):
    page.get_by_label("Question").fill(question)
    page.get_by_role("radio", name=path).check()
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Ask").click()


def test_the_trace_is_shown_even_if_texts_are_not_stored(visit, tmp_path):
    with board(tmp_path, store__content=False) as running:
        page = visit(running, "#/playground")
        ask(page, "What is two and two?", "Medium")
        page.wait_for_selector(".candidate")
        assert page.locator(".answer").inner_text() == "It is four."
        assert page.locator(".candidate").count() == 2
        assert page.locator(".candidate").first.locator(".t").all_inner_texts() == ["It", " is", " four."]
        assert "keeps its figures only" in page.locator(".head").inner_text()
        page.get_by_role("button", name="Right").click()
        page.wait_for_selector("text=Saved")
        assert running.get("/overview").json["feedback"] == {"right": 1, "wrong": 0}
        trace = running.get("/traces").json["traces"][0]["id"]
        page.goto(f"{running.url}/#/traces/{trace}")
        page.wait_for_selector(".blocks")
        assert "four" not in page.content()


def test_ctrl_enter_asks_and_the_question_survives_navigation(visit, busy):
    page = visit(busy, "#/playground")
    page.get_by_label("Question").fill("Is Paris the capital of France?")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".candidate")
    page.get_by_role("link", name="Models").click()
    page.wait_for_selector(".model")
    page.get_by_role("link", name="Playground").click()
    assert page.get_by_label("Question").input_value() == "Is Paris the capital of France?"


def test_a_limit_error_is_shown(visit, busy):
    page = visit(busy, "#/playground")
    page.get_by_label("Most it may cost").fill("0")
    ask(page, "Why?", "Hard")
    assert "max_cost_usd = $0" in page.get_by_role("alert").inner_text()
    page.get_by_label("Question").fill("   ")
    page.get_by_role("button", name="Ask").click()
    assert page.get_by_label("Question").evaluate("node => node === document.activeElement")


def test_stop_cancels_the_question(visit, tmp_path):
    slow = ScriptedProvider(lambda request, index: [completion("At last.")] * request.n, "p", delay_s=30)
    with board(tmp_path, provider=slow) as running:
        page = visit(running, "#/playground")
        ask(page, "Why?", "Simple")
        page.get_by_role("button", name="Stop").click()
        assert "has been cancelled" in page.get_by_role("alert").inner_text()
        page.wait_for_timeout(300)
        assert slow.in_flight == 0
        assert page.get_by_role("button", name="Ask").is_enabled()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A gateway with the local model."""
    ensure_weights(find_weights("smollm2-135m"))
    with board(
        tmp_path_factory.mktemp("real"),
        local=True,
        local__threads=1,
        fast__max_tokens=24,
        fast__timeout_s=500,
        slow__max_tokens=24,
        slow__timeout_s=500,
        limits__max_tokens=24,
        limits__deadline_s=500,
        store__content=True,
    ) as running:
        yield running


def test_the_tokens_of_the_local_model_are_shown(visit, real):
    page = visit(real, "#/playground")
    page.context.set_default_timeout(500_000)
    ask(page, "How many legs does a spider have?", "Simple")
    page.wait_for_selector(".candidate")
    wait_until(lambda: real.get("/traces").json["traces"])
    trace = real.get("/traces").json["traces"][0]["id"]
    document = real.get(f"/traces/{trace}").json["document"]
    assert len(document["candidates"]) == 1
    for place in ("#/playground", f"#/traces/{trace}"):  # from the response, then from the store
        page.goto(f"{real.url}/{place}") if place != "#/playground" else None
        page.wait_for_selector(".candidate")
        for index, candidate in enumerate(document["candidates"]):
            box = page.locator(".candidate").nth(index)
            tokens = box.locator(".t")
            assert tokens.count() == len(candidate["tokens"]) > 3
            shades = tokens.evaluate_all("nodes => nodes.map(node => Number(/s(\\d)/.exec(node.className)[1]))")
            bits = [-logprob / math.log(2) for logprob in candidate["logprobs"]]
            assert shades == [sum(b >= limit for limit in (0.1, 0.5, 1, 2, 4)) for b in bits]
            assert len(set(shades)) > 2, "a real model is not equally sure of everything"
            words = tokens.evaluate_all(
                "nodes => nodes.filter(n => !n.matches('.control')).map(n => n.textContent.replaceAll('↵', ''))"
            )
            assert "".join(words) == candidate["text"]
            energy = candidate["energy"]
            row = page.locator(".energies tbody tr").nth(index).inner_text()
            assert f"{energy['energy']:.4f}" in row
            assert f"{energy['free_energy']:.4f}" in row
