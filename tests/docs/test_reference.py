"""Generated pages and figures are up to date; every section of the specification is in the code."""

from __future__ import annotations

import re

import pytest
from docsite.cli_page import cli_page
from docsite.equations import IN_TESTS_ONLY, NOT_IN_CODE, TITLES, mentions, places, specified
from docsite.figures import FIGURES, digest
from docsite.http_page import http_page
from docsite.markdown import ROOT
from docsite.plots import FOLDER, drawn_from
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
