from __future__ import annotations

import csv
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from odar.evals.replay.arrays import load_arrays
from odar.evals.report.figures.pareto import place_labels
from odar.evals.report.findings import Routers, frontier, gather, reliability
from odar.evals.report.gallery import gallery
from odar.evals.report.palette import DAY, NIGHT, PLACEHOLDERS
from odar.evals.report.write import write_report
from odar.evals.router_quality import apgr
from odar.recording.files import open_recording, write_recording
from support.panels import header, synthetic_panel

HOSTILE = "</style><script>alert('x')</script> \" onload=x & <b>"

NAME = "recording.parquet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    synthetic_panel(folder, 240, samples=9)
    return folder


@pytest.fixture(scope="module")
def written(folder):
    findings = write_report(
        str(folder / NAME), folder / "r" / "report.html", "odar eval report <x>", folder / "figures"
    )
    return findings, (folder / "r" / "report.html").read_text(encoding="utf-8")


class Checker(HTMLParser):
    """Every element closed, nothing that runs, nothing fetched."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name != "src", tag
            assert not (name.endswith("href") and not value.startswith("#")), value
            if name == "id":
                self.ids.append(value)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text):
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "script" not in checker.seen
    return checker


def test_the_page_stands_by_itself(written):
    findings, text = written
    checker = check(text)
    assert len(checker.ids) == len(set(checker.ids))
    assert text.count("<svg") == len(gallery(findings))
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert len(text) < 1_000_000


def test_colours_are_left_to_the_page_by_day_and_by_night(written):
    text = written[1]
    assert not [value for value in vars_of(PLACEHOLDERS) if value in text]
    assert "prefers-color-scheme:dark" in text
    assert DAY.css() in text
    assert NIGHT.css() in text
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert drawings.count("var(--ink)") > 50


def vars_of(palette):
    return [getattr(palette, name) for name in palette.__slots__]


@pytest.mark.parametrize(
    "words",
    [
        "Every policy on the same answers", "Accuracy against price", "Paths by group", "How long an answer takes",
        "Accuracy by group", "More samples", "Ablations", "Sweeps", "Oracle gap and safety tax", "Cost stability",
        "Errors by kind", "APGR, 95%", "CPT(50%)", "How well the router chooses", "Is difficulty what it says?",
        "label-free strata", "t over folds", "published only", "Stop Spinning", "p of that gain, McNemar", "statsmodels",
        "odar eval report &lt;x&gt;", "simple", "efficiency",
    ],
)  # fmt: skip
def test_it_holds_everything_it_should(written, words):
    assert words in written[1]


def test_every_figure_is_there_as_png_and_csv_with_the_same_numbers(written, folder):
    findings = written[0]
    for slug, figure in gallery(findings).items():
        assert (folder / "figures" / f"{slug}.png").read_bytes()[:4] == b"\x89PNG"
        with (folder / "figures" / f"{slug}.csv").open(encoding="utf-8") as file:
            rows = list(csv.reader(file))
        assert len(rows) == len(figure.rows(findings)) > 1
    with (folder / "figures" / "pareto.csv").open(encoding="utf-8") as file:
        found = {row["policy"]: float(row["accuracy"]) for row in csv.DictReader(file)}
    assert found["odar"] == pytest.approx(findings.odar.score.mean())
    assert f"{found['odar']:.3f}" in written[1]


def test_whatever_a_panel_holds_is_escaped(tmp_path, folder):
    entries = []
    for entry in open_recording(folder / NAME).items():
        attempts = tuple(replace(a, answer=HOSTILE if a.score == 0 else a.answer) for a in entry.attempts)
        key = entry.key._replace(set=HOSTILE, id=HOSTILE + entry.key.id)
        entries.append(
            replace(
                entry, key=key, query=HOSTILE, gold=[HOSTILE], category=HOSTILE, stratum=HOSTILE, attempts=attempts
            )
        )
    write_recording(tmp_path / NAME, header(9), entries)
    write_report(str(tmp_path / NAME), tmp_path / "r.html", HOSTILE)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    check(text)
    assert "alert(" in text
    assert "<script" not in text


def test_a_tiny_panel_makes_a_page_too(tmp_path):
    synthetic_panel(tmp_path, 6, samples=1)
    write_report(str(tmp_path / NAME), tmp_path / "r.html", "x")
    check((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_the_router_part_uses_the_fields_own_figures(folder):
    findings = gather(load_arrays(folder / NAME))
    routers = findings.routers
    assert isinstance(routers, Routers)
    rows = {row.router: row for row in routers.rows}
    for name, score in routers.scores.items():
        assert rows[name].apgr.value == apgr(score, routers.weak, routers.strong_score)
    assert rows["oracle"].apgr.value > max(rows["length"].apgr.value, rows["difficulty, prior"].apgr.value)


def test_without_a_gap_the_report_says_so(tmp_path):
    path = synthetic_panel(tmp_path, 60)
    entries = [
        replace(
            e, attempts=tuple(replace(a, score=float(a.index == 0 and i == 0)) for i, a in enumerate(e.attempts))
        )
        for e in open_recording(path).items()
    ]
    write_recording(path, header(), entries)
    findings = write_report(str(tmp_path / NAME), tmp_path / "r.html", "x")
    assert "no gap that a router could recover" in str(findings.routers)
    assert "no gap that a router could recover" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_frontier_and_reliability_by_hand():
    assert frontier([(1, 0.5), (1, 0.6), (2, 0.6), (3, 0.7)]) == [1, 3]
    bins = reliability(np.array([0.9, 0.1, 0.2, 0.8]), np.array([1.0, 0.0, 0.0, 0.0]), bins=2)
    assert bins == [(pytest.approx(0.15), 0.0, 2), (pytest.approx(0.85), 0.5, 2)]


def test_labels_of_close_points_do_not_lie_on_one_another():
    spots = [(100.0, 100.0), (103.0, 101.0), (101.0, 99.0)]
    placed = place_labels(spots, ["random matched", "length adaptive", "ODAR"])
    heights = [(side, y + dy) for (_, y), (_, dy, side) in zip(spots, placed, strict=True)]
    for i, (side, y) in enumerate(heights):
        assert all(side != other or abs(y - there) >= 8 for other, there in heights[i + 1 :])
