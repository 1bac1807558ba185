"""Drift in the metrics: one value per model and step, the largest one."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from odar.served.alignment import DriftReport
from odar.serving.metrics import Metrics
from support.entries import part_of_a_service


def row(z: float | None, *, step: str = "answer", drifting: bool = False, model: str = "m") -> DriftReport:
    return DriftReport(model, step, 50, 0.1, 0.1, z, drifting)


@pytest.mark.parametrize(
    ("rows", "step", "expected"),
    [
        ([row(-5.0), row(2.0), row(1.0, step="solve"), row(9.0, model="other")], "answer", (-5.0, 0.0)),
        ([row(-5.0), row(1.0, step="solve")], "solve", (1.0, 0.0)),
        ([row(0.1, drifting=True), row(3.0)], "answer", (0.1, 1.0)),  # σ can change while the mean does not
        ([row(3.0), row(0.1, drifting=True)], "answer", (0.1, 1.0)),
        ([row(None)], "answer", (None, None)),  # without a reference
        ([row(0.5), row(None)], "answer", (0.5, 0.0)),
    ],
)
def test_the_largest_drift_of_a_step_is_reported(rows, step, expected):
    registry = CollectorRegistry()
    registry.register(Metrics(part_of_a_service(drift_report=lambda: rows)))
    labels = {"model": "m", "step": step}
    found = [registry.get_sample_value(f"odar_energy_{name}", labels) for name in ("drift_z", "drifting")]
    assert tuple(found) == expected
