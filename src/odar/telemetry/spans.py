"""Steps of a query as OpenTelemetry spans:

POST /v1/chat/completions        SERVER, at the gateway; child of the client's traceparent
└── invoke_workflow odar         one query
    ├── difficulty
    ├── dispatch
    ├── invoke_agent fast
    │   └── chat MODEL           CLIENT; one request to a provider, which gets its traceparent
    ├── posterior                where the fast answer was looked at first
    ├── invoke_agent slow
    │   └── chat MODEL …
    └── fusion
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from odar.errors import SettingsError
from odar.providers.base import Provider, Reply, Request
from odar.settings import Settings
from odar.telemetry.attributes import (
    WORKFLOW,
    Attributes,
    input_messages,
    of_agent,
    of_answer,
    of_decision,
    of_error,
    of_estimate,
    of_fusion,
    of_reply,
    of_request,
    of_scope,
    of_server,
    output_messages,
)
from odar.types import Answer, Decision, Estimate, Step, Verdict

# Only the two headers of W3C trace context: baggage may hold internal data.
_PROPAGATOR = TraceContextTextMapPropagator()
_SERVER_ERROR = 500
SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
_EXPORTERS = {
    "http/protobuf": ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "odar[otel]"),
    "grpc": ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "opentelemetry-exporter-otlp-proto-grpc"),
}


class Spans:
    """An `Observer` that makes a span of each step.

    Args:
        tracer: makes the spans.
        settings: the providers, and whether texts may be recorded.
    """

    def __init__(self, tracer: Tracer, settings: Settings) -> None:
        self._tracer = tracer
        self._content = settings.store.content
        self._propagate = settings.telemetry.propagate
        self._servers = {name: of_server(name, each) for name, each in settings.providers.items()}
        self._inside = {name for name, each in settings.providers.items() if each.kind in ("local", "replay")}

    @contextmanager
    def watch(self, step: str, fields: Mapping[str, Any]) -> Iterator[None]:
        """One span, current while the step is under way; a failure gives it a type, not a message."""
        name, kind, attributes, parent = self._begin(step, fields)
        with self._tracer.start_as_current_span(
            name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except (asyncio.CancelledError, GeneratorExit):
                span.set_attribute("odar.cancelled", True)  # cancelled by the caller: not an error
                raise
            except BaseException as error:
                span.set_attributes(of_error(error))
                span.set_status(Status(StatusCode.ERROR, str(error) if self._content else None))
                raise

    def tell(self, fact: Any) -> None:
        """Add the result of a step to its span."""
        span = get_current_span()
        if span is INVALID_SPAN or not span.is_recording():
            return
        match fact:
            case Reply():
                span.set_attributes(of_reply(fact))
                if self._content:
                    span.set_attribute("gen_ai.output.messages", output_messages(fact.completions))
            case Estimate():
                span.set_attributes(of_estimate(fact))
            case Decision():
                span.set_attributes(of_decision(fact))
            case (list(candidates), Verdict() as verdict):
                span.set_attributes(of_fusion(candidates, verdict))
            case Answer():
                span.set_attributes(of_answer(fact))
            case Mapping():
                _set(span, fact)

    def headers(self) -> Mapping[str, str]:
        """`traceparent`, and `tracestate` where the client sent one."""
        carrier: dict[str, str] = {}
        if self._propagate:
            _PROPAGATOR.inject(carrier)
        return carrier

    def _begin(self, step: str, fields: Mapping[str, Any]) -> tuple[str, SpanKind, Attributes, Context | None]:
        match step:
            case "request":
                scope = fields["scope"]
                sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
                attributes = of_scope(scope)
                name = f"{attributes['http.request.method']} {attributes['http.route']}"
                return name, SpanKind.SERVER, attributes, _PROPAGATOR.extract(sent)
            case "query":
                attributes = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": WORKFLOW}
                return f"invoke_workflow {WORKFLOW}", SpanKind.INTERNAL, attributes, None
            case "agent":
                agent_step: Step = fields["step"]
                attributes = of_agent(agent_step, fields["self"].cards[agent_step.role].id)
                return f"invoke_agent {agent_step.role}", SpanKind.INTERNAL, attributes, None
            case "chat" | "score" | "forward":
                provider: Provider = fields["self"]
                request: Request = fields["request"]
                attributes = self._servers.get(provider.name, of_server(provider.name, None))
                attributes = attributes | of_request(request, stream=fields.get("on_delta") is not None)
                if step == "score":
                    attributes["odar.scoring"] = True  # the text of another model, to be scored and not answered
                if self._content:
                    attributes["gen_ai.input.messages"] = input_messages(request.messages)
                kind = SpanKind.INTERNAL if provider.name in self._inside else SpanKind.CLIENT
                name = fields["address"].strip("/") if step == "forward" else "chat"
                return f"{name} {request.model}", kind, attributes | {"gen_ai.operation.name": name}, None
        return step, SpanKind.INTERNAL, {}, None


def _set(span: Span, figures: Mapping[str, Any]) -> None:
    span.set_attributes({name: value for name, value in figures.items() if value is not None})
    if figures.get("http.response.status_code", 0) >= _SERVER_ERROR:
        span.set_attribute("error.type", str(figures["http.response.status_code"]))
        span.set_status(Status(StatusCode.ERROR))


def tracer(environ: Mapping[str, str]) -> trace.Tracer:
    """Return a tracer: that of the application's tracer provider if there is one. Sets up nothing global."""
    known = trace.get_tracer_provider()
    provider = _own(_protocol(environ)) if isinstance(known, trace.ProxyTracerProvider) else known
    return provider.get_tracer("odar", version("odar"), SCHEMA)


def resource(environ: Mapping[str, str]) -> Resource:
    """Return the resource of the spans: service `odar`, unless the environment names another."""
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": version("odar")} | ({} if named else {"service.name": "odar"})
    return Resource.create(own)


@cache
def _own(protocol: str) -> TracerProvider:
    """Return the tracer provider of this process; it exports what is left when the process ends."""
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
