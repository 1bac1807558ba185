"""What Prometheus may know: counts, times, tokens and money; never a prompt or a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odar.conversation import NO_OPTIONS
from odar.gateway.access import Gate
from odar.gateway.records import Entry
from odar.gateway.server import ConnectionLimits
from odar.policy.alignment import AlignmentRow
from odar.policy.cut_off import cut_off_counts
from odar.providers.breaker import Breaker, State
from odar.store.overview import RoutedTotals, savings
from odar.store.targets import TargetReport
from odar.store.writer import Health
from odar.types import Path

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
OTHER = "other"
"""In place of a model's name that no setting holds: a client chose it."""
_STATES = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


class Metrics:
    """The figures of one gateway, in a registry of its own.

    Args:
        gate: counts requests in flight.
        models: names that become labels; any other name, which a client chose, is counted as `other`.
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, gate: Gate, models: Iterable[str] = ()) -> None:
        self._models = frozenset(models)
        self.registry = CollectorRegistry()
        self._tasks = 0
        self._rendering = asyncio.Lock()
        """One scrape at a time: a crowd of them must not take every thread."""
        self._counters = _Counters()
        self.registry.register(self._counters)
        self._seconds = Histogram(
            "odar_request_seconds", "Time per request.", ("path",), buckets=_BUCKETS, registry=self.registry
        )
        self._seconds_of = {path: self._seconds.labels(path) for path in (*Path, "none")}
        self._routed = RoutedTotals()
        self.registry.register(_SavingsMetrics(self._routed))
        self._breakers = Gauge(
            "odar_breaker_state", "0 closed, 1 half open, 2 open.", ("provider",), registry=self.registry
        )
        in_flight = Gauge("odar_in_flight", "Requests being answered.", registry=self.registry)
        in_flight.set_function(lambda: gate.in_flight)
        limit = Gauge("odar_in_flight_limit", "Requests beyond it are refused.", registry=self.registry)
        limit.set(gate.limit)
        tasks = Gauge("odar_tasks", "Tasks of the event loop; idle, always as many.", registry=self.registry)
        tasks.set_function(lambda: self._tasks)

    def watch(self, provider: str, breaker: Breaker) -> None:
        """Show this breaker's state."""
        self._breakers.labels(provider).set_function(lambda: _STATES[breaker.state])

    def watch_connections(self, limits: ConnectionLimits) -> None:
        """Show how many connections there are, and how many were closed for passing a limit."""
        self.registry.register(_ConnectionMetrics(limits))

    def watch_energies(self, report: Callable[[], list[AlignmentRow]]) -> None:
        """Show how far served energies are from the calibrated ones."""
        self.registry.register(DriftMetrics(report))

    def watch_targets(self, report: Callable[[], list[TargetReport]]) -> None:
        """Show every target of the settings and of keys beside its actual mean."""
        self.registry.register(_TargetMetrics(report))

    def watch_certificate(self, problems: Callable[[], list[str]]) -> None:
        """Show whether the installed certificate holds."""
        holds = Gauge("odar_certificate_holds", "1 while the installed certificate holds.", registry=self.registry)
        holds.set_function(lambda: float(not problems()))

    def watch_store(self, health: Callable[[], Health]) -> None:
        """Show how the store is doing."""
        self.registry.register(StoreMetrics(health))

    def count(self, entry: Entry) -> None:
        """Count one request."""
        add, trace, calls = self._counters.add, entry.trace, entry.trace.calls if entry.trace else entry.calls
        path = trace.decision.path.value if trace else "none"
        add("odar_requests", 1, entry.endpoint, path, str(entry.status))
        self._seconds_of[path].observe(entry.seconds)
        if trace is not None and trace.decision.session is not None:
            add("odar_session_requests", 1, trace.decision.session.event)
        for call in calls:
            model = call.model if call.model in self._models else OTHER
            add("odar_calls", call.samples, call.provider, model)
            if call.failed:
                add("odar_call_failures", 1, call.provider, model)
            add("odar_tokens", call.usage.input or 0, model, "input")
            add("odar_tokens", call.usage.cached or 0, model, "cached")
            add("odar_tokens", call.usage.output or 0, model, "output")
            if call.cost_usd is None:
                add("odar_unpriced_calls", 1)
            else:
                add("odar_cost_usd", call.cost_usd)
        if trace is None:
            return
        self._routed.count(trace)
        for role, (answers, cut) in cut_off_counts(
            trace.candidates, entry.query.options if entry.query else NO_OPTIONS
        ).items():
            add("odar_answers", answers, role.value)
            add("odar_cut_off_answers", cut, role.value)
        if trace.degradations:
            add("odar_degraded", 1)

    async def render(self) -> bytes:
        """Everything in Prometheus' text format; in a thread, because a figure may wait for the lock of a file."""
        async with self._rendering:
            self._tasks = len(asyncio.all_tasks())
            return await asyncio.to_thread(self.text)

    def text(self) -> bytes:
        """The same at once, for callers that may wait."""
        return generate_latest(self.registry)


_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "odar_requests": ("Requests by outcome.", ("endpoint", "path", "status")),
    "odar_session_requests": ("Requests of sessions: start, stay, escalate, return.", ("event",)),
    "odar_calls": ("Model invocations.", ("provider", "model")),
    "odar_call_failures": ("Model invocations that failed.", ("provider", "model")),
    "odar_tokens": ("Tokens as reported.", ("model", "kind")),
    "odar_cost_usd": ("US dollars, where prices are known.", ()),
    "odar_unpriced_calls": ("Calls whose cost is unknown.", ()),
    "odar_degraded": ("Answers marked degraded.", ()),
    "odar_answers": ("Answers by agent.", ("agent",)),
    "odar_cut_off_answers": ("Answers that ended at max_tokens.", ("agent",)),
}
"""What each request adds to, with its help text and labels."""


class _Counters(Collector):
    """Counters of the event loop. One thread adds, so no locks are needed."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {
            name: {} if labels else {(): 0.0} for name, (_, labels) in _COUNTERS.items()
        }

    def add(self, name: str, amount: float, *labels: str) -> None:
        values = self._values[name]
        values[labels] = values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        for name, (text, labels) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for values, total in self._values[name].copy().items():
                family.add_metric(values, total)
            yield family


class _TargetMetrics(Collector):
    """Targets by scope; those that requests chose themselves are left out, because clients choose their number."""

    def __init__(self, report: Callable[[], list[TargetReport]]) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        """The figures of this moment."""
        labels = ("scope", "kind")
        target = GaugeMetricFamily("odar_target", "Mean calls or US dollars to meet.", labels=labels)
        actual = GaugeMetricFamily("odar_target_actual", "Mean over all questions under it.", labels=labels)
        questions = CounterMetricFamily("odar_target_questions", "Questions under it.", labels=labels)
        for row in self._report():
            if row.scope.startswith("request"):
                continue
            target.add_metric([row.scope, row.kind], row.target)
            questions.add_metric([row.scope, row.kind], row.questions)
            if row.actual is not None:
                actual.add_metric([row.scope, row.kind], row.actual)
        yield from (target, actual, questions)


class _SavingsMetrics(Collector):
    """What routing saved since this gateway started; what is unknown is left out."""

    def __init__(self, totals: RoutedTotals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """The figures of this moment."""
        found = savings(self._totals)
        calls = GaugeMetricFamily("odar_saved_calls", "Calls saved, net of ODAR's own.", labels=["against"])
        cost = GaugeMetricFamily("odar_saved_cost_usd", "US dollars saved, net of ODAR's own.", labels=["against"])
        for against in ("always_slow", "always_hard"):
            for metric, name in ((calls, "calls_saved"), (cost, "usd_saved")):
                if found[against][name] is not None:
                    metric.add_metric([against], found[against][name])
        yield calls
        yield cost
        yield GaugeMetricFamily(
            "odar_costs_more_than_slow",
            "1 where always asking the slow model would cost less.",
            value=bool(found["warning"]),
        )
        yield CounterMetricFamily(
            "odar_slow_compared", "Questions both agents answered.", value=self._totals.compared
        )
        yield CounterMetricFamily(
            "odar_slow_changed", "Those whose answer is not the fast agent's.", value=self._totals.changed
        )


class _ConnectionMetrics(Collector):
    """Connections of clients."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits

    def collect(self) -> Iterator[Metric]:
        """The figures of this moment."""
        yield GaugeMetricFamily("odar_connections", "Connections of clients.", self._limits.open)
        refused = CounterMetricFamily(
            "odar_refused_connections", "Connections closed for passing a limit.", labels=["reason"]
        )
        for reason, count in sorted(self._limits.refused.items()):
            refused.add_metric([reason], count)
        yield refused


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
