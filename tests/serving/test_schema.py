"""schemathesis generates requests from /openapi.json."""

from __future__ import annotations

import copy
import threading
import time

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from odar.config import load_settings
from odar.serving.app import create_app
from odar.serving.openapi import openapi_document
from support.live_gateway import MemoryStore
from support.scripted import ScriptedProvider, completion

PASSED = ("/v1/embeddings", "/v1/completions")
MODELS = ["odar", "odar-simple", "odar-medium", "odar-hard", "m", "nothing"]


def described():
    """The served schema with existing model names; random ones would only give 404."""
    schema = copy.deepcopy(openapi_document())
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", *PASSED):
        body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["model"] = {"enum": MODELS}
    return schema


SCHEMA = schemathesis.openapi.from_dict(described())


@pytest.fixture(scope="module")
def address():
    """The URL of a gateway in a thread, with a model that always answers."""
    provider = ScriptedProvider(lambda request, index: [completion("It is four.")] * request.n, "p")
    given = load_settings(
        "tiny",
        environ={},
        providers={"p": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
        models={"m": {"provider": "p", "logprobs": True, "n": True, "images": True}},
        fast__model="m",
        slow__model="m",
    )
    config = uvicorn.Config(
        create_app(given, store=MemoryStore(), providers={"p": provider}), port=0, log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    while httpx.get(f"{address}/readyz").status_code != 200:  # imports in its thread disturb ast.parse in ours
        time.sleep(0.05)
    yield address
    server.should_exit = True
    thread.join()


@pytest.mark.filterwarnings("ignore")
@SCHEMA.parametrize()
@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_no_request_of_the_schema_causes_a_server_error(case, address):
    """No 500, and every response is in the schema."""
    response = case.call(base_url=address)
    # A deadline of 5e-324 s fits the description, and 504 is the right answer to it; 500 never is.
    assert response.status_code < 500 or response.status_code == 504, f"{response.status_code} {response.text}"
    # A schema cannot say that odar.path goes with model odar only.
    case.validate_response(response, excluded_checks=[positive_data_acceptance, not_a_server_error])


def test_token_counts_headers_and_nullable_fields_are_described():
    paths = openapi_document()["paths"]
    asked = paths["/v1/messages"]["post"]
    assert "/v1/messages/count_tokens" in paths
    assert {"x-odar-path", "x-odar-target-cost-usd"} <= {header["name"] for header in asked["parameters"]}
    system = asked["requestBody"]["content"]["application/json"]["schema"]["properties"]["system"]
    assert {"type": "null"} in system["anyOf"]


def test_only_endpoints_that_stream_describe_a_stream():
    posts = {path: item["post"] for path, item in openapi_document()["paths"].items() if "post" in item}
    streams = {path for path, post in posts.items() if "text/event-stream" in post["responses"]["200"]["content"]}
    assert streams == {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"}
