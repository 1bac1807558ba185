"""The report: one self-contained page with every table, every figure and its data."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from odar.lab.recording.files import open_recording, write_recording
from odar.lab.replay.table import load_tables
from odar.lab.report.findings import replay_recordings
from odar.lab.report.page import exhibits, to_json, write_report
from support.panels import header, synthetic_panel

HOSTILE = "</style><script>alert('x')</script> \" onload=x & <b>"
NAME = "recording.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    synthetic_panel(folder, 120, samples=9)
    return folder


@pytest.fixture(scope="module")
def written(folder):
    parts = replay_recordings(load_tables([folder / NAME]))
    write_report(parts, folder / "r" / "report.html", "odar eval report <x>")
    return parts[0], (folder / "r" / "report.html").read_text(encoding="utf-8")


def written_to(page, *recordings):
    parts = replay_recordings(load_tables(recordings))
    write_report(parts, page, HOSTILE)
    return parts, page.read_text(encoding="utf-8")


class Checker(HTMLParser):
    """Check that every element is closed, and that nothing is executed or fetched."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            assert name != "src", tag
            assert not (name.endswith("href") and not value.startswith("#")), value
            if name == "id":
                self.ids.append(value)
            elif name == "href" and value.startswith("#"):
                self.targets.append(value[1:])
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


def test_the_page_is_self_contained(written):
    findings, text = written
    checker = check(text)
    assert len(checker.ids) == len(set(checker.ids))
    assert set(checker.targets) <= set(checker.ids)
    drawn = [each for section in exhibits(findings)[0].values() for each in section if each.draw]
    assert text.count("<svg") == len(drawn) > 8
    assert max(each.size[0] for each in drawn) < 5, "a phone is as wide as five inches"
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert len(text) < 1_000_000


def test_the_page_has_every_table_and_figure(written):
    findings, text = written
    sections, reasons = exhibits(findings)
    assert all(reason in html.unescape(text) for reason in reasons)
    shown = html.unescape(text)
    for section, parts in sections.items():
        assert section in shown
        for each in parts:
            assert each.title in shown, each.slug
    assert "odar eval report <x>" in shown  # the command that made it
    slugs = {each.slug for parts in sections.values() for each in parts}
    assert slugs >= {
        *("main", "policies", "published", "pareto-calls", "mix", "latency", "accuracy", "best-of-n", "ablations"),
        *("oracle", "stability", "errors", "routers", "strata", "attacks", "features", "datasets"),
    }


def test_every_table_is_available_as_json(written):
    (part,) = json.loads(to_json([written[0]]))
    assert part["items"] == 120
    assert {row["benchmark"] for row in part["tables"]["main"]} > {"alpha", "beta", "gamma"}
    ours = part["tables"]["policies"][0]
    assert ours["accuracy"] == pytest.approx(written[0].odar.score.mean())
    assert ours["accuracy low"] < ours["accuracy"] < ours["accuracy high"]
    assert f"{ours['accuracy']:.3f}" in written[1]


def test_content_of_recordings_is_escaped(tmp_path, folder):
    entries = []
    for entry in list(open_recording(folder / NAME).items())[:20]:
        attempts = tuple(replace(a, answer=HOSTILE if a.score == 0 else a.answer) for a in entry.attempts)
        key = entry.key._replace(set=HOSTILE, id=HOSTILE + entry.key.id)
        entries.append(
            replace(
                entry, key=key, query=HOSTILE, gold=[HOSTILE], category=HOSTILE, stratum=HOSTILE, attempts=attempts
            )
        )
    write_recording(tmp_path / NAME, header(9), entries)
    _, text = written_to(tmp_path / "r.html", tmp_path / NAME)
    check(text)
    assert "alert(" in text
    assert "<script" not in text


def test_several_recordings_make_several_parts_with_distinct_ids(tmp_path):
    for name, benchmark, samples in (("a", "alpha", 2), ("b", "delta", 1)):
        (tmp_path / name).mkdir()
        synthetic_panel(tmp_path / name, 6, samples=samples, benchmarks=((benchmark, "Coding"),))
    parts, text = written_to(tmp_path / "r.html", tmp_path / "a" / NAME, tmp_path / "b" / NAME)
    checker = check(text)
    assert [list(part.benchmarks)[-1] for part in parts] == ["alpha", "delta"]
    assert len(checker.ids) == len(set(checker.ids))
