"""A value as the JSON of a response."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from odar.formats import dump_json


class JsonResponse(Response):
    """Starlette's JSONResponse, but written as fast, and of as odd values, as all other JSON here.

    >>> JsonResponse({"answer": "4"}, 201).body
    b'{"answer":"4"}'
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return dump_json(content)
