"""OpenTelemetry spans of a question, by the GenAI semantic conventions. Off by default; needs `odar[otel]`."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping

from odar.errors import SettingsError
from odar.observer import Observer
from odar.settings import Settings

INSTALL = "pip install 'odar[otel]'"
_ADDRESSES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def telemetry_of(settings: Settings, environ: Mapping[str, str] | None = None) -> Observer | None:
    """Return the observer that creates spans, or None if spans are off.

    Raises:
        SettingsError: spans are asked for and the extra is not installed.
    """
    environ = os.environ if environ is None else environ
    if not _wanted(settings, environ):
        return None
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        if settings.telemetry.enabled:
            raise SettingsError(f"telemetry.enabled = true needs the OpenTelemetry SDK: {INSTALL}")
        logging.getLogger(__name__).warning("OTEL_* is set, but the SDK is not there: no spans (%s)", INSTALL)
        return None
    from odar.telemetry.spans import Spans, tracer

    return Spans(tracer(environ), settings)


def _wanted(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Return whether spans are enabled, by the setting or OpenTelemetry's variables; OTEL_SDK_DISABLED wins."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if settings.telemetry.enabled is not None:
        return settings.telemetry.enabled
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environ.get(name, "").strip() for name in _ADDRESSES)
