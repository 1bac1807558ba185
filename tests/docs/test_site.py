"""Building the site: links out of docs/ become source pages; broken links and fetched files are faults."""

from __future__ import annotations

import pytest
from docsite.build import stage
from docsite.markdown import ROOT, Page
from docsite.source import place, staged

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
