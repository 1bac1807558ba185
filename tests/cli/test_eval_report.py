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


def test_a_place_that_cannot_be_written_is_one_clear_line(odar, tmp_path):
    synthetic_panel(tmp_path, 30)
    (tmp_path / "file").write_text("")
    for options in (
        ("--out", tmp_path / "file" / "r.html"),
        ("--out", tmp_path / "r.html", "--figures", tmp_path / "file"),
    ):
        result = odar("eval", "report", str(tmp_path), *map(str, options))
        assert result.code == 2
        assert result.err.startswith("odar: the report cannot be written: ")
        assert len(result.err.strip().splitlines()) == 1


def test_a_damaged_panel_is_named(odar, tmp_path):
    (tmp_path / "panel.parquet").write_bytes(b"PAR1 and then something else")
    for command in ("report", "replay"):
        result = odar("eval", command, str(tmp_path))
        assert (result.code, result.out) == (2, "")
        assert "panel.parquet cannot be read as a panel" in result.err
