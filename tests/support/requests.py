"""Requests for providers, and a key that must never be shown."""

from __future__ import annotations

from typing import Any

from odar.providers.base import Message, Request

KEY = "sk-planted-0123456789"


def ask(text: str = "2 + 2?", **fields: Any) -> Request:
    """Return a small request with a short timeout.

    >>> ask(n=5).n
    5
    """
    return Request(**{"model": "m", "messages": (Message("user", text),), "timeout_s": 5.0} | fields)
