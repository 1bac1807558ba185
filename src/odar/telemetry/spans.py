"""OpenTelemetry spans of the steps of a question:

POST /v1/chat/completions        SERVER, at the gateway; child of the client's traceparent
└── invoke_workflow odar         one question
    ├── difficulty
    ├── decision                 the next stage
    ├── invoke_agent fast
    │   └── chat MODEL           CLIENT; one request to a provider, with a traceparent header
    ├── decision
    ├── invoke_agent slow
    │   └── chat MODEL …
    ├── decision                 to stop
    └── fusion

Attributes follow https://github.com/open-telemetry/semantic-conventions-genai (status: development; read in Nov.
2026); others are named `odar.*`. None contains text of a user or a model, unless `telemetry.content` is set. Values
that are unknown are left out, never 0. Three histograms measure the calls: tokens, duration, first chunk.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter, NoOpMeter
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from odar.conversation import Message
from odar.errors import ProviderError, SettingsError
from odar.providers.base import Reply, Request
from odar.settings import ProviderSettings, Settings
from odar.types import Answer, Ask, Decision, Estimate, Verdict, path_name

Attributes = dict[str, Any]
SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
# Only the two headers of W3C trace context, because baggage may contain internal data.
_PROPAGATOR = TraceContextTextMapPropagator()
_SHARED = frozenset({
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port",
})  # fmt: skip
"""Attributes of a span that a measurement has too."""
_SECONDS = [0.01 * 2**i for i in range(14)]
_TOKENS = [4**i for i in range(14)]
_CALL: ContextVar[Attributes | None] = ContextVar("odar_call", default=None)


class Spans:
    """An `Observer` that creates a span for each step, and measures calls.

    Args:
        tracer: creates the spans; None for no spans.
        settings: `providers` and `telemetry`.
        meter: creates the metrics; None for no metrics.
    """

    def __init__(self, tracer: Tracer | None, settings: Settings, meter: Meter | None = None) -> None:
        self._tracer = tracer or trace.NoOpTracer()
        meter = meter or NoOpMeter("odar")

        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(
                f"gen_ai.client.{name}", unit, description, explicit_bucket_boundaries_advisory=bounds
            )

        self._tokens = histogram("token.usage", "{token}", "Number of input and output tokens used.", _TOKENS)
        self._duration = histogram("operation.duration", "s", "GenAI operation duration.", _SECONDS)
        first = "Time to receive the first chunk."
        self._first_chunk = histogram("operation.time_to_first_chunk", "s", first, _SECONDS)
        self._content = settings.telemetry.content
        providers = settings.providers.items()
        self._servers = {name: server_attributes(name, provider) for name, provider in providers}
        self._in_process = {name for name, provider in providers if provider.kind in ("local", "replay")}

    @contextmanager
    def watch(self, step: str, fields: Mapping[str, Any]) -> Iterator[None]:
        """Keep a span open during the step; an error adds its type, but no message, which may quote a user."""
        name, kind, attributes, parent = self._span_arguments(step, fields)
        call: Attributes | None = None
        if step in ("chat", "forward"):
            call = {key: attributes[key] for key in _SHARED & attributes.keys()}
            _CALL.set(call)
        failure: Attributes | None = {}
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            name, parent, kind, _known(attributes), record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except (asyncio.CancelledError, GeneratorExit):
                span.set_attribute("odar.cancelled", True)  # cancelled by the caller: not an error, and no duration
                failure = None
                raise
            except BaseException as error:
                status = error.status if isinstance(error, ProviderError) else None
                failure = {"error.type": type(error).__name__ if status is None else str(status)}
                span.set_attributes(failure)
                span.set_status(Status(StatusCode.ERROR))
                raise
            finally:
                if call is not None:
                    _CALL.set(None)
                    if failure is not None:
                        self._duration.record(time.perf_counter() - started, {**call, **failure})

    def tell(self, fact: Any) -> None:
        """Add the result of a step to its span and to the metrics; what is unknown is left out."""
        if (call := _CALL.get()) is not None:
            self._measure(call, fact)
        span = get_current_span()
        if not span.is_recording():
            return
        attributes = _known(result_attributes(fact))
        if self._content and isinstance(fact, Reply):
            attributes["gen_ai.output.messages"] = json.dumps(
                [
                    _message(Message("assistant", sample.text, tool_calls=sample.tool_calls))
                    | {"finish_reason": sample.finish}
                    for sample in fact.completions
                ]
            )
        status = attributes.get("http.response.status_code", 0)
        if status >= 500:
            attributes["error.type"] = str(status)
            span.set_status(Status(StatusCode.ERROR))
        span.set_attributes(attributes)

    def _measure(self, call: Attributes, fact: Any) -> None:
        match fact:
            case Reply(usage=usage, model=model):
                if model:
                    call["gen_ai.response.model"] = model
                for kind, count in (("input", usage.input), ("output", usage.output)):
                    if count is not None:
                        self._tokens.record(count, {**call, "gen_ai.token.type": kind})
            case {"gen_ai.response.time_to_first_chunk": seconds}:
                self._first_chunk.record(seconds, call)

    def headers(self) -> Mapping[str, str]:
        """`traceparent`, and `tracestate` if the client sent one."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    def _span_arguments(
        self, step: str, fields: Mapping[str, Any]
    ) -> tuple[str, SpanKind, Attributes, Context | None]:
        match step:
            case "request":
                scope = fields["scope"]
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
                attributes = {
                    "http.request.method": scope["method"],
                    "http.route": scope["path"],
                    "url.path": scope["path"],
                    "url.scheme": scope.get("scheme", "http"),
                }
                name = f"{scope['method']} {scope['path']}"
                return name, SpanKind.SERVER, attributes, _PROPAGATOR.extract(headers)
            case "query":
                attributes = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "odar"}
                return "invoke_workflow odar", SpanKind.INTERNAL, attributes, None
            case "agent":
                ask: Ask = fields["ask"]
                attributes = {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": ask.agent,
                    "gen_ai.request.model": fields["self"].cards[ask.agent].id,
                    "odar.step": ask.step.value,
                }
                return f"invoke_agent {ask.agent}", SpanKind.INTERNAL, attributes, None
            case "chat" | "forward":
                provider = fields["provider"]
                request = fields["request"]
                name = fields["address"].strip("/") if step == "forward" else "chat"
                attributes = {
                    "gen_ai.operation.name": "text_completion" if name == "completions" else name,
                    **self._servers.get(provider, {"gen_ai.provider.name": provider}),
                    **request_attributes(request, stream=fields.get("on_delta") is not None),
                }
                if self._content:
                    attributes |= content_attributes(request.messages)
                kind = SpanKind.INTERNAL if provider in self._in_process else SpanKind.CLIENT
                return f"{name} {request.model}", kind, attributes, None
        return step, SpanKind.INTERNAL, {}, None


def server_attributes(name: str, settings: ProviderSettings) -> Attributes:
    """The name and address of a provider, without the password of its URL.

    >>> server_attributes("ollama", ProviderSettings(kind="openai", base_url="http://127.0.0.1:11434/v1"))
    {'gen_ai.provider.name': 'ollama', 'server.address': '127.0.0.1', 'server.port': 11434}
    """
    attributes: Attributes = {"gen_ai.provider.name": name}
    try:
        url = urlsplit(settings.base_url or "")
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:  # reported by the provider
        return attributes
    return attributes | ({"server.address": url.hostname, "server.port": port} if url.hostname else {})


def request_attributes(request: Request, *, stream: bool) -> Attributes:
    """The attributes of a request to a model; None for unknown values and defaults."""
    sampling = request.sampling
    return {
        "gen_ai.request.model": request.model,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.choice.count": request.n if request.n != 1 else None,
        "gen_ai.request.stream": stream or None,
        "gen_ai.output.type": "json" if request.parameters.format else None,
    }


def content_attributes(messages: Iterable[Message]) -> Attributes:
    """The conversation as the conventions write it, without images.

    >>> content_attributes([Message("user", "Hi")])["gen_ai.input.messages"]
    '[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]'
    """
    turns = list(messages)
    system = [{"type": "text", "content": turn.text} for turn in turns if turn.role == "system"]
    others = [_message(turn) for turn in turns if turn.role != "system"]
    return {
        "gen_ai.system_instructions": json.dumps(system) if system else None,
        "gen_ai.input.messages": json.dumps(others),
    }


def _message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    if message.role == "tool":
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}


def result_attributes(fact: Any) -> Attributes:
    """The attributes of the result of a step; None for unknown values."""
    match fact:
        case Reply(usage=usage):
            return {
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.cache_read.input_tokens": usage.cached,
                "gen_ai.usage.cache_creation.input_tokens": usage.written or None,
                "gen_ai.usage.output_tokens": usage.output,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
                "gen_ai.response.model": fact.model or None,
                "gen_ai.response.finish_reasons": [sample.finish for sample in fact.completions] or None,
                "odar.retries": fact.retries or None,
            }
        case Estimate():
            return _named(fact, "difficulty", "estimator")
        case Decision(stage=stage):
            return {"odar.stage": stage and str(stage), **_named(fact, "reason", "p", "q", "price_usd", "gain")}
        case Verdict():
            return {"odar.weights": list(fact.weights) or None, **_named(fact, "winner", "rule")}
        case Answer(trace=trace):
            # The cue of the expert is left out, because it contains words of the question.
            return {
                "odar.trace_id": trace.id,
                "odar.profile": trace.profile,
                "odar.path": path_name(trace.plan, trace.decisions),
                "odar.stages": [str(d.stage) for d in trace.decisions if d.stage is not None],
                "odar.difficulty": trace.plan.estimate.difficulty,
                "odar.expert": trace.plan.assignment.expert,
                "odar.dial": trace.plan.dial,
                "odar.forced": trace.plan.forced,
                "odar.candidates": len(trace.candidates),
                "odar.rule": trace.verdict.rule,
                "odar.calls": trace.spend.calls,
                "odar.cost_usd": trace.spend.cost_usd,
                "odar.degraded": fact.degraded,
            }
    return dict(fact) if isinstance(fact, Mapping) else {}


def _named(value: object, *fields: str) -> Attributes:
    """The attributes `odar.FIELD` of a value's fields."""
    return {f"odar.{field}": getattr(value, field) for field in fields}


def _known(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


# ── where spans and metrics go ──────────────────────────────────────────────────────────────────────────────


def tracer() -> Tracer:
    """A tracer of the application's tracer provider, or of ours if it has none. Sets nothing global."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        provider = own_tracer_provider()
    return provider.get_tracer("odar", version("odar"), SCHEMA)


@cache
def own_tracer_provider() -> TracerProvider:
    """The tracer provider of this process; it exports remaining spans at exit."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(resource=_resource("TRACES"))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def meter() -> Meter:
    """A meter of the application's meter provider, or of ours if it has none. Sets nothing global."""
    provider = metrics.get_meter_provider()
    if isinstance(provider, _ProxyMeterProvider):
        provider = own_meter_provider()
    return provider.get_meter("odar", version("odar"))


@cache
def own_meter_provider() -> MeterProvider:
    """The meter provider of this process; it exports once a minute and at exit."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], _resource("METRICS"))


def _resource(signal: str) -> Resource:
    """The resource of TRACES or METRICS: service `odar`, unless the environment names another.

    Raises:
        SettingsError: the environment names another protocol than the one of our exporters.
    """
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, "http/protobuf") != "http/protobuf":
            message = (
                f"{signal.lower()} are sent as http/protobuf; for another protocol set up a provider of your own"
            )
            raise SettingsError(f"{name} = {os.environ[name]!r}: {message}")
    created = Resource.create({"service.version": version("odar")})
    if str(created.attributes.get("service.name", "")).startswith("unknown_service"):
        return created.merge(Resource({"service.name": "odar"}))
    return created
