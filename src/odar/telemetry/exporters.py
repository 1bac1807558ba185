"""Where spans and metrics go: to the application's OpenTelemetry providers, or to exporters of our own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from odar.errors import SettingsError

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"


def tracer(environ: Mapping[str, str]) -> Tracer:
    """Return a tracer of the application's tracer provider, or of ours if it has none. Sets nothing global."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        _check_protocol(environ, "TRACES")
        provider = own_tracer_provider()
    return provider.get_tracer("odar", version("odar"), SCHEMA)


@cache
def own_tracer_provider() -> TracerProvider:
    """Return the tracer provider of this process; it exports remaining spans at exit."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _resource() -> Resource:
    """Return the resource of spans and metrics: service `odar`, unless the environment names another."""
    created = Resource.create({"service.version": version("odar")})
    if str(created.attributes.get("service.name", "")).startswith("unknown_service"):
        return created.merge(Resource({"service.name": "odar"}))
    return created


def meter(environ: Mapping[str, str]) -> Meter:
    """Return a meter of the application's meter provider, or of ours if it has none. Sets nothing global."""
    provider = metrics.get_meter_provider()
    if isinstance(provider, _ProxyMeterProvider):
        _check_protocol(environ, "METRICS")
        provider = own_meter_provider()
    return provider.get_meter("odar", version("odar"))


@cache
def own_meter_provider() -> MeterProvider:
    """Return the meter provider of this process; it exports once a minute and at exit."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], _resource())


def _check_protocol(environ: Mapping[str, str], signal: str) -> None:
    """Raise SettingsError if the environment names another protocol than the one of our exporters."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name, "http/protobuf") != "http/protobuf":
            message = (
                f"{signal.lower()} are sent as http/protobuf; for another protocol set up a provider of your own"
            )
            raise SettingsError(f"{name} = {environ[name]!r}: {message}")
