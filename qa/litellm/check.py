"""ODAR's plug-in in a real LiteLLM proxy, with stub upstreams: `make qa-litellm`.

The proxy runs in its own environment, with ODAR installed beside it. Three models of its list answer by a script;
a question to model `odar` must walk the cascade over them. The transcript goes to standard output, and into
docs/guides/ecosystem.md by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HERE = Path(__file__).parent
PROXY_PORT = 9562
SPOKEN = {
    "gpt-4.1-nano": {"17": "395", "19": "440"},
    "gemini-3.5-flash-lite": {"17": "395", "19": "441"},
    "gpt-4.1": {"17": "395", "19": "441"},
}
"""What each model answers to the question with this number in it."""


class Upstream(BaseHTTPRequestHandler):
    """A model server: `Answer: …` by the script, a poem for all else, 503 for models that are down."""

    protocol_version = "HTTP/1.1"
    requests: list[tuple[str, str]] = []
    """Model and API key of each request."""
    down: set[str] = set()

    def do_POST(self) -> None:
        """Answer a chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model = body["model"]
        self.requests.append((model, self.headers["authorization"]))
        if model in self.down:
            return self._send(503, {"error": {"message": "out of order", "type": "server_error"}})
        question = str(body["messages"][-1]["content"])
        found = next((said for number, said in SPOKEN[model].items() if number in question), None)
        text = f"Answer: {found}" if found else "Green buds, and rain."
        if body.get("stream"):
            return self._stream(model, text)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
        return self._send(200, {"id": "u", "object": "chat.completion", "created": 1, "model": model,
                                "choices": [choice] * (body.get("n") or 1), "usage": usage})  # fmt: skip

    def _send(self, status: int, payload: Any) -> None:
        data = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, model: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        head = {"id": "u", "object": "chat.completion.chunk", "created": 1, "model": model}
        for word in text.split(" "):
            delta = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
            self.wfile.write(f"data: {json.dumps(head | {'choices': [delta]})}\n\n".encode())
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}}
        for event in (last, usage):
            self.wfile.write(f"data: {json.dumps(head | event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def upstream() -> Iterator[str]:
    """Yield the address of the model server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


@contextmanager
def proxy(address: str, log: Path) -> Iterator[str]:
    """Yield the address of a LiteLLM proxy."""
    environ = os.environ | {"UPSTREAM": address, "LITELLM_LOG": "ERROR", "CHARGED": str(log) + ".charged"}
    command = [Path(sys.executable).parent / "litellm", "--config", HERE / "config.yaml", "--host", "127.0.0.1"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*map(str, command), "--port", str(PROXY_PORT)], env=environ, stdout=out, stderr=out
        )
        try:
            for _ in range(240):
                try:
                    urlopen(f"http://127.0.0.1:{PROXY_PORT}/health/liveliness", timeout=2).close()
                    break
                except OSError:
                    time.sleep(0.5)
                    if process.poll() is not None:
                        raise SystemExit(f"the proxy ended; see {log}") from None
            yield f"http://127.0.0.1:{PROXY_PORT}/v1/chat/completions"
        finally:
            process.terminate()
            process.wait(30)


def ask(url: str, question: str, model: str = "odar", **more: Any) -> tuple[int, Any]:
    """Return the status and the reply; the text of the events if it is a stream."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": question}], **more}).encode()
    headers = {"authorization": "Bearer sk-master", "content-type": "application/json"}
    try:
        with urlopen(Request(url, body, headers), timeout=120) as response:
            text = response.read().decode()
            return response.status, text if more.get("stream") else json.loads(text)
    except HTTPError as error:
        return error.code, json.loads(error.read())


def ask_messages(url: str, question: str) -> Any:
    """Ask by Anthropic's API, which LiteLLM translates."""
    body = {"model": "odar", "max_tokens": 200, "messages": [{"role": "user", "content": question}]}
    headers = {"x-api-key": "sk-master", "content-type": "application/json"}
    address = url.replace("/chat/completions", "/messages")
    with urlopen(Request(address, json.dumps(body).encode(), headers), timeout=120) as response:
        return json.load(response)


def main() -> None:
    """Run all cases, and print what happened."""
    log = Path(sys.argv[1]) / "litellm-proxy.log"
    Path(f"{log}.charged").unlink(missing_ok=True)
    with upstream() as address, proxy(address, log) as url:

        def case(title: str, question: str, model: str = "odar", **more: Any) -> tuple[int, Any]:
            Upstream.requests.clear()
            status, reply = ask(url, question, model, **more)
            print(f"\n# {title}\n{question}  {json.dumps(more) if more else ''}".rstrip())
            for name, key in Upstream.requests:
                print(f"  upstream got  {name}  with {key.removeprefix('Bearer ')}")
            if isinstance(reply, str):
                print("  streamed     ", "".join(_texts(reply)))
            elif status == 200:
                print("  answered     ", reply["choices"][0]["message"]["content"])
                told = reply["odar"] | {"p": round(reply["odar"]["p"], 3)}
                print(
                    "  odar         ",
                    {name: told[name] for name in ("stages", "agent", "model", "calls", "p", "cost_usd")},
                )
            else:
                print("  error        ", status, reply["error"]["message"][:200])
            return status, reply

        asked = Upstream.requests
        status, reply = case("two cheap models agree", "What is 17 * 23 + 4?")
        assert status == 200, reply
        assert reply["choices"][0]["message"]["content"] == "Answer: 395"
        assert [name for name, _ in asked] == ["gpt-4.1-nano", "gemini-3.5-flash-lite"], asked
        assert asked[0][1] == "Bearer sk-nano", "LiteLLM keeps the keys"
        assert reply["usage"]["total_tokens"] == 100
        status, reply = case("they differ: the large model decides", "What is 19 * 23 + 4?")
        assert reply["choices"][0]["message"]["content"] == "Answer: 441"
        assert "gpt-4.1" in [name for name, _ in asked]
        status, reply = case("open-ended: one call, streamed", "Write a poem about spring.", stream=True)
        assert status == 200
        assert len(_texts(reply)) > 2, "piece by piece"
        assert len(asked) == 1
        status, reply = case("a cascade, streamed when it has decided", "What is 17 * 23 + 4?", stream=True)
        assert "".join(_texts(reply)) == "Answer: 395", reply
        status, reply = case("a limit of the client's", "What is 19 * 23 + 4?", odar={"max_calls": 1})
        assert reply["odar"]["calls"] == 1
        status, reply = case("a dial of the client's", "What is 17 * 23 + 4?", odar={"dial": "economy"})
        assert reply["odar"]["dial"] == "economy"
        reply = ask_messages(url, "What is 17 * 23 + 4?")
        print(f"\n# by Anthropic's API\n  answered      {reply['content'][0]['text']}")
        assert reply["content"][0]["text"] == "Answer: 395"
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: ask(url, "What is 17 * 23 + 4?"), range(32)))
        assert all(status == 200 and reply["odar"]["calls"] == 2 for status, reply in replies)
        print("\n# 32 questions, 16 at a time: all answered with 2 calls each")
        Upstream.down = {"gpt-4.1-nano"}
        status, reply = case("the fast model is down", "What is 19 * 23 + 4?")
        assert status == 200
        assert reply["odar"]["degraded"]
        Upstream.down = set(SPOKEN)
        status, reply = case("all are down", "What is 19 * 23 + 4?")
        assert status == 503, status
        assert len(asked) == 9, "LiteLLM tries each model three times; the cascade is not repeated"
        status, reply = case("all are down, streamed", "Write a poem about spring.", stream=True)
        assert status == 503 or "out of order" in str(reply), (status, reply)
        Upstream.down = set()
        status, reply = case("a bad option", "Hi?", odar={"dial": "cheap"})
        assert status == 400, status
        status, reply = case("a client cannot name the agents", "Hi?", fast="large", model="odar/large>large")
        assert status in (400, 403, 404), status
        status, reply = case("a model that is not in the list", "Hi?", model="odar-broken")
        assert status == 503, status
        time.sleep(1)
    charged = [json.loads(line) for line in (Path(f"{log}.charged")).read_text().splitlines()]
    print("\n# what LiteLLM charged to the key")
    for row in charged[:3]:
        print("  ", row)
    assert all(row["key"] for row in charged), "every call belongs to the client's key"
    assert all(row["usd"] == 0 for row in charged if row["group"] == "odar"), "nothing is charged twice"
    assert all(row["usd"] > 0 for row in charged if row["group"] != "odar")
    print("\nall cases passed")


def _texts(events: str) -> list[str]:
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return [part for chunk in chunks for choice in chunk["choices"] if (part := choice["delta"].get("content"))]


if __name__ == "__main__":
    main()
else:  # imported by the proxy, for its callback
    from litellm.integrations.custom_logger import CustomLogger

    class Charged(CustomLogger):
        """Writes what LiteLLM charges."""

        async def async_log_success_event(
            self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
        ) -> None:
            """Append a line."""
            logged = kwargs["standard_logging_object"]
            row = {
                "group": logged["model_group"],
                "usd": logged["response_cost"],
                "tokens": logged["total_tokens"],
                "key": logged["metadata"]["user_api_key_hash"],
            }
            with Path(os.environ["CHARGED"]).open("a") as file:
                file.write(json.dumps(row) + "\n")

    charged = Charged()
