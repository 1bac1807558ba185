"""An environment for the processes that tests start."""

from __future__ import annotations

import os


def kept_environment() -> dict[str, str]:
    """Of ours only what finds programs, and what lets `make coverage` see into the process."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "ODAR_OFFLINE") or name.startswith("COV")
    }
