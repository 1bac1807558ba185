"""OpenTelemetry spans of questions, by the GenAI semantic conventions. Off by default; needs `odar[otel]`."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping

from odar.errors import SettingsError
from odar.files import install_command
from odar.observer import Observer
from odar.settings import Settings

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def telemetry_observer(settings: Settings, environ: Mapping[str, str] | None = None) -> Observer | None:
    """Return the observer that creates spans, or None if spans are off.

    Raises:
        SettingsError: `telemetry.enabled` is true and the extra is not installed.
    """
    environ = os.environ if environ is None else environ
    if not _is_enabled(settings, environ):
        return None
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        if settings.telemetry.enabled:
            raise SettingsError(f"telemetry.enabled = true needs the OpenTelemetry SDK: {install_command('otel')}")
        logging.getLogger(__name__).warning(
            "no spans, although OTEL_* is set: the SDK is not installed (%s)", install_command("otel")
        )
        return None
    from odar.telemetry.spans import Spans, tracer

    return Spans(tracer(environ), settings)


def _is_enabled(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Return whether the settings or OpenTelemetry's variables enable spans; OTEL_SDK_DISABLED overrides both."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if settings.telemetry.enabled is not None:
        return settings.telemetry.enabled
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return False
    return any(environ.get(name, "").strip() for name in _ENDPOINT_VARIABLES)
