"""How far served energies are from the calibrated ones, for Prometheus; asked at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from odar.policy.alignment import AlignmentRow


class DriftMetrics(Collector):
    """Drift by model and step; where several settings were served, the one that is farthest off."""

    def __init__(self, report: Callable[[], list[AlignmentRow]]) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        """The figures of this moment."""
        labels = ("model", "step")
        z = GaugeMetricFamily("odar_energy_drift_z", "Served against calibrated energies.", labels=labels)
        drifting = GaugeMetricFamily("odar_energy_drifting", "1 where they drift apart.", labels=labels)
        farthest: dict[tuple[str, str], AlignmentRow] = {}
        for row in sorted(self._report(), key=_distance):
            farthest[row.model, row.step] = row
        for (model, step), row in farthest.items():
            if row.drift_z is not None:
                z.add_metric([model, step], row.drift_z)
                drifting.add_metric([model, step], float(row.drifting))
        return [z, drifting]

    def describe(self) -> Iterable[Metric]:
        """Nothing yet: asking now would read the file before anybody wants it."""
        return []


def _distance(row: AlignmentRow) -> tuple[bool, float]:
    """A σ that changed is drift too, whatever the difference of the means; nothing to compare is nearest."""
    return row.drifting, -1.0 if row.drift_z is None else abs(row.drift_z)
