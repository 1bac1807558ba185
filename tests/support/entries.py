"""Records of requests, as the gateway writes them, and what its metrics read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odar.serving.concurrency import ConcurrencyLimit
from odar.serving.connections import ConnectionLimits
from odar.serving.workers import Workers
from odar.traces.confidence_sequence import Differences
from odar.traces.record import Record, Unanswered
from odar.traces.writer import Health
from odar.types import Query


def entry(**fields: Any) -> Record:
    """Return the record of a request without a trace and without a key."""
    head = {"id": "t", "started_at": "2026-11-15T10:00:00.000+00:00", "profile": "tiny"}
    known = {"query": Query("Who?"), "trace": Unanswered(**head), "endpoint": "e", "model": "m", "seconds": 0.1}
    return Record(**{**known, **fields})


def part_of_a_service(**parts: Any) -> Any:
    """Return the parts of a service that metrics are read from; those not given report nothing."""
    known = {
        "workers": (workers := parts.get("workers") or Workers()),
        "concurrency_limit": ConcurrencyLimit(8, workers=workers),
        "connection_limits": ConnectionLimits(),
        "breakers": {},
        "store": SimpleNamespace(
            health=lambda: Health(True, 0, 0, 0, 0, None),
            observations=SimpleNamespace(fallback_at=None, comparison=Differences),
        ),
        "traffic_observer": SimpleNamespace(observed=0, dropped={}),
        "drift_report": list,
        "odar": SimpleNamespace(targets=SimpleNamespace(report=list), certificate=None),
    }
    return SimpleNamespace(**known | parts)
