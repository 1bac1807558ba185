from __future__ import annotations

from support.panels import synthetic_panel


def test_report_writes_a_page_and_its_figures(odar, tmp_path):
    synthetic_panel(tmp_path, 30)
    result = odar(
        "eval", "report", str(tmp_path), "--out", str(tmp_path / "a" / "r.html"), "--figures", str(tmp_path / "f")
    )
    assert (result.code, "30 items" in result.out) == (0, True)
    assert "<!doctype html>" in (tmp_path / "a" / "r.html").read_text(encoding="utf-8")
    assert (tmp_path / "f" / "pareto.png").exists()


def test_no_panel_is_said(odar, tmp_path):
    result = odar("eval", "report", str(tmp_path))
    assert (result.code, "holds no panel" in result.err) == (2, True)
