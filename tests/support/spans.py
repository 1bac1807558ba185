"""Spans that tests can read."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from odar.settings import Settings
from odar.telemetry.spans import Spans


class SpanBook:
    """An observer that collects its spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider()
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])

    def observer(self, settings: Settings) -> Spans:
        return Spans(self._provider.get_tracer("test"), settings, self._meters.get_meter("test"))

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def tree(self) -> dict[str, Any]:
        """Names nested in names, equal ones with a count: {"a": {"b ×2": {}}}."""
        spans = sorted(self.all(), key=lambda span: span.start_time)
        known = {span.context.span_id for span in spans}

        def below(parent: int | None) -> dict[str, Any]:
            own = [
                s for s in spans if (s.parent.span_id if s.parent and s.parent.span_id in known else None) == parent
            ]
            return {
                f"{name} ×{sum(s.name == name for s in own)}"
                if sum(s.name == name for s in own) > 1
                else name: _merge([below(s.context.span_id) for s in own if s.name == name])
                for name in dict.fromkeys(s.name for s in own)
            }

        return below(None)

    def metric(self, name: str) -> list[HistogramDataPoint]:
        """Return the points of a histogram."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [point for s in scopes for m in s.metrics if m.name == name for point in m.data.data_points]

    def everything(self) -> str:
        """Return the contents of all spans as text."""
        return "\n".join(span.to_json() for span in self.all())


def _merge(trees: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: tree for each in trees for name, tree in each.items()}
