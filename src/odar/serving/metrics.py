"""Metrics for Prometheus."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, Sample
from prometheus_client.registry import Collector

from odar.conversation import NO_PARAMETERS
from odar.errors import StoreError
from odar.policy.cut_off import cut_off_counts
from odar.providers.breaker import BREAKER_STATES, BreakerReport
from odar.serving.concurrency import ConcurrencyLimit
from odar.serving.workers import Workers
from odar.traces.observations import Observations
from odar.traces.overview import RoutedTotals, savings
from odar.traces.record import Record
from odar.types import DIRECT, Route, Trace

if TYPE_CHECKING:
    from odar.serving.service import Service

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
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
"""Help text and labels of the counters that requests increase."""
Values = Mapping[Any, float] | float
"""The values of a metric by tuples of labels, or the value of a metric without labels."""
Samples = dict[str, tuple[str, list[tuple[str, tuple[tuple[str, str], ...], float]]]]
"""The type of each metric, and name, labels and value of its samples."""
_COMBINE: Mapping[str, Callable[[float, float], float]] = {
    "odar_in_flight_limit": max,
    "odar_breaker_state": max,
    "odar_store_up": min,
}
"""How the gauges of several workers become one; all other metrics are sums."""


class Snapshot(msgspec.Struct):
    """What one worker has counted, for the others."""

    samples: Samples
    routed: RoutedTotals
    breakers: dict[str, BreakerReport]


_DECODER = msgspec.msgpack.Decoder(Snapshot)


class Metrics(Collector):
    """The metrics of one gateway: of all its workers, the others as of their last snapshots."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self,
        concurrency_limit: ConcurrencyLimit,
        workers: Workers | None = None,
        service: Service | None = None,
    ) -> None:
        self._concurrency_limit = concurrency_limit
        self._workers = workers or Workers()
        self._service = service
        self._tasks = 0
        self._rendering = asyncio.Lock()
        """Allows one scrape at a time, so that scrapes do not use all threads."""
        # Only the event loop increases them, so no locks are needed.
        self._counts: dict[str, dict[tuple[str, ...], float]] = {
            name: {} if labels else {(): 0.0} for name, (_, labels) in _COUNTERS.items()
        }
        self._routed = RoutedTotals()
        text = "Time per request."
        self._seconds = Histogram("odar_request_seconds", text, ("path",), buckets=_BUCKETS, registry=None)
        self._seconds_of = {path: self._seconds.labels(path) for path in (*Route, DIRECT, "none")}
        predecessor = self._read_snapshot(self._workers.number)
        self._inherited = [] if predecessor is None else [predecessor]
        """The counts of the killed or restarted worker that this one replaces: counters must not fall."""
        for snapshot in self._inherited:
            snapshot.samples = {name: each for name, each in snapshot.samples.items() if each[0] != "gauge"}

    def count(self, record: Record) -> None:
        """Count one request; its model must be in the settings or `other`, because it becomes a label."""
        add = self._add
        trace = record.trace
        path = (record.path if isinstance(trace, Trace) else None) or "none"
        add("odar_requests", 1, record.endpoint, path, str(record.http_status))
        self._seconds_of[path].observe(record.seconds)
        for call in trace.calls:
            add("odar_calls", call.samples, call.provider, call.model)
            if call.failed:
                add("odar_call_failures", 1, call.provider, call.model)
            add("odar_tokens", call.usage.input or 0, call.model, "input")
            add("odar_tokens", call.usage.cached or 0, call.model, "cached")
            add("odar_tokens", call.usage.output or 0, call.model, "output")
            if call.cost_usd is None:
                add("odar_unpriced_calls", 1)
            else:
                add("odar_cost_usd", call.cost_usd)
        if not isinstance(trace, Trace):
            return
        if trace.plan.session is not None:
            add("odar_session_requests", 1, trace.plan.session.event)
        self._routed.add_trace(trace)
        parameters = record.query.parameters if record.query else NO_PARAMETERS
        for agent, (answers, cut) in cut_off_counts(trace.candidates, parameters).items():
            add("odar_answers", answers, agent)
            add("odar_cut_off_answers", cut, agent)
        if trace.degradations:
            add("odar_degraded", 1)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        values = self._counts[name]
        values[labels] = values.get(labels, 0.0) + amount

    async def render(self) -> bytes:
        """Return all metrics in Prometheus' text format; in a thread, because a source may wait for a file lock."""
        async with self._rendering:
            self.count_tasks()
            return await asyncio.to_thread(self.text)

    def count_tasks(self) -> None:
        """Note how many tasks the event loop has; only in the loop's thread."""
        self._tasks = len(asyncio.all_tasks())

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format; may block."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        snapshots = [*self._inherited, *self._others()]
        for metric in self._own_metrics():
            yield _merge(metric, snapshots)
        yield from _savings_metrics(_sum_routed(self._routed, *(each.routed for each in snapshots)))
        if self._service is not None:
            yield from _shared_metrics(self._service)

    def snapshot(self, breakers: Mapping[str, BreakerReport]) -> bytes:
        """Return the counts of this worker and its predecessors, for the other workers."""
        samples: Samples = {}
        for metric in self._own_metrics():
            merged = _merge(metric, self._inherited).samples
            samples[metric.name] = (
                metric.type,
                [(each.name, tuple(each.labels.items()), float(each.value)) for each in merged],
            )
        routed = _sum_routed(self._routed, *(each.routed for each in self._inherited))
        return msgspec.msgpack.encode(Snapshot(samples, routed, dict(breakers)))

    def breakers_elsewhere(self) -> list[Mapping[str, BreakerReport]]:
        return [each.breakers for each in self._others()]

    def _others(self) -> list[Snapshot]:
        numbers = (number for number in range(self._workers.count) if number != self._workers.number)
        return [found for number in numbers if (found := self._read_snapshot(number)) is not None]

    def _read_snapshot(self, number: int) -> Snapshot | None:
        body = self._workers.snapshot(number)
        return None if body is None else _DECODER.decode(body)

    def _own_metrics(self) -> Iterator[Metric]:
        for name, (text, labels) in _COUNTERS.items():
            yield _counter(name, text, self._counts[name].copy(), *labels)
        yield _gauge("odar_in_flight", "Requests being answered.", self._concurrency_limit.in_flight)
        yield _gauge("odar_in_flight_limit", "Requests beyond it are refused.", self._concurrency_limit.limit)
        yield _gauge("odar_tasks", "Tasks of the event loop; idle, always as many.", self._tasks)
        yield from self._seconds.collect()
        if self._service is not None:
            yield from _worker_metrics(self._service)


def _merge(metric: Metric, snapshots: Sequence[Snapshot]) -> Metric:
    if not snapshots:
        return metric
    values = {(each.name, tuple(each.labels.items())): each.value for each in metric.samples}
    combine = _COMBINE.get(metric.name, operator.add)
    for snapshot in snapshots:
        for name, labels, value in snapshot.samples.get(metric.name, ("", ()))[1]:
            known = values.get((name, labels))
            together = min if name.endswith("_created") else combine
            values[name, labels] = value if known is None else together(known, value)
    metric.samples = [Sample(name, dict(labels), value) for (name, labels), value in values.items()]
    return metric


def _sum_routed(*totals: RoutedTotals) -> RoutedTotals:
    names = [each.name for each in fields(RoutedTotals)]
    return RoutedTotals(**{name: sum(getattr(each, name) for each in totals) for name in names})


def _worker_metrics(service: Service) -> Iterator[Metric]:
    """Yield what the parts of one worker count."""
    limits = service.connection_limits
    yield _gauge("odar_connections", "Connections of clients.", limits.open)
    refused = {(reason,): count for reason, count in sorted(limits.refused.items())}
    yield _counter("odar_refused_connections", "Connections closed for passing a limit.", refused, "reason")
    states = {(name,): BREAKER_STATES.index(breaker.state) for name, breaker in service.breakers.copy().items()}
    yield _gauge("odar_breaker_state", "0 closed, 1 half open, 2 open.", states, "provider")
    if service.store is not None:
        health = service.store.health()
        yield _gauge("odar_store_up", "1 while the database takes what is written.", health.ok)
        yield _gauge("odar_store_queue", "Traces that wait to be written.", health.queued)
        yield _counter("odar_store_written", "Traces written.", health.stored)
        lost = {("shed",): health.dropped, ("rejected",): health.rejected}
        yield _counter("odar_store_lost", "Traces that were not written.", lost, "why")
    if (observer := service.traffic_observer) is not None:
        yield _counter("odar_observed", "Questions that were also answered in the background.", observer.observed)
        dropped = {(reason,): count for reason, count in sorted(observer.dropped.copy().items())}
        yield _counter("odar_observe_dropped", "Chosen questions that were not observed.", dropped, "reason")


def _shared_metrics(service: Service) -> Iterator[Metric]:
    """Yield what all workers read from the store and from files; may block."""
    # of several sources of a model and step, the one that drifts most
    drifts = [row for row in service.alignment_report() if row.drift_z is not None]
    drifts.sort(key=lambda row: (row.drifting, abs(row.drift_z or 0)))
    z = {(row.model, row.step): row.drift_z or 0.0 for row in drifts}
    drifting = {(row.model, row.step): float(row.drifting) for row in drifts}
    yield _gauge("odar_energy_drift_z", "Served against calibrated energies.", z, "model", "step")
    yield _gauge("odar_energy_drifting", "1 where they drift apart.", drifting, "model", "step")
    # not the targets of requests: clients could create any number of labels
    report = service.odar.targets.report()
    rows = {(row.scope, row.kind): row for row in report if not row.scope.startswith("request")}
    labels = ("scope", "kind")
    targets = {key: row.target for key, row in rows.items()}
    actual = {key: row.actual for key, row in rows.items() if row.actual is not None}
    questions = {key: row.questions for key, row in rows.items()}
    yield _gauge("odar_target", "Mean calls or US dollars to meet.", targets, *labels)
    yield _gauge("odar_target_actual", "Mean over all questions under it.", actual, *labels)
    yield _counter("odar_target_questions", "Questions under it.", questions, *labels)
    if (certificate := service.odar.certificate) is not None:
        holds = not certificate.problems()
        yield _gauge("odar_certificate_holds", "1 while the installed certificate holds.", holds)
    if service.traffic_observer is not None and service.store is not None:
        yield from _comparison_metrics(service.store.observations)


def _comparison_metrics(observations: Observations) -> Iterator[Metric]:
    """Yield how often the cascade differs from slow."""
    fallen_back = observations.fallback_at is not None
    yield _gauge("odar_fallback", "1 while slow answers because the cascade differed too often.", fallen_back)
    try:
        comparison = observations.comparison()
    except StoreError:
        return  # `odar_store_up` says so
    mean, low, high = comparison.excess()
    bounds = {("low",): low, ("high",): high} | ({} if mean is None else {("mean",): mean})
    text = "How much more often the cascade differs from slow than slow from itself, at any time."
    yield _gauge("odar_excess_difference", text, bounds, "bound")
    yield _counter("odar_compared_with_slow", "Questions that this is known from.", comparison.questions)


def _savings_metrics(totals: RoutedTotals) -> Iterator[Metric]:
    saved = savings(totals)
    yield _gauge("odar_saved_calls", "Calls saved against one slow call a question.", saved["calls_saved"])
    known = {} if saved["usd_saved"] is None else {(): saved["usd_saved"]}
    yield _gauge("odar_saved_cost_usd", "US dollars saved against one slow call a question.", known)
    text = "1 where always asking the slow model would cost less."
    yield _gauge("odar_costs_more_than_slow", text, bool(saved["warning"]))
    yield _counter("odar_compared", "Questions that fast and another agent answered.", totals.compared)
    yield _counter("odar_changed", "Those whose answer is not the fast agent's.", totals.changed)


def _gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    return _add_values(GaugeMetricFamily(name, text, labels=labels), values)


def _counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    return _add_values(CounterMetricFamily(name, text, labels=labels), values)


def _add_values(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(labels, value)
    return family
