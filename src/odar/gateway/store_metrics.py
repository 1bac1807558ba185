"""How the store is doing, for Prometheus; asked at every scrape, and told without looking at a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from odar.store.writer import Health


class StoreMetrics(Collector):
    """The writer's queue, what it wrote, and what it had to give up."""

    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """The figures of this moment."""
        health = self._health()
        yield GaugeMetricFamily("odar_store_up", "1 while the database takes what is written.", value=health.ok)
        yield GaugeMetricFamily("odar_store_queue", "Traces that wait to be written.", value=health.queued)
        yield CounterMetricFamily("odar_store_written", "Traces written.", value=health.stored)
        lost = CounterMetricFamily("odar_store_lost", "Traces that were not written.", labels=("why",))
        lost.add_metric(["shed"], health.dropped)
        lost.add_metric(["rejected"], health.rejected)
        yield lost
