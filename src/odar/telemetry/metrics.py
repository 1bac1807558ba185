"""OpenTelemetry metrics of calls to models, by the GenAI semantic conventions: tokens, duration, first chunk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from odar.errors import ProviderError, SettingsError
from odar.providers.base import Reply

_SHARED = frozenset({
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port",
})  # fmt: skip
"""Attributes of a span that a measurement has too."""
_SECONDS = [0.01 * 2**i for i in range(14)]
_TOKENS = [4**i for i in range(14)]
_CALL: ContextVar[dict[str, Any] | None] = ContextVar("odar_call", default=None)
"""The attributes of the call that is measured."""


class CallMetrics:
    """The three histograms of the calls to models."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(
                f"gen_ai.client.{name}", unit, description, explicit_bucket_boundaries_advisory=bounds
            )

        self._tokens = histogram("token.usage", "{token}", "Number of input and output tokens used.", [*_TOKENS])
        self._duration = histogram("operation.duration", "s", "GenAI operation duration.", _SECONDS)
        first = "Time to receive the first chunk."
        self._first_chunk = histogram("operation.time_to_first_chunk", "s", first, _SECONDS)

    @contextmanager
    def measure(self, attributes: Mapping[str, Any]) -> Iterator[None]:
        """Measure a call with these attributes; one that the caller cancels has no duration."""
        call = {name: value for name, value in attributes.items() if name in _SHARED}
        _CALL.set(call)
        started = time.perf_counter()
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._duration.record(time.perf_counter() - started, {**call, "error.type": error_type(error)})
            raise
        else:
            self._duration.record(time.perf_counter() - started, call)
        finally:
            _CALL.set(None)

    def tell(self, fact: Any) -> None:
        """Record the tokens of a reply, or the time of its first chunk; what is unknown is not recorded."""
        if (call := _CALL.get()) is None:
            return
        match fact:
            case Reply(usage=usage, model=model):
                if model:
                    call["gen_ai.response.model"] = model
                for kind, count in (("input", usage.input), ("output", usage.output)):
                    if count is not None:
                        self._tokens.record(count, {**call, "gen_ai.token.type": kind})
            case {"gen_ai.response.time_to_first_chunk": seconds}:
                self._first_chunk.record(seconds, call)


def error_type(error: BaseException) -> str:
    """Return the HTTP status of a provider's error, or the name of its class."""
    status = error.status if isinstance(error, ProviderError) else None
    return type(error).__name__ if status is None else str(status)


def check_protocol(environ: Mapping[str, str], signal: str) -> None:
    """Raise SettingsError if the environment names another protocol than the one of our exporters."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name, "http/protobuf") != "http/protobuf":
            message = (
                f"{signal.lower()} are sent as http/protobuf; for another protocol set up a provider of your own"
            )
            raise SettingsError(f"{name} = {environ[name]!r}: {message}")


def meter(environ: Mapping[str, str], resource: Resource) -> Meter:
    """Return a meter of the application's meter provider, or of ours if it has none. Sets nothing global."""
    provider = metrics.get_meter_provider()
    if isinstance(provider, _ProxyMeterProvider):
        check_protocol(environ, "METRICS")
        provider = _own_provider(resource)
    return provider.get_meter("odar", version("odar"))


@cache
def _own_provider(resource: Resource) -> MeterProvider:
    """Return the meter provider of this process; it exports once a minute and at exit."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
