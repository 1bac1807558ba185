"""OpenTelemetry spans and metrics by the GenAI semantic conventions. Off by default; needs `odar[otel]`."""

from __future__ import annotations

import importlib.util
import logging
import os

from odar.errors import SettingsError
from odar.files import install_command
from odar.observer import Observer
from odar.settings import Settings


def telemetry_observer(settings: Settings) -> Observer | None:
    """The observer that creates spans and metrics, or None if both are off.

    Raises:
        SettingsError: `telemetry.enabled` is true and the extra is not installed.
    """
    traces, metrics = (_is_enabled(settings, signal) for signal in ("TRACES", "METRICS"))
    if not traces and not metrics:
        return None
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        if settings.telemetry.enabled:
            raise SettingsError(f"telemetry.enabled = true needs the OpenTelemetry SDK: {install_command('otel')}")
        logging.getLogger(__name__).warning(
            "no spans and metrics, although OTEL_* is set: the SDK is not installed (%s)", install_command("otel")
        )
        return None
    from odar.telemetry.spans import Spans, meter, tracer

    return Spans(tracer() if traces else None, settings, meter() if metrics else None)


def _is_enabled(settings: Settings, signal: str) -> bool:
    """Whether the settings or OpenTelemetry's variables enable TRACES or METRICS."""
    if _variable("SDK_DISABLED") == "true":
        return False
    if settings.telemetry.enabled is not None:
        return settings.telemetry.enabled
    endpoint = _variable("EXPORTER_OTLP_ENDPOINT") or _variable(f"EXPORTER_OTLP_{signal}_ENDPOINT")
    return bool(endpoint) and _variable(f"{signal}_EXPORTER") != "none"


def _variable(name: str) -> str:
    return os.environ.get(f"OTEL_{name}", "").strip().lower()
