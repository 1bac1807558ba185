"""What a gateway's /metrics say about the last seconds: rates, shares and quantiles between two looks at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]

_BREAKERS = {0: "closed", 1: "half open", 2: "open"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Every figure of one look, by its name and labels."""

    at: float
    values: Mapping[tuple[str, Labels], float]

    @classmethod
    def parse(cls, text: str, at: float) -> Sample:
        """Prometheus' text format.

        >>> Sample.parse('a_total{b="c"} 2\\n', 0.0).values
        {('a_total', (('b', 'c'),)): 2.0}
        """
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return cls(at, {(s.name, tuple(sorted(s.labels.items()))): float(s.value) for s in samples})

    def one(self, name: str) -> float | None:
        """A figure without labels; None where the gateway does not have it."""
        return self.values.get((name, ()))

    def of(self, name: str) -> dict[Labels, float]:
        """A figure by its labels."""
        return {labels: value for (known, labels), value in self.values.items() if known == name}


@dataclass(frozen=True, slots=True)
class PathFigures:
    """One path; times in seconds, None where no request took it."""

    requests: float
    share: float
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """One model, by rates."""

    provider: str
    calls_per_s: float | None
    failures_per_s: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The gateway between two looks; since its start where there is only one, and then without rates."""

    window_s: float | None
    requests: float
    requests_per_s: float | None
    calls_per_s: float | None
    cost_per_h: float | None
    """US dollars, of the calls whose price is known."""
    unpriced_calls: float
    degraded: float
    in_flight: float | None
    in_flight_limit: float | None
    paths: Mapping[str, PathFigures] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    """Requests by status, from 400 on."""
    breakers: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, ModelFigures] = field(default_factory=dict)
    store_up: bool | None = None
    store_queue: float | None = None
    store_lost: float | None = None


def figures(after: Sample, before: Sample | None = None) -> Figures:
    """What happened between two looks."""
    look = _Look(after, before)
    requests = look.by("odar_requests_total", "path")
    total = sum(requests.values())
    up = after.one("odar_store_up")
    return Figures(
        window_s=look.seconds,
        requests=total,
        requests_per_s=look.rate(total),
        calls_per_s=look.rate(sum(look.by("odar_calls_total", "model").values())),
        cost_per_h=look.rate(look.total("odar_cost_usd_total"), 3600),
        unpriced_calls=look.total("odar_unpriced_calls_total"),
        degraded=look.total("odar_degraded_total"),
        in_flight=after.one("odar_in_flight"),
        in_flight_limit=after.one("odar_in_flight_limit"),
        paths={path: look.path(path, count, total) for path, count in requests.items() if count},
        errors=dict(
            sorted((s, n) for s, n in look.by("odar_requests_total", "status").items() if s >= "400" and n)
        ),
        breakers={
            dict(k)["provider"]: _BREAKERS.get(int(v), "?") for k, v in after.of("odar_breaker_state").items()
        },
        models=look.models(),
        store_up=None if up is None else bool(up),
        store_queue=after.one("odar_store_queue"),
        store_lost=sum(look.by("odar_store_lost_total", "why").values()) if up is not None else None,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """Differences of counters."""

    after: Sample
    before: Sample | None

    @property
    def seconds(self) -> float | None:
        return None if self.before is None else self.after.at - self.before.at

    def rate(self, count: float, per_s: float = 1) -> float | None:
        return count / self.seconds * per_s if self.seconds else None

    def grown(self, name: str) -> dict[Labels, float]:
        """How much each counter grew; one that shrank belongs to a gateway that was started anew, from 0."""
        then = self.before.of(name) if self.before else {}
        return {
            labels: value - (then.get(labels, 0) if value >= then.get(labels, 0) else 0)
            for labels, value in self.after.of(name).items()
        }

    def by(self, name: str, label: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for labels, count in self.grown(name).items():
            key = dict(labels).get(label, "")
            sums[key] = sums.get(key, 0) + count
        return sums

    def total(self, name: str) -> float:
        return sum(self.grown(name).values())

    def path(self, path: str, count: float, total: float) -> PathFigures:
        found = {
            float(dict(labels)["le"]): grown
            for labels, grown in self.grown("odar_request_seconds_bucket").items()
            if dict(labels)["path"] == path
        }
        buckets = sorted(found.items())
        return PathFigures(count, count / total, quantile(0.5, buckets), quantile(0.99, buckets))

    def models(self) -> dict[str, ModelFigures]:
        calls, failures = self.by("odar_calls_total", "model"), self.by("odar_call_failures_total", "model")
        owners = {dict(labels)["model"]: dict(labels)["provider"] for labels in self.after.of("odar_calls_total")}
        tokens = {
            dict(labels)["model"]: grown
            for labels, grown in self.grown("odar_tokens_total").items()
            if dict(labels)["kind"] == "output"
        }
        return {
            model: ModelFigures(
                owners[model],
                self.rate(count),
                self.rate(failures.get(model, 0)),
                self.rate(tokens.get(model, 0)),
            )
            for model, count in sorted(calls.items(), key=lambda item: (-item[1], item[0]))
        }


def quantile(q: float, buckets: Iterable[tuple[float, float]]) -> float | None:
    """A quantile from cumulative buckets, interpolated as Prometheus does; beyond the last bound, that bound.

    >>> quantile(0.5, [(1.0, 2.0), (2.0, 4.0), (math.inf, 4.0)])
    1.0
    >>> quantile(0.99, [(1.0, 0.0), (math.inf, 5.0)])
    1.0
    >>> quantile(0.5, [(1.0, 0.0), (math.inf, 0.0)])
    """
    known = list(buckets)
    if not known or not known[-1][1]:
        return None
    rank, low, below = q * known[-1][1], 0.0, 0.0
    for bound, count in known:
        if count >= rank:
            if math.isinf(bound):
                return low
            inside = count - below
            return low + (bound - low) * ((rank - below) / inside if inside else 1.0)
        low, below = bound, count
    return low
