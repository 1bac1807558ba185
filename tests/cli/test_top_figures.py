"""From two looks at /metrics to what happened in between."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.cli.top_figures import Sample, figures, quantile
from odar.gateway.gate import Gate
from odar.gateway.metrics import Metrics
from odar.gateway.ports import Entry
from odar.providers.breaker import Breaker
from odar.store.writer import Health
from support.traces import make_answer


def entry(path="simple", status=200, seconds=0.2, answered=True, **options) -> Entry:
    answer = make_answer(path, **options)
    return Entry(
        trace_id="t",
        endpoint="chat.completions",
        model="odar",
        status=status,
        seconds=seconds,
        stream=False,
        key_id=None,
        trace=answer.trace if answered else None,
        calls=() if answered else answer.trace.calls,
    )


class Gateway:
    """The real metrics, without the gateway."""

    def __init__(self):
        self.gate = Gate(8)
        self.metrics = Metrics(self.gate, models=("cheap", "dear"))
        self.health = Health(True, 3, 10, 1, 1, None)
        self.metrics.watch_store(lambda: self.health)

    def look(self, at):
        return Sample.parse(self.metrics.text().decode(), at)


def test_what_happened_in_between():
    gateway = Gateway()
    gateway.metrics.count(entry("hard"))
    before = gateway.look(0)
    for _ in range(6):
        gateway.metrics.count(entry("simple", seconds=0.2))
    for _ in range(2):
        gateway.metrics.count(entry("hard", seconds=4.0))
    gateway.metrics.count(entry(status=502, answered=False, cost=None))
    gateway.gate.enter()
    found = figures(gateway.look(2), before)
    assert (found.window_s, found.requests, found.requests_per_s) == (2, 9, 4.5)
    assert found.calls_per_s == 9  # two a request, and those of the one that failed
    assert found.cost_per_h == pytest.approx(8 * 2 * 0.002 / 2 * 3600)
    assert found.unpriced_calls == 2
    assert {path: each.requests for path, each in found.paths.items()} == {"simple": 6, "hard": 2, "none": 1}
    assert found.paths["simple"].share == pytest.approx(6 / 9)
    assert 0.1 <= found.paths["simple"].p50 <= 0.25
    assert 2.5 <= found.paths["hard"].p99 <= 5
    assert found.errors == {"502": 1}
    assert (found.in_flight, found.in_flight_limit) == (1, 8)
    assert (found.store_up, found.store_queue, found.store_lost) == (True, 3, 0)


def test_one_look_alone_has_sums_and_no_rates():
    gateway = Gateway()
    gateway.metrics.count(entry())
    found = figures(gateway.look(5))
    assert (found.requests, found.requests_per_s, found.window_s, found.cost_per_h) == (1, None, None, None)
    assert found.store_lost == 2


def test_a_gateway_that_was_started_anew_counts_from_nothing():
    old, new = Gateway(), Gateway()
    for _ in range(5):
        old.metrics.count(entry())
    new.metrics.count(entry())
    assert figures(new.look(1), old.look(0)).requests == 1


def test_models_and_breakers():
    gateway = Gateway()
    breaker = Breaker(failures=1)
    gateway.metrics.watch("p", breaker)
    before = gateway.look(0)
    gateway.metrics.count(entry("medium", error="boom"))
    gateway.metrics.count(entry("medium", error="cancelled"))
    breaker.failed()
    found = figures(gateway.look(1), before)
    assert found.breakers == {"p": "open"}
    assert found.models["dear"].provider == "p"
    assert found.models["dear"].failures_per_s == 1  # one that was no longer needed is no failure
    assert found.models["cheap"].tokens_per_s == 20


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=50), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values, q):
    bounds = [0.01, 0.1, 1.0, 10.0, 100.0, math.inf]
    buckets = [(bound, float(sum(v <= bound for v in values))) for bound in bounds]
    true = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    found = quantile(q, buckets)
    upper = next(bound for bound in bounds if true <= bound)
    lower = max((bound for bound in bounds if bound < true), default=0.0)
    assert lower <= found <= upper
