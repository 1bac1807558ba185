"""The dashboard's files, read once from the package and known by their names alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # a string can never become markup, not even by our own mistake
        "trusted-types 'none'",
    )
)
"""What the page may do: run and load its own files, ask its own server, and nothing else."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # revalidate each time, so that an upgrade shows at once
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is served."""

    body: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, File]:
    """Every file by name. A name that is not a key here is not served: no path is ever made from a request.

    >>> files()["index.html"].media_type
    'text/html; charset=utf-8'
    """
    found = {}
    for entry in resources.files("odar.dashboard").joinpath("static").iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            found[entry.name] = File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return found
