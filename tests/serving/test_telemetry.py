"""Trace context: the client's span is the parent, and providers get that of the gateway."""

from __future__ import annotations

from opentelemetry.trace import SpanKind, StatusCode

from odar.config import load_settings
from support import fault_server as faults
from support.gateway import turn
from support.spans import SpanBook

CHAT = "/v1/chat/completions"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1", "baggage": "user=ann-secret"}
SECRET = "xyzzy-plugh-4711"


async def traced(start, **overrides):
    book = SpanBook()
    settings = load_settings("tiny", environ={}, **{k: v for k, v in overrides.items() if "telemetry" in k})
    live = await start(app_options={"observer": book.observer(settings)}, **overrides)
    return live, book


async def test_traceparent_is_propagated_from_client_to_provider(start, up, slow):
    live, book = await traced(start)
    status, _, _ = await live.post(CHAT, {"model": "odar-hard", "messages": turn()}, headers=PARENT)
    await live.entry()
    assert status == 200
    (request,) = book.named(f"POST {CHAT}")
    assert (request.kind, request.parent.span_id) == (SpanKind.SERVER, int(SPAN, 16))
    assert request.attributes["http.response.status_code"] == 200
    assert {span.context.trace_id for span in book.all()} == {int(TRACE, 16)}
    assert "invoke_workflow odar" in book.tree()[f"POST {CHAT}"]
    (asked,) = up.requests
    chat = book.one("chat quick")
    assert asked.headers["traceparent"] == f"00-{TRACE}-{chat.context.span_id:016x}-01"
    assert asked.headers["tracestate"] == "vendor=1"
    assert "baggage" not in asked.headers
    deep = {f"00-{TRACE}-{span.context.span_id:016x}-01" for span in book.named("chat deep")}
    assert {request.headers["traceparent"] for request in slow.requests} == deep


async def test_a_stream_is_one_request_span(start, up):
    live, book = await traced(start)
    status, text = await live.text(CHAT, {"model": "quick", "messages": turn(), "stream": True})
    await live.entry()
    assert status == 200
    assert text.rstrip().endswith("[DONE]")
    assert book.one("chat quick").attributes["gen_ai.request.stream"] is True
    assert book.one(f"POST {CHAT}").parent is None


async def test_spans_of_rejected_and_failed_requests(start, up, slow):
    live, book = await traced(start)
    await live.post(CHAT, {"model": "nonsense", "messages": turn(SECRET)})
    for server in (up, slow):
        server.behave(faults.status(500, message=f"cannot answer {SECRET}"))
    await live.post(
        CHAT, {"model": "odar", "messages": turn(SECRET)}, headers={"authorization": f"Bearer {SECRET}"}
    )
    refused, failed = book.named(f"POST {CHAT}")
    assert refused.attributes["http.response.status_code"] == 404
    assert refused.status.status_code is StatusCode.UNSET
    assert failed.attributes["http.response.status_code"] == 500
    assert failed.status.status_code is StatusCode.ERROR
    assert SECRET not in book.everything()


async def test_an_invalid_traceparent_is_ignored(start):
    live, book = await traced(start)
    await live.post(CHAT, {"model": "quick", "messages": turn()}, headers={"traceparent": "00-zz-zz-01"})
    assert book.one(f"POST {CHAT}").parent is None
