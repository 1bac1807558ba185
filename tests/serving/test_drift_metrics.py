"""Drift in the metrics: one value per model and step, the largest one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from odar.policy.alignment import AlignmentRow
from odar.serving.metrics import Metrics
from support.entries import part_of_a_service


def row(z: float | None, *, step: str = "answer", drifting: bool = False, model: str = "m") -> AlignmentRow:
    return AlignmentRow(model, step, "calibrated", 50, 50, 0.1, 0.1, 0.1, 0.1, z, drifting)


def shown(*rows: AlignmentRow) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Metrics(part_of_a_service(alignment_report=lambda: list(rows))))
    return registry


def values(registry: CollectorRegistry, step: str = "answer") -> tuple[float | None, float | None]:
    labels = {"model": "m", "step": step}
    return tuple(registry.get_sample_value(f"odar_energy_{name}", labels) for name in ("drift_z", "drifting"))


def test_the_largest_drift_of_a_step_is_reported():
    registry = shown(row(-5.0), row(2.0), row(1.0, step="solve"), row(9.0, model="other"))
    assert values(registry) == (-5.0, 0.0)
    assert values(registry, "solve") == (1.0, 0.0)


def test_drift_of_one_source_is_not_hidden_by_another():
    """σ can change while the mean does not."""
    assert values(shown(row(0.1, drifting=True), row(3.0))) == (0.1, 1.0)
    assert values(shown(row(3.0), row(0.1, drifting=True))) == (0.1, 1.0)


def test_without_a_reference_there_is_no_metric():
    assert values(shown(row(None))) == (None, None)
    assert values(shown(row(0.5), row(None))) == (0.5, 0.0)


def test_drift_is_computed_only_when_metrics_are_read():
    def report() -> list[AlignmentRow]:
        raise AssertionError("read at registration")

    CollectorRegistry().register(Metrics(part_of_a_service(alignment_report=report)))
