"""The numbers behind each table and figure, on a panel small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.errors import InputError
from odar.lab.replay.table import load_table, load_tables
from odar.lab.report import analyses, results
from odar.lab.report.draw import PATH_COLOURS, to_svg
from odar.lab.report.findings import replay_recordings
from odar.lab.report.page import exhibits
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
    (found,) = replay_recordings(load_tables([handmade_panel(folder, ANSWERS, energies, difficulty=DIFFICULTY)]))
    return found


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """90 items of three benchmarks, two of them in one category."""
    benchmarks = (("alpha", "Mathematics"), ("beta", "Mathematics"), ("gamma", "Coding"))
    path = synthetic_panel(tmp_path_factory.mktemp("several"), 90, benchmarks=benchmarks)
    (found,) = replay_recordings(load_tables([path]))
    return found


def by_name(exhibit):
    names = [column.name for column in exhibit.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in exhibit.rows}


def test_odar_takes_the_expected_paths(findings):
    assert findings.odar.path.tolist() == [0, 0, 1, 2, 0]
    assert findings.odar.score.tolist() == [1, 1, 1, 1, 0]


def test_the_main_table_has_a_row_per_benchmark_means_of_categories_and_all(several):
    exhibit = results.main_table(several)[0]
    assert [row[0] for row in exhibit.rows] == [
        "gamma", "alpha", "beta", "mean of Mathematics", "mean of benchmarks",
    ]  # fmt: skip
    rows = by_name(exhibit)
    assert [exhibit.rows[i][0] for i in exhibit.marked] == ["mean of Mathematics", "mean of benchmarks"]
    for name in ("alpha", "beta", "gamma"):
        mask = several.table.of_set(name)
        assert rows[name]["ODAR"] == pytest.approx(several.odar.score[mask].mean())
        assert rows[name]["items"] == 30 and not np.isnan(rows[name]["gain on fast"].low)
    mean = np.mean([rows[name]["ODAR"] for name in ("alpha", "beta", "gamma")])
    assert rows["mean of benchmarks"]["ODAR"] == pytest.approx(mean)
    gains = [rows[name]["gain on fast"].value for name in ("alpha", "beta")]
    assert rows["mean of Mathematics"]["gain on fast"] == pytest.approx(np.mean(gains))


def test_benchmarks_have_margins_and_adjusted_tests(several):
    exhibit = results.dataset_table(several)[0]
    rows = by_name(exhibit)
    assert list(rows) == ["gamma", "alpha", "beta", "mean of benchmarks"]
    alpha = rows["alpha"]
    assert alpha["± binomial"] == pytest.approx(1.96 * np.sqrt(alpha["ODAR"] * (1 - alpha["ODAR"]) / 30))
    gain = several.gain(several.odar, several.outcomes["self-consistency:k=5"], several.table.of_set("alpha"))
    assert alpha["gain on SC-5"] == gain.interval
    assert alpha["p, BH"] >= gain.p
    mean = rows["mean of benchmarks"]
    assert mean["ODAR"].value == pytest.approx(np.mean([rows[name]["ODAR"] for name in ("alpha", "beta", "gamma")]))
    assert np.isnan(mean["ODAR"].low)  # three benchmarks say nothing about others


def test_the_radar_has_the_eight_categories_of_the_paper(tmp_path):
    benchmarks = (("a", "Mathematics"), ("b", "Commonsense"), ("c", "Instruction"), ("d", "Instruction"))
    (found,) = replay_recordings(load_tables([synthetic_panel(tmp_path, 40, benchmarks=benchmarks)]))
    exhibit = results.accuracy_figure(found)[0]
    rows = by_name(exhibit)
    assert {name: row["benchmarks"] for name, row in rows.items()} == {
        "Commonsense": 1, "Instruction": 2, "Mathematics": 1,
    }  # fmt: skip
    means = dict(zip(found.benchmarks, found.means(found.odar), strict=True))
    assert rows["Instruction"]["ODAR"] == pytest.approx((means["c"] + means["d"]) / 2)
    drawn = to_svg(exhibit.draw, exhibit.size, "radar")
    assert all(name in drawn for name in results.CATEGORIES)
    assert drawn.count("(not recorded)") == 5


def test_the_pareto_figures_show_all_policies_and_odars_curve(findings):
    calls, money = results.pareto(findings)
    rows = by_name(calls)
    assert (rows["ODAR"]["accuracy"], rows["ODAR"]["calls"]) == (0.8, findings.odar.calls.mean())
    assert rows["single fast"]["calls"] == 1.0 and "oracle" not in rows
    assert by_name(money)["ODAR"]["money"] == pytest.approx(1000 * findings.odar.cost_usd.mean())
    curve = [row[2] for row in calls.rows if row[0] == "ODAR, other dials"]
    assert curve == sorted(curve) and 1.0 <= curve[0] < curve[-1]


def test_paths_and_accuracy_by_benchmark(findings):
    rows = by_name(results.mix_figure(findings)[0])
    assert list(rows) == ["all", "hand", "all, by the paper's policy"]
    assert [rows["hand"][path] for path in PATH_COLOURS] == pytest.approx([0.6, 0.2, 0.2])
    (accuracy,) = by_name(results.accuracy_figure(findings)[0]).values()
    assert accuracy == {
        "category": findings.category("hand"), "benchmarks": 1, "ODAR": 0.8, "paper": 0.8, "single fast": 0.4, "single slow": 0.4, "SC-5": 0.4,
    }  # fmt: skip


def test_benchmarks_are_sorted_by_how_hard_they_are_for_the_fast_agent(findings):
    rows = by_name(results.strata_table(findings)[0])
    assert rows["all"]["gain"] == pytest.approx(0.4)  # all are below 70%, so that stratum is not a row of its own


def test_an_ablation_is_a_change_against_odar(findings):
    rows = by_name(analyses.ablations(findings)[0])
    assert rows["no slow agent"]["change of accuracy"].value == pytest.approx(-0.4)
    assert rows["no estimator: always Hard"]["calls"] >= 4
    assert "statistics off" in rows
    assert set(rows) <= set(analyses.TEXTS["ablations"]["labels"].values())
    assert "would change nothing" in findings.left_out["odar:dispatch=off"]


def test_recordings_of_the_same_items_are_ablations_and_others_parts(tmp_path):
    for name in ("main", "other", "more"):
        (tmp_path / name).mkdir()
    main = handmade_panel(tmp_path / "main", ANSWERS, [[0.5, 0.1, *[0.2] * 5]] * 5, difficulty=DIFFICULTY)
    worse = [["5"] * 5 for _ in ANSWERS]
    other = handmade_panel(tmp_path / "other", worse, [[0.5, 0.1, *[0.2] * 3]] * 5, difficulty=DIFFICULTY)
    more = synthetic_panel(tmp_path / "more", 12, benchmarks=(("alpha", "Mathematics"),))
    first, second = replay_recordings(load_tables([main, other, more]))
    assert len(first.others) == 1 and second.others == []
    row = by_name(analyses.ablations(first)[0])["samples = 3 (5 items)"]
    assert row["change of accuracy"].value == pytest.approx(-0.8)


def test_attacked_questions_are_never_pooled_with_their_benchmark(tmp_path):
    benchmarks = (("gsm8k", "Mathematics"), ("gsm8k+masking", "Mathematics"))
    path = synthetic_panel(tmp_path, 40, benchmarks=benchmarks)
    (found,) = replay_recordings(load_tables([path]))
    assert list(found.benchmarks) == ["gsm8k"] and len(found.table) == 20


def test_more_samples_and_sweeps(findings):
    rows = analyses.best_of_n_figure(findings)[0].rows
    assert [row[0] for row in rows] == [1, 3, 5]
    assert all(row[2:] == [0.4, 0.4] for row in rows)
    beta, lam, tau = analyses.sweeps(findings)
    assert (len(tau.rows), beta.rows[-1][0], lam.rows[0][0]) == (9, "∞", "0")
    assert tau.rows[0][0] == "0.2, 0.6" and tau.draw is None


def test_times_and_errors(findings):
    rows = by_name(analyses.latency(findings)[0])
    assert (rows["all"]["items"], rows["Simple"]["p50, s"]) == (5, 1.0)
    unknown = replace(findings.odar, seconds=np.full(5, np.nan))
    assert analyses.latency(replace(findings, outcomes={**findings.outcomes, "odar": unknown})) == []
    assert [row[1] for row in analyses.errors_table(findings)[0].rows] == [0, 0, 0, 0, 0, 1]


def test_the_oracle_gap_and_the_worst_item(findings):
    row = analyses.oracle_table(findings)[0].rows[0]
    assert row[:6] == ["all", 0.8, 0.8, 0.0, 1.0, 0.8]
    stability = by_name(analyses.stability_table(findings)[0])
    assert stability["single fast"]["calls, max"] == 1.0
    assert stability["ODAR"]["calls, max"] == findings.odar.calls.max()


def test_the_router_figure_needs_a_gap(findings, several):
    with pytest.raises(InputError, match="no gap that a router could recover"):
        analyses.routers(findings)  # samples alone are no better than the fast agent here
    quality, recovered = analyses.routers(several)
    rows = by_name(quality)
    assert rows["oracle"]["APGR"].value == max(row["APGR"].value for row in rows.values())
    assert recovered.rows[0][1:] == pytest.approx([0.0] * len(rows), abs=1e-9)
    assert recovered.rows[-1][1:] == pytest.approx([1.0] * len(rows))


def test_a_recording_without_verifications_can_be_replayed(tmp_path):
    from odar.lab.recording.files import open_recording, write_recording

    source = open_recording(synthetic_panel(tmp_path, 30))
    items = [replace(e, attempts=(e.attempts[0], *e.attempts[2:])) for e in source.items()]
    write_recording(tmp_path / "plain.jsonl", source.header, items)
    (found,) = replay_recordings(load_tables([tmp_path / "plain.jsonl"]))
    assert found.outcomes["paper"].mix[1] == 0 and "Hard path" in found.outcomes["paper"].note
    assert "always-medium" not in found.outcomes
    full = load_table(tmp_path / "recording.jsonl")
    assert found.outcomes["single-slow"].score.mean() == pytest.approx(full.scores("slow").mean())
    assert exhibits(found)[0]


def test_figures_need_matplotlib(findings, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    drawn = analyses.ablations(findings)[0]
    with pytest.raises(InputError, match=r"figures need matplotlib: pip install .*\[evals\]"):
        to_svg(drawn.draw, drawn.size, "x")


def test_each_dial_is_compared_with_the_fixed_choices_and_with_slow(several):
    (exhibit,) = results.frontier_table(several)
    rows = by_name(exhibit)
    dials = ["50", "economy", "16", "balanced", "6", "quality", "1"]
    assert list(rows) == [*dials, "paper", "single fast", "single slow", "SC-5"]
    assert rows["single slow"]["over slow alone"] is None and rows["SC-5"]["over fixed choices"] is None
    slow = several.outcomes["single-slow"]
    curve = {outcome.name.rpartition("=")[2]: outcome for outcome in several.suite("curve")}
    for dial in dials:
        row = rows[dial]
        share = curve[dial].cost_usd.mean() / slow.cost_usd.mean()
        assert row["cost, slow = 1"] == pytest.approx(share)
        assert row["over slow alone"].value == pytest.approx(curve[dial].score.mean() - slow.score.mean())
    assert exhibit.notes
