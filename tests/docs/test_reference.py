"""Generated pages and figures are up to date; every section of the specification is in the code."""

from __future__ import annotations

import re

import pytest
from docsite.cli_page import cli_page
from docsite.equations import IN_TESTS_ONLY, NOT_IN_CODE, TITLES, equations_page, mentions, places, specified
from docsite.figures import FIGURES, digest
from docsite.http_page import http_page
from docsite.markdown import ROOT
from docsite.plots import FOLDER, drawn_from, write_plots
from docsite.python_page import python_page
from docsite.reference import PAGES, generated
from docsite.settings_page import settings_page

import odar
from odar.cli.main import COMMANDS
from odar.config import environment_name, iter_settings
from odar.serving.openapi import openapi_document

REMEDY = "run: make docs-reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name):
    assert (ROOT / "docs" / "reference" / f"{name}.md").read_text() == generated(name), REMEDY


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_up_to_date(name):
    svg = (FOLDER / f"{name}.svg").read_text()
    assert drawn_from(svg) == digest(FIGURES[name]()), REMEDY
    assert len(svg) < 60_000
    assert not re.search(r'(?:href|src)="https?:', svg)


def test_a_figure_with_other_numbers_is_drawn_again(tmp_path, monkeypatch):
    monkeypatch.setattr("docsite.plots.FOLDER", tmp_path / "concepts")
    monkeypatch.setattr("docsite.plots.ROOT", tmp_path)
    data = FIGURES["difficulty"]()
    monkeypatch.setattr("docsite.plots.FIGURES", {"difficulty": lambda: data})
    assert list(write_plots()) == ["concepts/difficulty.svg"]
    first = (tmp_path / "concepts" / "difficulty.svg").read_text()
    assert list(write_plots()) == []
    data["difficulty"]["Is Paris the capital of France?"] = 0.5
    assert list(write_plots()) == ["concepts/difficulty.svg"]
    assert drawn_from(first) != drawn_from((tmp_path / "concepts" / "difficulty.svg").read_text())
    assert drawn_from("<svg/>") == ""


def test_every_command_is_in_the_reference():
    page = cli_page()
    assert all(f"## odar {name}\n" in page for name in COMMANDS)
    assert "### odar eval replay" in page and "--max-cost USD" in page


def test_every_setting_is_in_the_reference():
    page = settings_page()
    assert [name for path, _, _ in iter_settings() if f"`{(name := environment_name(path))}`" not in page] == []
    for section in ("[providers.NAME]", "[models.NAME]", "[models.NAME.price]"):
        assert f"## `{section}`" in page


def test_every_address_is_in_the_reference():
    page = http_page()
    assert all(f"{path}`" in page for path in openapi_document()["paths"])
    assert "| `max_cost_usd` |" in page


def test_every_public_name_is_in_the_reference():
    page = python_page()
    assert all(f"### odar.{name}\n" in page for name in odar.__all__)
    assert "ForwardRef" not in page and "<factory>" not in page and " object at 0x" not in page


def test_every_number_of_the_specification_is_known():
    assert set(TITLES) == specified()


def test_every_number_that_the_code_cites_is_in_the_specification():
    page = (ROOT / "docs/specification.md").read_text("utf-8")
    known = specified() | set(re.findall(r"(?m)^## (\d+)\.", page))
    cited = {
        (number, str(file.relative_to(ROOT)), line)
        for file in (ROOT / "src").rglob("*")
        if file.suffix in (".py", ".toml", ".html", ".js", ".txt", ".md")
        for number, line in mentions(file.read_text("utf-8"))
    }
    assert len(cited) > 200
    assert [each for each in sorted(cited) if each[0] not in known] == []


@pytest.mark.parametrize("number", TITLES)
def test_a_number_of_the_specification_is_in_the_code(number):
    assert bool(places()[number]) != (number in NOT_IN_CODE), (
        f"SPEC {number}: mention it in the code, or in NOT_IN_CODE"
    )


@pytest.mark.parametrize("number", [n for n, (_, formula) in TITLES.items() if formula and n not in IN_TESTS_ONLY])
def test_an_equation_is_in_a_function_that_computes_it(number):
    in_code = [place for place in places()[number] if place.file.endswith(".py") and place.symbol]
    assert in_code, f"SPEC {number} is mentioned, but by no function or class"


def test_listed_places_mention_their_number():
    for number, found in places().items():
        for place in found:
            line = (ROOT / place.file).read_text().splitlines()[place.line - 1]
            assert number in [n for n, _ in mentions(line)], place


def test_line_numbers_are_only_on_the_site():
    committed, on_site = equations_page(lines=False), equations_page(lines=True)
    assert "#L" not in committed and "policy/energy.py:" in on_site
    assert committed.count("\n") == on_site.count("\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("SPEC 5.3", ["5.3"]),
        ("(SPEC 5.7, 5.9, 5.10)", ["5.7", "5.9", "5.10"]),
        ("SPEC 5.10b and 5.11; SPEC 1", ["5.10b", "5.11", "1"]),
        ("spec 5.3, or 5.4 alone", []),
    ],
)
def test_mentions_of_the_specification_are_found(text, found):
    assert [number for number, _ in mentions(text)] == found
