"""Alerts and dashboard query only metrics and labels that the gateway has."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odar.providers.breaker import Breaker
from odar.served.alignment import DriftReport
from odar.serving.metrics import Metrics
from odar.traces.record import Record
from odar.types import Query
from support.deploy_files import DEPLOY, dashboard, read_yaml
from support.entries import part_of_a_service
from support.traces import make_answer

SERVER_LABELS = {"instance", "job", "le"}
"""Added by Prometheus."""


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Return the names in /metrics with their labels."""
    row = DriftReport("m", "solve", 9, 0.2, 0.1, 3.0, True)
    service = part_of_a_service(breakers={"p": Breaker()}, drift_report=lambda: [row])
    metrics = Metrics(service)
    trace = make_answer("hard", error="boom", degradations=("slow agent: boom",)).trace
    metrics.count(Record(Query("?"), trace, endpoint="chat.completions", model="odar"))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[tuple[str, str]]:
    alerts = [
        (rule["alert"], rule["expr"]) for g in read_yaml("prometheus/alerts.yaml")["groups"] for rule in g["rules"]
    ]
    panels = [(panel["title"], target["expr"]) for panel in dashboard()["panels"] for target in panel["targets"]]
    return alerts + panels


@pytest.mark.parametrize(("where", "expression"), expressions(), ids=lambda value: value[:40])
def test_queried_metrics_and_labels_exist(where, expression, known):
    names = re.findall(r"\bodar_\w+", expression)
    assert names or expression.startswith("up{")
    for name in names:
        assert name in known, f"{where} asks for {name}"
    labels = {label for name in names for label in known[name]} | SERVER_LABELS
    selectors = re.findall(r"[{,]\s*(\w+)\s*(?:=|!=|=~|!~)\"", expression)
    groups = [label for by in re.findall(r"(?:by|without)\s*\(([^)]*)\)", expression) for label in by.split(",")]
    assert {label.strip() for label in [*selectors, *groups]} - {""} <= labels


def test_the_dashboard_uses_every_metric(known):
    asked = {name for _, expression in expressions() for name in re.findall(r"\bodar_\w+", expression)}
    unused = {name for name in known if not name.endswith(("_created", "_sum", "_count"))} - asked
    assert unused == {"odar_connections", "odar_store_written_total", "odar_tasks"}


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


def test_the_dashboard_uses_the_provisioned_data_source():
    (source,) = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    variable = dashboard()["templating"]["list"][0]
    assert variable["current"]["value"] == source["uid"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "arguments", [("check", "config", "prometheus.yaml"), ("test", "rules", "alerts_test.yaml")]
)
def test_promtool_accepts_the_rules(arguments):
    *command, file = arguments
    run = subprocess.run(
        ["promtool", *command, DEPLOY / "prometheus" / file], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
