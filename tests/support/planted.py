"""Secrets for tests, and a search that finds them in every encoding."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote

from support.fault_server import Behaviour, Exchange
from support.payloads import chat_events

ENVIRONMENT_KEY = "sk-planted/environment+0123456789"
FILE_KEY = "sk-planted-file-9876543210"
PASSWORD = "planted:pass/word@77"
STORE_PASSWORD = "planted-store-password"
ALL = (ENVIRONMENT_KEY, FILE_KEY, PASSWORD, STORE_PASSWORD)


def forms(secret: str) -> set[bytes]:
    """How a secret may be written: as it is, in an address, inside JSON, in a Basic header."""
    texts = {secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    whole = {text.encode() for text in texts}
    return whole | {base64.b64encode(f"{user}{secret}".encode()) for user in ("", "user:", ":")}


def found_in(data: bytes | str, secrets: Iterable[str] = ALL) -> list[str]:
    """Return the secrets in a text."""
    data = data.encode() if isinstance(data, str) else data
    return [secret for secret in secrets if any(form in data for form in forms(secret))]


def echoes(status: int = 401, *, shape: str = "openai") -> Behaviour:
    """Reply with an error that repeats the headers of the request, as debug pages do."""

    async def behave(exchange: Exchange) -> None:
        said, key = (
            f"you sent {exchange.headers}",
            exchange.headers.get("authorization") or exchange.headers.get("x-api-key", ""),
        )
        match shape:
            case "openai":
                body = {"error": {"message": said, "code": key, "debug": exchange.headers}}
                await exchange.send_json(body, status)
            case "text":
                await exchange.send(said.encode(), status, "text/plain")
            case "in-a-200":
                await exchange.send_json({"error": {"message": said, "type": "server_error"}})
            case "wrong-shape":
                await exchange.send_json({"choices": said, "headers": exchange.headers})
            case "stream":
                await exchange.send_events([*chat_events("a")[:1], {"error": {"message": said}}])
            case "redirect":
                await exchange.send_json({}, 307, location=f"http://127.0.0.1:9/{key}")
            case "header":
                await exchange.send_json({}, 429, retry_after=key.replace(" ", ""))

    return behave


SHAPES = ("openai", "text", "in-a-200", "wrong-shape", "stream", "redirect", "header")
