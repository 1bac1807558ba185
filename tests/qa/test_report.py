from __future__ import annotations

from chaos.environment import Outcome
from chaos.gateway import Footprint
from chaos.load import ANSWER, DEGRADED, ERROR, Asked
from chaos.report import machine, render

ASKED = [
    Asked(1, ANSWER, 0.1, 1.0),
    Asked(2, DEGRADED, 0.3, 2.0),
    Asked(3, ERROR, 2.5, 4.0, 504, "timeout"),
]


def page(*outcomes: Outcome) -> str:
    return render(outcomes, command="make chaos", date="2026-11-16", seconds=90, clients=16, pace=1.5)


def row(text: str, fault: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| **{fault}**"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_the_figures_of_a_fault():
    rest = Footprint(3, 3, 14)
    outcome = Outcome("hang", "never answers", list(ASKED), 0.5, rest, rest, 1200, 30400, 7, 3)
    cells = row(page(outcome), "hang")
    assert cells[1:] == [
        "3", "1", "1", "1", "0.30, 2.50 s", "0.5 s", "nothing", "1,200, 30,400", "7", "3", "held",
    ]  # fmt: skip


def test_a_broken_promise_is_highlighted():
    outcome = Outcome("hang", "never answers", list(ASKED), broken=["question 1: no answer in 4.5 s"])
    text = page(outcome)
    assert row(text, "hang")[-1] == "**broken**"
    assert "Broken: question 1: no answer in 4.5 s" in text


def test_a_skipped_fault_is_marked():
    text = page(Outcome("disk full", "no room", skipped="unshare cannot be run"))
    assert row(text, "disk full")[-1] == "skipped"
    assert "Skipped: unshare cannot be run." in text


def test_the_page_names_date_duration_and_machine():
    text = page(Outcome("hang", "never answers", list(ASKED)))
    assert "Made by `make chaos` on 2026-11-16, in 1.5 minutes" in text
    assert machine() in text
    assert "1 × `timeout`" in text
