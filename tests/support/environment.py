"""The environment of processes that tests start."""

from __future__ import annotations

import os


def kept_environment() -> dict[str, str]:
    """Return only the variables needed to find programs and to measure coverage."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "ODAR_OFFLINE") or name.startswith("COV")
    }
