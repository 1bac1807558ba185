"""Building the site: links out of docs/ become source pages; broken links and fetched files are faults."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from docsite.build import stage
from docsite.check import faults
from docsite.markdown import ROOT, Page
from docsite.source import place, source_page, staged

GUIDE = ROOT / "docs" / "guides" / "gateway.md"


@pytest.mark.parametrize(
    ("written", "on_the_site"),
    [
        ("[e](../../src/odar/engine.py)", "[e](../source/src/odar/engine.py.md)"),
        ("[e](../../src/odar/engine.py#L12)", "[e](../source/src/odar/engine.py.md#__span-0-12)"),
        ("[d](../../Dockerfile)", "[d](../source/Dockerfile.md)"),
        ("[f](../../deploy/kubernetes)", "[f](../source/deploy/kubernetes.md)"),
        ("[o](observe.md#spans)", "[o](observe.md#spans)"),
        ("![p](../images/trace.png)", "![p](../images/trace.png)"),
        ("[w](https://example.com/a)", "[w](https://example.com/a)"),
        ("[h](#models)", "[h](#models)"),
        ("```text\n[e](../../src/odar/engine.py)\n```", "```text\n[e](../../src/odar/engine.py)\n```"),
    ],
)
def test_links_out_of_docs_become_source_pages(written, on_the_site):
    wanted = {}
    assert staged(written, GUIDE, wanted) == on_the_site
    assert all(name == place(file) for file, name in wanted.items())


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("Words:\n- a\n- b\n", "Words:\n\n- a\n- b\n"),
        ("- a\n  more\n- b\n", "- a\n  more\n- b\n"),
        ("Words\n2. is no list\n", "Words\n2. is no list\n"),
        ("1. a\n\n   | t |\n   |---|\n2. b\n", "1. a\n\n    | t |\n    |---|\n\n2. b\n"),
        ("| a |\n|---|\n- b\n", "| a |\n|---|\n- b\n"),
    ],
)
def test_lists_are_normalised_for_the_generator(written, understood):
    assert staged(written, GUIDE, {}) == understood


def test_a_source_page_shows_the_file():
    page = source_page(ROOT / "src" / "odar" / "registry.py")
    assert page.startswith("---\ntitle: src/odar/registry.py\n") and "class Registry(Generic[T]):" in page
    assert "exclude: true" in page  # of the search


def test_a_source_page_may_contain_fences(tmp_path, monkeypatch):
    monkeypatch.setattr("docsite.source.ROOT", tmp_path)
    (tmp_path / "a.md").write_text("````\n```\n````\n")
    page = source_page(tmp_path / "a.md")
    (tmp_path / "shown.md").write_text(page)
    (block,) = Page(tmp_path / "shown.md").blocks
    assert block.text.strip() == "````\n```\n````"


def test_a_folder_page_lists_its_files():
    assert "- `odar.json`" in source_page(ROOT / "deploy" / "grafana" / "dashboards")


def test_a_large_file_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("docsite.source.ROOT", tmp_path)
    (tmp_path / "large.txt").write_text("x" * 300_000)
    assert "300,000 bytes" in source_page(tmp_path / "large.txt")


def test_the_staged_site_has_no_outgoing_file_link(tmp_path, monkeypatch):
    monkeypatch.setattr("docsite.build.STAGE", tmp_path / "docs")
    stage()
    for file in (tmp_path / "docs").rglob("*.md"):
        if "source" in file.relative_to(tmp_path / "docs").parts:
            continue
        for link in Page(file).links:
            target = link.target.partition("#")[0]
            if target and ":" not in target:
                assert (file.parent / target).resolve().is_relative_to(tmp_path / "docs"), (file, link.target)
                assert (file.parent / target).exists(), (file, link.target)
    equations = (tmp_path / "docs" / "reference" / "equations.md").read_text()
    assert "(../source/src/odar/policy/energy.py.md#__span-0-" in equations


def write_site(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_a_valid_site_has_no_fault(tmp_path):
    write_site(
        tmp_path,
        index_html='<h1 id="top">A</h1><a href="b.html#here">b</a><a href="#top">t</a><a href="https://e.org">e</a>'
        '<link rel="stylesheet" href="s.css"><link rel="canonical" href="https://e.org/"><img src="data:,">',
        b_html='<p id="here"></p><a href="index.html"></a><a href="mailto:x@e.org"></a>',
        s_css="body { background: url(data:x) }",
    )
    assert faults(tmp_path) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="gone.html">', "index.html: gone.html leads nowhere"),
        ('<a href="#gone">', "index.html: #gone leads nowhere"),
        ('<script src="https://cdn.example/x.js"></script>', "index.html: fetches https://cdn.example/x.js"),
        ('<script src="//cdn.example/x.js"></script>', "index.html: fetches //cdn.example/x.js"),
        ('<link rel="preconnect" href="https://fonts.example">', "index.html: fetches https://fonts.example"),
        ('<img src="gone.png">', "index.html: gone.png leads nowhere"),
        ("<p>Tried:\n- this</p>", "index.html: '<p>Tried:\\n- ' was not understood"),
        ("<p>a | b\n|---|---|</p>", "index.html: '<p>a | b\\n|---' was not understood"),
    ],
)
def test_a_fault_is_named(tmp_path, html, fault):
    write_site(tmp_path, index_html=html)
    assert faults(tmp_path) == [fault]


def test_a_style_sheet_that_fetches_is_a_fault(tmp_path):
    write_site(tmp_path, index_html="", s_css="@import 'https://fonts.example/x.css';")
    assert faults(tmp_path) == ["s.css: fetches from fonts.example/x.css"]


def test_an_empty_site_is_a_fault(tmp_path):
    assert faults(tmp_path) == [f"{tmp_path} holds no page"]


def test_the_path_of_a_source_page():
    assert place(ROOT / "src" / "odar" / "engine.py") == PurePosixPath("source/src/odar/engine.py.md")
