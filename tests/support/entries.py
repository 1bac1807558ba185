"""Records of requests, as the gateway writes them."""

from __future__ import annotations

from typing import Any

from odar.serving.records import Entry


def entry(**fields: Any) -> Entry:
    """Return the record of an answered request without a key."""
    known = {"trace_id": "t", "endpoint": "e", "model": "m", "status": 200, "seconds": 0.1, "stream": False}
    return Entry(**{**known, "key_id": None, **fields})
