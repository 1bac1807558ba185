"""Where spans go: to the application's own tracer provider if it has one, else to the collector of OTEL_*."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from odar.errors import SettingsError

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
_EXPORTERS = {
    "http/protobuf": ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "odar[otel]"),
    "grpc": ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "opentelemetry-exporter-otlp-proto-grpc"),
}


def tracer(environ: Mapping[str, str]) -> trace.Tracer:
    """A tracer for ODAR's spans. What an application has set up is used; nothing global is set up here."""
    known = trace.get_tracer_provider()
    provider = _own(_protocol(environ)) if isinstance(known, trace.ProxyTracerProvider) else known
    return provider.get_tracer("odar", version("odar"), SCHEMA)


def resource(environ: Mapping[str, str]) -> Resource:
    """Who makes the spans: `odar`, unless the environment says otherwise."""
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": version("odar")} | ({} if named else {"service.name": "odar"})
    return Resource.create(own)


@cache
def _own(protocol: str) -> TracerProvider:
    """One for the process: it has a thread. It hands over what it holds when the process ends."""
    provider = TracerProvider(resource=resource(os.environ))
    provider.add_span_processor(BatchSpanProcessor(_exporter(protocol)))
    return provider


def _protocol(environ: Mapping[str, str]) -> str:
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    return next((environ[name] for name in names if environ.get(name)), "http/protobuf")


def _exporter(protocol: str) -> Any:
    if protocol not in _EXPORTERS:
        raise SettingsError(f"OTEL_EXPORTER_OTLP_PROTOCOL = {protocol!r} is not one of: {', '.join(_EXPORTERS)}")
    module, package = _EXPORTERS[protocol]
    try:
        return importlib.import_module(module).OTLPSpanExporter()
    except ImportError:
        message = f"OTEL_EXPORTER_OTLP_PROTOCOL = {protocol!r} needs a package: pip install '{package}'"
        raise SettingsError(message) from None
