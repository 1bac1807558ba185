"""docs/paper.md: every table, figure, algorithm and equation of the paper has a row, and every figure comes from data."""

from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter

import bench_freetext  # scripts is on the path
import pytest
import results
from docsite import paper
from docsite.markdown import ROOT

from odar.calibration_file import Calibration
from odar.config import with_values
from odar.lab.calibration.compare import walk_all
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import load_table, load_tables

LABELS = """
tab:agent_comparison tab:main_results_clean tab:open_odar_clean tab:sota_comparison tab:notation_app tab:neuro_mapping
tab:routing_comparison tab:feature_complete tab:vocab_domain tab:feature_importance tab:feature_ablation
tab:ablation_deconfounding tab:error_taxonomy_app tab:fep_math_example_app tab:fusion_ablation_app
tab:hyperparameters_app tab:path_distribution_app tab:fast_prompt tab:slow_verify_prompt tab:slow_bon_prompt
tab:prompt_ablation tab:cost_breakdown tab:latency_breakdown tab:inference_snapshot_corrected tab:dataset_details
tab:routing_by_category tab:difficulty_stratification_app tab:risk_analysis_app tab:oracle_analysis_app
tab:de_comparison_app tab:best_of_n_app tab:keyword_trap tab:prm_comparison_app tab:adversarial_app
tab:stat_rigor_final fig:radar_overview fig:architecture fig:full_ablation fig:theory_to_method_app
fig:theory_overview_app fig:performance_by_category_app fig:pareto_frontier_app fig:latency_histogram_app
fig:best_of_n_app fig:case_simple_app fig:case_medium_app fig:case_hard_app alg:fep_fusion_app
alg:active_inference_app eq:vfe eq:fep_selection eq:fep_approx eq:efe eq:policy_selection eq:empirical_efe
eq:difficulty_score eq:path_selection eq:hard_selection eq:fep_compute eq:z_score_norm eq:fusion_argmin
eq:risk_sensitive_expansion eq:de_loss_app eq:bio_control eq:odar_control
"""
"""Every label of a table, figure, algorithm and equation in the paper's source."""
REMEDY = "run: PYTHONPATH=src:scripts python -m docsite paper"


@pytest.fixture(scope="module")
def figures():
    return json.loads(paper.DATA.read_text("utf-8"))


def test_every_label_of_the_paper_has_a_row():
    page = paper.PAGE.read_text("utf-8")
    assert [label for label in LABELS.split() if f"`{label}`" not in page] == []


def test_every_row_has_a_status():
    tables = re.findall(r"^\|.* status \|\n\|[-|]+\n((?:\|.*\n)+)", paper.PAGE.read_text("utf-8"), re.M)
    rows = [row.rstrip(" |").rpartition("| ")[2] for table in tables for row in table.splitlines()]
    assert Counter(rows) == dict(paper.statuses())


def test_named_objects_exist():
    names = set(re.findall(r"`(odar(?:\.\w+)+)`", paper.PAGE.read_text("utf-8")))
    assert len(names) > 5
    for name in names:
        assert pkgutil.resolve_name(name) is not None


def test_the_page_is_up_to_date(figures):
    assert paper.PAGE.read_text("utf-8") == paper.render(figures), REMEDY


@pytest.mark.parametrize("name", paper.RECORDINGS)
def test_the_data_equal_those_of_the_recordings(name, figures):
    places, split = paper.RECORDINGS[name]
    table = next(iter(load_tables([ROOT / place for place in places], split=split).values()))
    assert figures[name]["items"] == len(table), REMEDY
    found = figures[name]["tables"]["policies"]
    for label, spec in (("ODAR", "odar"), ("single fast", "single-fast"), ("SC-5", "self-consistency:k=5")):
        outcome = run_policy(table, spec)
        assert found[label]["accuracy"] == pytest.approx(outcome.score.mean(), abs=1e-4), REMEDY
        assert found[label]["calls"] == pytest.approx(outcome.calls.mean(), abs=1e-4), REMEDY
    odar = run_policy(table, "odar")
    mix = figures[name]["tables"]["mix"]["all"]
    assert [mix[path] for path in ("Simple", "Medium", "Hard")] == pytest.approx(odar.mix, abs=1e-4), REMEDY


def test_the_figures_of_the_estimator_are_up_to_date(figures):
    now = paper._rounded(paper._estimator())
    assert {name: figures[name] for name in now} == now, REMEDY


def test_the_figures_of_other_agents_and_prompts_are_up_to_date(figures):
    assert figures["other"] == paper._rounded(paper.other_recordings()), REMEDY


def test_peers_has_the_figures_of_the_recordings(figures):
    page = " ".join((ROOT / "docs/peers.md").read_text("utf-8").split())
    rows = figures["tiny"]["tables"]["policies"]
    odar, fast, hard = (rows[name] for name in ("ODAR", "single fast", "always hard"))
    said = (
        f"on the {figures['tiny']['items']} committed questions that SmolLM2-135M answered, ODAR {odar['accuracy']:.3f} at "
        f"{odar['calls']:.2f} calls, the fast agent alone {fast['accuracy']:.3f} at 1, the Hard path for all "
        f"{hard['accuracy']:.3f} at {hard['calls']:.2f}"
    )
    assert said in page


def test_the_readme_of_the_local_pair_is_up_to_date():
    assert (paper.LOCAL_PAIR / "README.md").read_text("utf-8") == paper.local_pair_readme(), REMEDY


def test_peers_has_the_table_of_the_local_pair():
    table = bench_freetext.pair_table(bench_freetext.pair(paper.LOCAL_PAIR / "recording.jsonl.gz"))
    assert table.strip() in (ROOT / "docs/peers.md").read_text("utf-8"), "run: make docs-recordings"


def cells(line: str) -> list[str]:
    """The cells of a row of results, without the comparison with mixtures of fixed choices."""
    row = line.split(" | ")
    return row[:4] + row[5:]


def test_the_results_page_is_up_to_date():
    """Its rows that need no fit: those that are calibrated take a minute (`make docs-recordings`)."""
    page = results.PAGE.read_text("utf-8")
    table = load_table(results.RECORDING)
    plain = table.replaced(
        calibration=Calibration(),
        settings=with_values(table.settings, {"routing.stages": (), "policy": "cascade"}),
    )
    fast, slow = (results.row_of(name, walk_all(plain, [{"policy": name}]), []) for name in ("fast", "slow"))
    published = results.row_of("paper", [run_policy(table, "paper")], [])
    unlabelled = plain.replaced(calibration=plain.own_calibration())
    balanced = results.row_of("without labels, balanced", walk_all(unlabelled, [results.cascade("balanced")]), [])
    strata = [item.key.set for item in table.items]
    shown = [cells(line) for line in page.splitlines()]
    for line in results.table_lines([fast, slow, published, balanced], slow, strata)[2:]:
        assert cells(line) in shown, "run: make docs-recordings"
    assert results.readme_table(page) in results.README.read_text("utf-8"), "run: make docs-recordings"


def test_the_report_shows_the_figures_of_the_recordings(figures):
    """The committed report has the same accuracies as the page; its date and versions may be older."""
    text = (ROOT / "docs/reports/recordings.html").read_text("utf-8")
    for name in ("local", "tiny"):
        odar = figures[name]["tables"]["policies"]["ODAR"]
        assert f"right on {odar['accuracy']:.1%} of the items with {odar['calls']:.2f} calls per item" in text
        assert f"{figures[name]['items']} items · " in text
