"""Metrics for Prometheus, over all workers of a gateway; the other workers count with their last snapshot."""

from __future__ import annotations

import asyncio
import operator
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from odar.conversation import NO_PARAMETERS
from odar.errors import StoreError
from odar.providers.breaker import BREAKER_STATES, BreakerReport
from odar.serving.workers import PUBLISH_S
from odar.traces.cut_off import cut_off_counts
from odar.traces.observations import Observations
from odar.traces.overview import routed_sums, savings
from odar.traces.record import Record
from odar.types import DIRECT, Route, Trace

if TYPE_CHECKING:
    from odar.serving.service import Service

COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily
_METRICS: Mapping[str, tuple[type[CounterMetricFamily | GaugeMetricFamily], str, tuple[str, ...]]] = {
    "odar_requests": (COUNTER, "Requests by outcome.", ("endpoint", "path", "status")),
    "odar_session_requests": (COUNTER, "Requests of sessions, by event.", ("event",)),
    "odar_calls": (COUNTER, "Calls of models.", ("provider", "model")),
    "odar_call_failures": (COUNTER, "Calls of models that failed.", ("provider", "model")),
    "odar_tokens": (COUNTER, "Tokens, as providers report them.", ("model", "kind")),
    "odar_cost_usd": (COUNTER, "US dollars of the calls whose cost is known.", ()),
    "odar_unpriced_calls": (COUNTER, "Calls whose cost is unknown.", ()),
    "odar_degraded": (COUNTER, "Answers marked degraded.", ()),
    "odar_answers": (COUNTER, "Answers by agent.", ("agent",)),
    "odar_cut_off_answers": (COUNTER, "Answers that ended at max_tokens.", ("agent",)),
    "odar_refused_connections": (COUNTER, "Connections closed at a limit.", ("reason",)),
    "odar_store_written": (COUNTER, "Traces written.", ()),
    "odar_store_lost": (COUNTER, "Traces that were not written.", ("why",)),
    "odar_observed": (COUNTER, "Questions that were also answered in the background.", ()),
    "odar_observe_dropped": (COUNTER, "Questions chosen for comparison, but not compared.", ("reason",)),
    "odar_compared": (COUNTER, "Questions that the fast agent and another one answered.", ()),
    "odar_changed": (COUNTER, "Compared questions whose answer is not the fast agent's.", ()),
    "odar_target_questions": (COUNTER, "Questions that count towards a target.", ("scope", "kind")),
    "odar_compared_with_slow": (COUNTER, "Questions from which the excess difference is estimated.", ()),
    "odar_in_flight": (GAUGE, "Requests being answered.", ()),
    "odar_in_flight_limit": (GAUGE, "Maximum number of requests in flight.", ()),
    "odar_tasks": (GAUGE, "Tasks of the event loop; constant while idle.", ()),
    "odar_connections": (GAUGE, "Connections of clients.", ()),
    "odar_breaker_state": (GAUGE, "0 closed, 1 half open, 2 open.", ("provider",)),
    "odar_store_up": (GAUGE, "1 while the database accepts writes.", ()),
    "odar_store_queue": (GAUGE, "Traces that wait to be written.", ()),
    "odar_saved_calls": (GAUGE, "Calls saved, compared with one slow call a question.", ()),
    "odar_saved_cost_usd": (GAUGE, "US dollars saved, compared with one slow call a question.", ()),
    "odar_costs_more_than_slow": (GAUGE, "1 if always asking the slow model would cost less.", ()),
    "odar_energy_drift_z": (GAUGE, "Shift of served energies, in standard errors.", ("model", "step")),
    "odar_energy_drifting": (GAUGE, "1 if served energies shifted significantly.", ("model", "step")),
    "odar_target": (GAUGE, "Target for mean calls or US dollars.", ("scope", "kind")),
    "odar_target_actual": (GAUGE, "Actual mean calls or US dollars.", ("scope", "kind")),
    "odar_certificate_holds": (GAUGE, "1 while the installed certificate holds.", ()),
    "odar_fallback": (GAUGE, "1 while slow answers because the cascade differed from it too often.", ()),
    "odar_excess_difference": (GAUGE, "How much more the cascade differs from slow than slow itself.", ("bound",)),
}
"""Type, help text and labels of each metric."""
_SECONDS = "odar_request_seconds"
"""The histogram of the time per request. Labels of its values are path and upper edge, or path and `sum`."""
_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_EDGE_NAMES = (*map(str, _EDGES), "+Inf")
_PATHS = (*Route, DIRECT, "none")
_ROUTED = "routed"
"""Name of the sums from which `savings` are computed; not exported."""
_COMBINE: Mapping[str, Callable[[float, float], float]] = {
    "odar_in_flight_limit": max,
    "odar_breaker_state": max,
    "odar_store_up": min,
}
"""How the gauges of several workers become one; all other metrics are sums."""
Series = dict[tuple[str, ...], float]
"""The values of a metric by the values of its labels."""
Values = dict[str, Series]
_DECODER = msgspec.msgpack.Decoder(tuple[Values, dict[str, BreakerReport]])


class Metrics(Collector):
    """The metrics of one gateway.

    `count` adds up requests; gauges are read from the parts of the service at each scrape.
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, service: Service) -> None:
        self._service = service
        self._workers = service.workers
        self._tasks = 0
        self._rendering = asyncio.Lock()
        """Allows one scrape at a time, so that scrapes do not use all threads."""
        # Only the event loop increases them, so no locks are needed.
        self._counts: defaultdict[str, Series] = defaultdict(lambda: defaultdict(float))
        for name in ("odar_cost_usd", "odar_unpriced_calls", "odar_degraded"):
            self._counts[name][()] = 0
        predecessor, _ = self._read_snapshot(self._workers.number)
        gauges = {name for name, (family, *_) in _METRICS.items() if family is GAUGE}
        self._inherited = {name: series for name, series in predecessor.items() if name not in gauges}
        """Counters of the worker that this one replaces: the sums must not fall."""

    def count(self, record: Record) -> None:
        """Count one request; its model must be in the settings or `other`, because it becomes a label."""
        counts = self._counts
        trace = record.trace
        path = (record.path if isinstance(trace, Trace) else None) or "none"
        counts["odar_requests"][record.endpoint, path, str(record.http_status)] += 1
        counts[_SECONDS][path, _EDGE_NAMES[bisect_left(_EDGES, record.seconds)]] += 1
        counts[_SECONDS][path, "sum"] += record.seconds
        # its calls
        for call in trace.calls:
            counts["odar_calls"][call.provider, call.model] += call.samples
            if call.failed:
                counts["odar_call_failures"][call.provider, call.model] += 1
            counts["odar_tokens"][call.model, "input"] += call.usage.input or 0
            counts["odar_tokens"][call.model, "cached"] += call.usage.cached or 0
            counts["odar_tokens"][call.model, "output"] += call.usage.output or 0
            if call.cost_usd is None:
                counts["odar_unpriced_calls"][()] += 1
            else:
                counts["odar_cost_usd"][()] += call.cost_usd
        # its answer
        if not isinstance(trace, Trace):
            return
        if trace.plan.session is not None:
            counts["odar_session_requests"][(trace.plan.session.event,)] += 1
        for name, value in routed_sums(trace).items():
            counts[_ROUTED][(name,)] += value
        parameters = record.query.parameters if record.query else NO_PARAMETERS
        for agent, (answers, cut) in cut_off_counts(trace.candidates, parameters).items():
            counts["odar_answers"][(agent,)] += answers
            counts["odar_cut_off_answers"][(agent,)] += cut
        counts["odar_degraded"][()] += bool(trace.degradations)

    async def render(self) -> bytes:
        """All metrics in Prometheus' text format; in a thread, because a source may wait for a file lock."""
        async with self._rendering:
            self._tasks = len(asyncio.all_tasks())
            return await asyncio.to_thread(self.text)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format; may block."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        values = self._own_values()
        for others, _ in self._others():
            _add(values, others)
        routed = {name: value for (name,), value in values.get(_ROUTED, {}).items()}
        values |= _savings(routed) | _shared_values(self._service)
        for name, (family, text, labels) in _METRICS.items():
            metric = family(name, text, labels=labels)
            for label_values, value in sorted(values.get(name, {}).items()):
                metric.add_metric(label_values, value)
            if metric.samples:
                yield metric
        seconds = values.get(_SECONDS, {})
        histogram = HistogramMetricFamily(_SECONDS, "Time per request.", labels=("path",))
        for path in _PATHS:
            counts = accumulate(seconds.get((path, edge), 0) for edge in _EDGE_NAMES)
            histogram.add_metric(
                (path,), list(zip(_EDGE_NAMES, counts, strict=True)), seconds.get((path, "sum"), 0)
            )
        yield histogram

    def breaker_reports(self) -> dict[str, BreakerReport]:
        """The circuit breaker of each provider that was used, in the worst state of any worker."""
        reports = self._own_breakers()
        for _, breakers in self._others():
            for name, report in breakers.items():
                known = reports.get(name, report)
                reports[name] = max(known, report, key=lambda breaker: BREAKER_STATES.index(breaker.state))
        return reports

    def publish(self) -> None:
        """Show the values and breakers of this worker, and the values of its predecessors, to the other workers."""
        self._workers.publish(msgspec.msgpack.encode((self._own_values(), self._own_breakers())))

    async def keep_publishing(self) -> None:
        """Show them again every second, until it is cancelled."""
        while self._workers.count > 1:
            self._tasks = len(asyncio.all_tasks())
            self.publish()
            await asyncio.sleep(PUBLISH_S)

    def _own_breakers(self) -> dict[str, BreakerReport]:
        return {name: breaker.report() for name, breaker in self._service.breakers.copy().items()}

    def _others(self) -> Iterator[tuple[Values, dict[str, BreakerReport]]]:
        return (self._read_snapshot(i) for i in range(self._workers.count) if i != self._workers.number)

    def _read_snapshot(self, number: int) -> tuple[Values, dict[str, BreakerReport]]:
        body = self._workers.snapshot(number)
        return ({}, {}) if body is None else _DECODER.decode(body)

    def _own_values(self) -> Values:
        """The counters and gauges of this worker."""
        service = self._service
        limits = service.connection_limits
        health = service.store.health()
        observer = service.traffic_observer
        values: Values = {name: dict(series) for name, series in self._counts.copy().items()} | {
            "odar_in_flight": {(): service.concurrency_limit.in_flight},
            "odar_in_flight_limit": {(): service.concurrency_limit.limit},
            "odar_tasks": {(): self._tasks},
            "odar_connections": {(): limits.open},
            "odar_refused_connections": {(reason,): count for reason, count in limits.refused.copy().items()},
            "odar_store_up": {(): int(health.ok)},
            "odar_store_queue": {(): health.queued},
            "odar_store_written": {(): health.stored},
            "odar_store_lost": {("shed",): health.dropped, ("rejected",): health.rejected},
            "odar_observed": {(): observer.observed},
            "odar_observe_dropped": {(why,): count for why, count in observer.dropped.copy().items()},
            "odar_breaker_state": {
                (name,): BREAKER_STATES.index(report.state) for name, report in self._own_breakers().items()
            },
        }
        _add(values, self._inherited)
        return values


def _add(values: Values, others: Values) -> None:
    """Add the values of another worker."""
    for name, series in others.items():
        combine: Callable[[float, float], float] = _COMBINE.get(name, operator.add)
        known = values.setdefault(name, {})
        for labels, value in series.items():
            known[labels] = combine(known[labels], value) if labels in known else value


def _savings(routed: Mapping[str, float]) -> Values:
    saved = savings(routed)
    return {
        "odar_saved_calls": {(): saved["calls_saved"]},
        "odar_saved_cost_usd": {} if saved["usd_saved"] is None else {(): saved["usd_saved"]},
        "odar_costs_more_than_slow": {(): bool(saved["warning"])},
        "odar_compared": {(): routed.get("compared", 0)},
        "odar_changed": {(): routed.get("changed", 0)},
    }


def _shared_values(service: Service) -> Values:
    """Values of the whole gateway, from the store and from files; may block."""
    # of several sources of a model and step, the one that drifts most
    drifts = [row for row in service.drift_report() if row.drift_z is not None]
    drifts.sort(key=lambda row: (row.drifting, abs(row.drift_z or 0)))
    # not the targets of requests: clients could create any number of labels
    targets = {
        (row.scope, row.kind): row for row in service.odar.targets.report() if not row.scope.startswith("request")
    }
    values: Values = {
        "odar_energy_drift_z": {(row.model, row.step): row.drift_z or 0.0 for row in drifts},
        "odar_energy_drifting": {(row.model, row.step): row.drifting for row in drifts},
        "odar_target": {key: row.target for key, row in targets.items()},
        "odar_target_actual": {key: row.actual for key, row in targets.items() if row.actual is not None},
        "odar_target_questions": {key: row.questions for key, row in targets.items()},
    }
    if (certificate := service.odar.certificate) is not None:
        values["odar_certificate_holds"] = {(): not certificate.problems()}
    return values | _comparison(service.store.observations)


def _comparison(observations: Observations) -> Values:
    """How often the cascade differs from slow."""
    values: Values = {"odar_fallback": {(): observations.fallback_at is not None}}
    try:
        comparison = observations.comparison()
    except StoreError:
        return values  # `odar_store_up` says so
    excess = comparison.excess()._asdict()
    values["odar_excess_difference"] = {(bound,): value for bound, value in excess.items() if value is not None}
    values["odar_compared_with_slow"] = {(): comparison.questions}
    return values
