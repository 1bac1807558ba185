"""When spans are recorded, where they are sent, and that nothing is imported while disabled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

import odar.telemetry
from odar.config import load_settings
from odar.errors import SettingsError
from odar.telemetry import spans, telemetry_observer

COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Set these and no other variables of OpenTelemetry."""

    def replace(chosen):
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        for name, value in chosen.items():
            monkeypatch.setenv(name, value)

    replace({})
    return replace


def wanted(signal="TRACES", **overrides) -> bool:
    return odar.telemetry._is_enabled(load_settings("tiny", environ={}, **overrides), signal)


def test_telemetry_is_off_by_default():
    assert not wanted()
    assert telemetry_observer(load_settings("tiny", environ={})) is None


@pytest.mark.parametrize(
    ("environ", "enabled", "result"),
    [
        (COLLECTOR, None, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, None, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None, False),
        ({**COLLECTOR, "OTEL_TRACES_EXPORTER": "none"}, None, False),
        (COLLECTOR, False, False),
        ({}, True, True),
        ({"OTEL_SDK_DISABLED": "True"}, True, False),
    ],
)
def test_telemetry_is_enabled_by_a_setting_or_the_standard_variables(variables, environ, enabled, result):
    variables(environ)
    overrides = {} if enabled is None else {"telemetry__enabled": enabled}
    assert wanted(**overrides) is result


def test_spans_and_metrics_are_enabled_by_themselves(variables):
    variables({**COLLECTOR, "OTEL_METRICS_EXPORTER": "none"})
    assert wanted() and not wanted("METRICS")
    variables({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"})
    assert wanted("METRICS") and not wanted()


def test_opentelemetry_is_not_imported_while_disabled():
    code = (
        "import sys, asyncio\nfrom odar import Odar, load_settings\nimport odar.serving.app\n"
        "odar = Odar(load_settings('tiny', environ={}))\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environ = {"PATH": "/usr/bin", "HOME": "/nonexistent"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ)
    assert run.stdout.strip() == "[]"


def test_a_missing_package_names_the_extra_to_install(monkeypatch, variables, caplog):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install .*\[otel\]'"):
        telemetry_observer(load_settings("tiny", environ={}, telemetry__enabled=True))
    variables(COLLECTOR)
    assert telemetry_observer(load_settings("tiny", environ={})) is None
    assert "[otel]'" in caplog.text


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"])
def test_another_protocol_is_rejected(variables, name):
    variables({name: "grpc"})
    with pytest.raises(SettingsError, match=f"{name} = 'grpc': traces are sent as http/protobuf"):
        spans.tracer()


def test_the_provider_of_an_application_is_used(monkeypatch):
    theirs = TracerProvider()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: theirs)
    tracer = spans.tracer()
    assert tracer.resource is theirs.resource
    theirs.shutdown()


def test_the_service_name(monkeypatch):
    assert spans._resource("TRACES").attributes["service.name"] == "odar"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "questions")
    assert spans._resource("TRACES").attributes["service.name"] == "questions"


def test_spans_and_metrics_reach_a_collector(tmp_path: Path):
    """Run the OTLP exporter in a process with a collector that counts bytes."""
    code = """
import http.server, threading, os, sys
received = []
class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
from odar import load_settings
from odar.telemetry import spans, telemetry_observer
observer = telemetry_observer(load_settings("tiny"))
with observer.watch("difficulty", {}): pass
from odar.providers.base import Reply, Request
from odar.types import Usage
fields = {"provider": "openai", "request": Request("m", ())}
with observer.watch("chat", fields): observer.tell(Reply((), Usage(input=3, output=2)))
spans.own_tracer_provider().force_flush()
spans.own_meter_provider().force_flush()
bodies = dict(received)
print(*sorted(bodies), b"difficulty" in bodies["/v1/traces"], b"gen_ai.client.token.usage" in bodies["/v1/metrics"])
"""
    environ = {"PATH": "/usr/bin", "HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, cwd=tmp_path)
    assert run.stdout.split() == ["/v1/metrics", "/v1/traces", "True", "True"], run.stderr
