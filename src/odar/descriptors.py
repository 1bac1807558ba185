"""File descriptors of this process, and how many of them connections may use."""

from __future__ import annotations

import sys

_MOST = 65_536
"""Descriptors that are asked for where the system sets no limit."""
_OTHER_FILES = 64
"""Descriptors for the store, logs, weights and the event loop."""
_UNLIMITED = 1 << 20


def raise_descriptor_limit() -> int:
    """Raise the soft limit on descriptors (`ulimit -n`, often 1024) to the hard one; return what is allowed now."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def descriptor_limit() -> int:
    if sys.platform == "win32":
        return _UNLIMITED
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def client_connections() -> int:
    """How many connections clients may open: half of the descriptors."""
    return max(8, (descriptor_limit() - _OTHER_FILES) // 2)


def server_connections() -> int:
    """How many connections to one model server may be open: an eighth of the descriptors, at most 1,024."""
    return min(1024, max(4, (descriptor_limit() - _OTHER_FILES) // 8))
