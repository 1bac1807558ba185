"""The page of a trace, including hostile texts of models."""

from __future__ import annotations

import dataclasses
import math

import pytest

from odar.traces.record import Record
from odar.types import Candidate, Energy, Query, Step, Token
from support.dashboard import board
from support.traces import make_answer
from support.traffic import traffic


def test_a_trace_shows_decision_candidates_and_calls(visit, busy, hard):
    trace = busy.get(f"/traces/{hard(busy)}").json
    document = trace["document"]
    page = visit(busy, f"#/traces/{trace['id']}")
    assert page.locator("h1").inner_text() == document["query"]["text"]
    for heading in (
        "How the answer came about",
        "The question",
        "Verdict",
        "6 candidates",
        "Ledger",
        "Timeline",
        "Origins",
    ):
        assert page.get_by_role("heading", name=heading, exact=True).is_visible(), heading
    assert page.locator(".story dt").all_inner_texts() == ["start", "fast+slow*5", "answer"]
    assert document["decisions"][0]["reason"] in page.locator(".story").inner_text()
    winner = page.locator(".energies tr.won")
    assert winner.locator("td").first.inner_text() == str(document["verdict"]["winner"] + 1)
    energy = document["candidates"][document["verdict"]["winner"]]["energy"]
    assert f"{energy['free_energy']:.4f}" in winner.inner_text()
    assert page.locator(".candidate").count() == 6
    assert page.locator(".candidate.won").count() == 1
    assert page.locator(".timeline .lane").count() == 6
    assert document["prompts"]["answer"] in page.locator("main").inner_text()


def test_contributions_are_sorted_and_complete(visit, busy, hard):
    page = visit(busy, f"#/traces/{hard(busy)}")
    rows = page.locator(".contributions .row")
    assert rows.count() == 8
    page.get_by_role("button", name="Show all 24 features").click()
    assert rows.count() == 24
    shares = [float(text.replace("−", "-")) for text in rows.locator(".w").all_inner_texts()]
    assert [abs(share) for share in shares] == sorted((abs(share) for share in shares), reverse=True)
    up = [row.locator("i.up").count() == 1 for row in rows.all()]
    assert up == [share >= 0 for share in shares]
    estimate = busy.get(f"/traces/{hard(busy)}").json["document"]["plan"]["estimate"]
    logit = math.log(estimate["difficulty"] / (1 - estimate["difficulty"]))
    assert f"logit +{logit:.3f}" in page.locator(".features").inner_text()


def test_tokens_are_shaded_by_surprisal(visit, busy, hard):
    page = visit(busy, f"#/traces/{hard(busy)}")
    candidate = busy.get(f"/traces/{hard(busy)}").json["document"]["candidates"][1]
    box = page.locator(".candidate").nth(1)
    tokens = box.locator(".t")
    assert tokens.count() == len(candidate["tokens"])
    shades = tokens.evaluate_all("nodes => nodes.map(node => Number(/s(\\d)/.exec(node.className)[1]))")
    bits = [-logprob / math.log(2) for logprob in candidate["logprobs"]]
    assert shades == [sum(b >= limit for limit in (0.1, 0.5, 1, 2, 4)) for b in bits]
    marked = tokens.evaluate_all("nodes => nodes.flatMap((node, i) => node.matches('.scaffold') ? [i] : [])")
    assert marked == candidate["scaffold"]
    assert tokens.last.evaluate("node => node.matches('.control')")
    tokens.nth(3).hover()
    readout = box.locator(".readout")
    assert f"log-prob −{abs(candidate['logprobs'][3]):.4f}" in readout.inner_text()
    box.locator(".tokens").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert '" spider"' in readout.inner_text()
    assert f"surprisal {bits[1]:.2f} bits" in readout.inner_text()


def test_feedback_is_saved(visit, busy, hard):
    page = visit(busy, f"#/traces/{hard(busy)}")
    wrong, right = page.get_by_role("button", name="Wrong"), page.get_by_role("button", name="Right")
    wrong.click()
    page.wait_for_selector("text=Saved")
    assert busy.get(f"/traces/{hard(busy)}").json["feedback"]["correct"] is False
    page.reload()
    page.wait_for_selector("button.bad[aria-pressed=true]")
    right.click()
    page.wait_for_selector("button.good[aria-pressed=true]")
    assert wrong.get_attribute("aria-pressed") == "false"


def test_without_texts_the_figures_are_shown(visit, tmp_path):
    records = [record for record in traffic(60) if not hasattr(record.trace, "error")]
    with board(tmp_path, records, store__content=False) as running:
        trace = running.get("/traces", path="hard", limit=1).json["traces"][0]["id"]
        page = visit(running, f"#/traces/{trace}")
        assert "Stored without its texts" in page.locator("main").inner_text()
        assert page.locator("h1").inner_text().startswith("A question of")
        assert "spider" not in page.content()
        blocks = page.locator(".candidate").first.locator(".blocks .t")
        assert blocks.count() == 16  # 15 words and the end
        blocks.nth(2).hover()
        assert page.locator(".readout").first.inner_text().startswith("token 3 log-prob −")
        assert (
            page.locator(".energies .letter").count() == 6
        )  # which answers were equal is known, their words are not


def test_failed_and_unknown_traces(visit, busy):
    failed = busy.get("/traces", status="error", limit=1).json["traces"][0]["id"]
    page = visit(busy, f"#/traces/{failed}")
    assert "fast: p answered 503" in page.locator(".problem").inner_text()
    assert "failed before a stage was chosen" in page.locator("main").inner_text()
    page.goto(f"{busy.url}/#/traces/feed")
    page.get_by_role("heading", name="No such trace").wait_for()


BIDI = "\u202e\u2066\u200b\u0007\U000e0041"
HOSTILE = f"<img src=x onerror=alert(1)><script>alert(1)</script>&lt;b&gt;'\"`${{1}} {BIDI} javascript:alert(1)"


def hostile_record() -> Record:
    """Return a record with a megabyte of text, 5,000 tokens, markup, bidirectional controls and infinities."""
    tokens = (
        *(
            Token(HOSTILE if i % 500 == 0 else f" w{i}\n" if i % 50 == 0 else f" w{i}", -i / 900)
            for i in range(4990)
        ),
    )
    tokens += (Token("\u202e", None), Token("<s>", -0.1, control=True), *[Token("\ud800", -math.inf)] * 8)
    energy = Energy(math.inf, math.nan, math.inf, -math.inf)
    huge = Candidate(
        Step.SOLVE, HOSTILE, HOSTILE, "".join(t.text for t in tokens), HOSTILE, tokens, None, HOSTILE, energy
    )
    mute = Candidate(
        Step.VERIFY, "slow", "m", HOSTILE + "x" * 1_000_000, HOSTILE + "y" * 1_000_000, (), False, "stop", None
    )
    answer = make_answer("hard", id="e" * 32, degradations=(HOSTILE,), cue=HOSTILE, error=HOSTILE, cost=math.inf)
    trace = dataclasses.replace(
        answer.trace, candidates=(huge, mute) * 3, prompts=(("answer", HOSTILE),), profile=HOSTILE
    )
    return Record(Query(HOSTILE + "z" * 1_000_000), trace, endpoint=HOSTILE, model=HOSTILE)


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_output_is_only_displayed(visit, tmp_path, width):
    with board(tmp_path, [hostile_record()], store__content=True) as running:
        page = visit(running, "#/traces", width=width)
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        assert "⟨U+202E⟩" in page.locator("td.what").inner_text()
        page.goto(f"{running.url}/#/traces/{'e' * 32}")
        page.wait_for_selector(".candidate >> nth=5")
        assert (
            page.evaluate("document.images.length + document.querySelectorAll('main script, main b.x').length") == 0
        )
        shown = page.locator("main").inner_text()
        assert "<script>alert(1)</script>" in shown
        assert not set(BIDI) & set(shown)
        assert page.locator(".candidate").first.locator(".t").count() == 1200  # the rest on request
        page.get_by_role("button", name="Show more of 5,000 tokens").first.click()
        assert page.locator(".candidate").first.locator(".t").count() == 4800
        page.get_by_role("button", name="Show more of 1,0").first.click()
        wide = "[...document.querySelectorAll('main *')].filter(n => n.getBoundingClientRect().right > innerWidth && !n.closest('.scroll, .traces')).map(n => n.outerHTML.slice(0, 120)).slice(0, 5)"
        assert page.evaluate(wide) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
