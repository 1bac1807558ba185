"""The numbers behind each figure and table, on a panel small enough to work out by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.bootstrap import Interval
from odar.errors import InputError
from odar.evals.replay.arrays import load_arrays
from odar.evals.report import tables
from odar.evals.report.draw import to_svg
from odar.evals.report.figures import ablations, curves, groups, pareto, routers, running
from odar.evals.report.figures.common import label
from odar.evals.report.findings import gather
from odar.evals.report.gallery import gallery
from odar.evals.report.markup import Markup, esc, interval, number, p_value, table, tag
from support.panels import handmade_panel, synthetic_panel

ANSWERS = [
    ["4", "4", "4", "4", "4", "4", "4"],  # easy: everybody is right
    ["4", "5", "5", "5", "5", "5", "5"],  # only the fast agent is right
    ["5", "4", "5", "5", "5", "5", "5"],  # only the verifier is
    ["5", "5", "4", "4", "4", "4", "4"],  # only the samples are
    ["5", "5", "5", "5", "5", "5", "5"],  # nobody is
]
DIFFICULTY = [0.1, 0.1, 0.5, 0.9, 0.1]
"""Simple, Simple, Medium, Hard, Simple."""


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hand")
    energies = [[0.5, 0.1, *[0.2] * 5]] * 5
    return gather(load_arrays(handmade_panel(folder, ANSWERS, energies, difficulty=DIFFICULTY)))


def rows_by_name(rows):
    return {row[0]: row[1:] for row in rows[1:]}


def test_odar_takes_the_paths_it_should(findings):
    assert findings.odar.path.tolist() == [0, 0, 1, 2, 0]
    assert findings.odar.score.tolist() == [1, 1, 1, 1, 0]


def test_accuracy_against_calls_and_money(findings):
    rows = rows_by_name(pareto.pareto_rows(findings))
    accuracy, calls, money = rows["odar"]
    assert (accuracy, calls) == (0.8, findings.odar.calls.mean())
    assert money == pytest.approx(1000 * findings.odar.cost.mean())
    assert rows["single-fast"] == (0.4, 1.0, pytest.approx(1100))
    assert rows["oracle-router"][0] == 0.8
    assert "oracle" not in rows


def test_without_prices_tokens_take_the_place_of_money(findings):
    free = {name: replace(each, cost=np.zeros(5)) for name, each in findings.outcomes.items()}
    assert pareto.pareto_rows(replace(findings, outcomes=free))[0] == ("policy", "accuracy", "calls", "tokens")
    unknown = {name: replace(each, tokens=np.full(5, np.nan)) for name, each in free.items()}
    assert pareto.pareto_rows(replace(findings, outcomes=unknown))[0] == ("policy", "accuracy", "calls")


def test_paths_by_group(findings):
    rows = rows_by_name(groups.mix_rows(findings))
    assert rows == {"all": pytest.approx((0.6, 0.2, 0.2)), "s": pytest.approx((0.6, 0.2, 0.2))}


def test_groups_by_policy(findings):
    rows = rows_by_name(groups.radar_rows(findings))
    assert rows == {"odar": (0.8,), "single-fast": (0.4,), "single-slow": (0.4,), "always-hard": (0.4,)}


def test_an_ablation_is_a_change_against_odar(findings):
    rows = rows_by_name(ablations.ablation_rows(findings))
    assert rows["no slow agent"] == (pytest.approx(-0.4), pytest.approx(-0.4), 1.0)
    change, overall, calls = rows["no estimator: always Hard"]
    assert change == overall == pytest.approx(-0.4)
    assert calls >= 4
    assert set(rows) <= set(ablations.ABLATIONS.values())


def test_more_samples_and_sweeps(findings):
    head, *rows = curves.curve_rows(findings)
    assert (head, [row[0] for row in rows]) == (("n", "odar", "self-consistency", "best-of-n"), [1, 3, 5])
    assert all(row[2:] == (0.4, 0.4) for row in rows)
    swept = curves.sweep_rows(findings)[1:]
    assert {row[0] for row in swept} == {"beta", "lambda", "tau"}
    assert len([row for row in swept if row[0] == "tau"]) == 9
    assert ("beta", "beta=inf") in {row[:2] for row in swept}
    assert all(0 <= row[2] <= 1 <= row[3] for row in swept)


def test_every_item_has_its_time_and_every_error_its_kind(findings):
    rows = running.latency_rows(findings)[1:]
    assert [path for path, _ in rows] == ["Simple", "Simple", "Medium", "Hard", "Simple"]
    assert rows[0][1] == 1.0
    assert rows_by_name(running.error_rows(findings)) == {
        "E1": (0,), "E2": (0,), "E3": (0,), "E4": (0,), "E5": (1,), "E6": (0,),
    }  # fmt: skip


def test_reliability_has_every_item_once(findings):
    rows = routers.reliability_rows(findings)[1:]
    for estimate in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == estimate]
        assert sum(row[3] for row in mine) == 5
        assert [row[1] for row in mine] == sorted(row[1] for row in mine)


def test_no_gap_is_no_router_figure(findings):
    assert isinstance(findings.routers, str)  # samples alone are no better than the fast agent here
    assert routers.router_rows(findings) == [("share", "gap recovered")]
    assert "router" not in gallery(findings)


def test_the_router_curve_begins_at_nothing_and_ends_at_everything(tmp_path):
    found = gather(load_arrays(synthetic_panel(tmp_path, 90)))
    head, *rows = routers.router_rows(found)
    assert head[0] == "share"
    assert rows[0][1:] == pytest.approx([0.0] * (len(head) - 1), abs=1e-9)
    assert rows[-1][1:] == pytest.approx([1.0] * (len(head) - 1))


def cells(markup):
    """Rows of a table as plain text."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", markup)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows
    ]


def test_the_main_table_by_hand(findings):
    head, *rows = cells(tables.main_table(findings))
    assert head[:2] == ["policy", "accuracy, 95%"]
    assert "$/1000" in head
    mine = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert mine["ODAR"]["S / M / H"] == "60 / 20 / 20"
    assert mine["ODAR"]["gain on ODAR, 95%"] == "–"
    assert mine["single fast"]["calls"] == "1.00"
    assert mine["single fast"]["gain on ODAR, 95%"].startswith("−0.400")
    assert mine["single fast"]["efficiency"] == "–"
    assert mine["ensemble"]["S / M / H"] == "–"


def test_the_oracle_table_by_hand(findings):
    _, everything, _ = cells(tables.oracle_table(findings))
    assert everything[:6] == ["all", "0.800", "0.800", "0.000", "100.0%", "0.800"]


def test_unknown_costs_are_said(findings):
    unknown = replace(findings.main[0], cost_usd=None)
    priced = replace(findings.main[1], cost_usd=0.5)
    shown = tables.main_table(replace(findings, main=[unknown, priced]))
    assert "unknown" in shown
    assert "500.000" in shown


def test_cost_stability_shows_the_worst_item(findings):
    rows = {row[0]: row[1:] for row in cells(tables.stability_table(findings))[1:]}
    assert rows["single fast"][:3] == ["1.0", "1.0", "1.0"]
    assert float(rows["ODAR"][2]) == findings.odar.calls.max()


def test_figures_need_matplotlib(findings, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"figures need matplotlib; install odar\[evals\]"):
        to_svg(gallery(findings)["errors"], findings)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("odar", "ODAR"),
        ("cot", "CoT"),
        ("best-of-n:n=9", "BoN-9"),
        ("random-matched", "random matched"),
        ("odar:beta=inf", "beta=inf"),
    ],
)
def test_names_that_fit_beside_a_point(spec, name):
    assert label(spec) == name


def test_markup_escapes_once_and_only_what_is_not_markup():
    assert esc(Markup("<b>")) == "<b>"
    assert tag("td", Markup("<i>x</i>"), "<") == "<td><i>x</i>&lt;</td>"
    assert tag("a", 'x"y', title='"') == '<a title="&quot;">x&quot;y</a>'
    assert '<tr class="ours">' in table(["a"], [["1"], ["2"]], [False, True])


@pytest.mark.parametrize(
    ("value", "form", "said"),
    [(0.12345, ".3f", "0.123"), (-0.0, "+.2f", "0.00"), (0.5, "+.1%", "+50.0%"), (None, ".1f", "unknown")],
)
def test_numbers_as_they_are_read(value, form, said):
    assert number(value, form) == said


def test_intervals_and_p_values_as_they_are_read():
    assert interval(Interval(0.5, 0.25, 0.75)) == "0.500 <small>0.250 to 0.750</small>"
    assert interval(Interval(0.5, float("nan"), float("nan"))) == "0.500 <small></small>"
    assert (p_value(0.0009), p_value(0.001), p_value(1.0)) == ("< 0.001", "0.001", "1.000")
