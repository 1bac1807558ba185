"""Ask the everyday set through `odar serve`: the paths, calls and cost of each kind, against always asking the slow model.

    python scripts/benchmarks/everyday.py                     # stub models, slow 3, 10 and 20 times as expensive as fast
    python scripts/benchmarks/everyday.py --dial economy --ratio 10 --json  # another dial, one price ratio, as JSON
    python scripts/benchmarks/everyday.py --local --keep FILE # the local pair (profile local) and its nominal prices; FILE resumes it
    python scripts/benchmarks/everyday.py --transcript docs/transcript.md  # 20 prompts by command, Python and gateway, as a page

docs/data/everyday.jsonl has 80 prompts of 11 kinds, the right answer of each exact question, and for each prompt a reply
of a fast and a slow model with token log-probabilities, written before the estimator was looked at. The stub server
gives these replies in OpenAI's protocol, so that only the models are simulated: the cheap and the strong one of a vendor, of which
nothing is measured. Always-slow is the same gateway with
the slow model by name: one call, the client's own prompt. Ends with 1 if the set costs more than that, or if an
open-ended request takes more than one call.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from odar.policy.answers import extract_answer
from odar.policy.equivalence import equivalent

ROOT = Path(__file__).parents[2]
SET = ROOT / "docs" / "data" / "everyday.jsonl"
TOKEN = re.compile(r" ?[^\W\d_]{1,8}| ?\d{1,3}| ?[^\w\s]{1,3}|\s+|.", re.DOTALL)
"""The tokens of the set's replies: one log-probability each."""
PRICE = {"input": 0.5, "output": 2.0}
"""Dollars per million tokens of the fast model."""
STUBS = """
[providers.stub]
kind = "openai"
base_url = "{url}/v1"
cheap = "quick"
strong = "deep"
[models.quick]
provider = "stub"
logprobs = true
n = true
price = {{ input = {input}, output = {output} }}
[models.deep]
provider = "stub"
logprobs = true
n = true
price = {{ input = {slow_input}, output = {slow_output} }}
[fast]
model = "quick"
[slow]
model = "deep"
"""
LOCAL = """
profile = "local"
[models."qwen2.5-coder-0.5b"]
price = { input = 0.049, output = 0.049 }
[models."qwen2.5-coder-1.5b"]
price = { input = 0.154, output = 0.154 }
[fast]
timeout_s = 900
[slow]
timeout_s = 900
[limits]
deadline_s = 1800
"""
"""The free models of profile local at their nominal prices, by parameters; a busy machine may take its time."""
Item = dict[str, Any]


class Stub(ThreadingHTTPServer):
    """A server of the models `quick` and `deep`, whose replies are those of the set."""

    daemon_threads = True

    def __init__(self, items: Sequence[Item] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.items = sorted(items, key=lambda item: -len(item["prompt"]))

    def __enter__(self) -> Self:
        """Serve until the end of the block."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        super().__exit__(*error)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the completion of a request: that of the longest prompt in its user turns."""
        texts = [_text(turn["content"]) for turn in body["messages"] if turn["role"] == "user"]
        item = next(item for item in self.items if any(item["prompt"] in text for text in texts))
        said = item["fast" if body["model"] == "quick" else "slow"]
        tokens = [
            {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
            for token, logprob in zip(TOKEN.findall(said["text"]), said["logprobs"], strict=True)
        ]
        choice = {"message": {"role": "assistant", "content": said["text"]}, "finish_reason": "stop"}
        choice |= {"logprobs": {"content": tokens} if body.get("logprobs") else None}
        n = body.get("n") or 1
        prompt = sum(len(TOKEN.findall(_text(turn["content"]))) + 4 for turn in body["messages"])
        usage = {"prompt_tokens": prompt, "completion_tokens": n * len(tokens)}
        return {
            "id": "stub",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice | {"index": index} for index in range(n)],
            "usage": usage | {"total_tokens": sum(usage.values())},
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = json.dumps(self.server.reply(body)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@contextmanager
def gateway(settings: str) -> Iterator[HTTPConnection]:
    """Yield a connection to `odar serve`, started in a folder and with a home of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "odar.toml").write_text(f"{settings}\n[gateway]\nport = 0\n")
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # which holds the weights
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environment |= {"HOME": folder, "XDG_CACHE_HOME": cache, "ODAR_STORE_URL": f"{folder}/odar.db"}
        log = Path(folder, "log")
        command = [str(Path(sys.executable).with_name("odar")), "serve"]
        with log.open("w") as out:
            server = subprocess.Popen(command, cwd=folder, env=environment, stderr=out)
        try:
            until = time.monotonic() + 120
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"odar serve did not start:\n{log.read_text()}")
                time.sleep(0.1)
            yield HTTPConnection("127.0.0.1", int(found[1]), timeout=3600)
        finally:
            server.terminate()
            server.wait(60)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request took."""

    path: str
    calls: int
    cost: float
    right: bool | None


def post(connection: HTTPConnection, model: str, item: Item) -> tuple[Any, dict[str, Any]]:
    """Send a prompt of the set; return the headers and the body of the reply."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": item["prompt"]}]})
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    reply = json.loads(response.read())
    if response.status != 200:
        raise SystemExit(f"{item['id']}: status {response.status}: {reply}")
    if response.headers["x-odar-cost-usd"] == "unknown":
        raise SystemExit(f"{item['id']}: the cost is unknown: {reply.get('odar')}")
    return response.headers, reply


def ask(connection: HTTPConnection, model: str, item: Item) -> Asked:
    """Ask a prompt of the set; an exact question is right if the answer is equivalent to the set's."""
    headers, reply = post(connection, model, item)
    text = reply["choices"][0]["message"]["content"]
    recorded = {item[who]["text"]: item[who].get("right") for who in ("fast", "slow")}
    right = None
    if item["answer"] is not None:
        right = recorded[text] if text in recorded else equivalent(extract_answer(text), item["answer"])
    return Asked(
        headers.get("x-odar-path", model), int(headers["x-odar-calls"]), float(headers["x-odar-cost-usd"]), right
    )


def ask_once(connection: HTTPConnection, model: str, item: Item, keep: Path | None) -> Asked:
    """Ask a prompt, unless the file `keep` has what it took; add it to the file."""
    if keep is None:
        return ask(connection, model, item)
    rows = map(json.loads, keep.read_text("utf-8").splitlines()) if keep.exists() else ()
    known = {(row.pop("id"), row.pop("model")): Asked(**row) for row in rows}
    if (item["id"], model) not in known:
        known[item["id"], model] = found = ask(connection, model, item)
        with keep.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": item["id"], "model": model, **asdict(found)}) + "\n")
    return known[item["id"], model]


def run(
    settings: str, items: Sequence[Item], slow: str, model: str = "odar", keep: Path | None = None
) -> list[dict[str, Any]]:
    """Ask every item through routing and to the slow model alone; return a row for each kind, and one for all."""
    with gateway(settings) as connection:
        asked = [(item, *(ask_once(connection, each, item, keep) for each in (model, slow))) for item in items]
    kinds = list(dict.fromkeys(item["kind"] for item in items))
    named = {kind: [each for each in asked if each[0]["kind"] == kind] for kind in kinds}
    named["open-ended"] = [each for each in asked if each[0]["answer"] is None]
    named["exact"] = [each for each in asked if each[0]["answer"] is not None]
    named["all"] = asked
    return [_row(name, rows) for name, rows in named.items() if rows]


PAGE = """# Twenty questions, three ways

The same prompts by `odar ask`, `odar.ask` and `odar serve`: the whole text, calls and path of each are equal. Written by `python
scripts/benchmarks/everyday.py --transcript docs/transcript.md`, with the stub models of the [everyday set](data/everyday.jsonl), whose replies were written
beforehand; slow costs ten times as much as fast. Simple: the fast model answered; medium: the slow one.

"""
IN_PYTHON = """
import json, sys, odar
for prompt in json.load(sys.stdin):
    answer = odar.ask(prompt)
    print(json.dumps([str(answer), str(answer.path), answer.trace.spend.calls]))
"""
Told = tuple[str, str, int]
"""Text, path and calls of an answer."""


def transcript(settings: str, items: Sequence[Item]) -> str:
    """Ask the items by command, in Python and through the gateway; return the page, or end if they differ."""
    told = {"odar ask": _by_command(settings, items), "Python": _by_python(settings, items)}
    with gateway(settings) as connection:
        told["gateway"] = [_by_gateway(connection, item) for item in items]
    parts = []
    for number, item in enumerate(items):
        found = {way: answers[number] for way, answers in told.items()}
        if len(set(found.values())) > 1:
            raise SystemExit(f"{item['id']} differs: {found}")
        text, path, calls = found["gateway"]
        quoted = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
        prompt = item["prompt"].replace("\n", " ")
        parts.append(f"**{number + 1}. {item['kind']}:** {prompt}\n\n{quoted}\n>\n> *{path}, {calls} call*\n")
    return PAGE + "\n".join(parts)


def _by_command(settings: str, items: Sequence[Item]) -> list[Told]:
    """Ask by `odar ask`; path and calls come from the traces that it left."""
    odar = [sys.executable, "-m", "odar"]
    with _home(settings) as environment:
        said = []
        for item in items:
            said.append(_run([*odar, "ask", item["prompt"]], environment).rstrip("\n"))
        traces = json.loads(_run([*odar, "traces", "--json", "--limit", str(len(items))], environment))["traces"]
    seen = [(trace["path"], trace["calls"]) for trace in reversed(traces)]
    return [(text, path, calls) for text, (path, calls) in zip(said, seen, strict=True)]


def _by_python(settings: str, items: Sequence[Item]) -> list[Told]:
    with _home(settings) as environment:
        prompts = json.dumps([item["prompt"] for item in items])
        lines = _run([sys.executable, "-c", IN_PYTHON], environment, prompts).splitlines()
    return [(text, path, calls) for text, path, calls in map(json.loads, lines)]


def _by_gateway(connection: HTTPConnection, item: Item) -> Told:
    headers, reply = post(connection, "odar", item)
    return reply["choices"][0]["message"]["content"], headers["x-odar-path"], int(headers["x-odar-calls"])


@contextmanager
def _home(settings: str) -> Iterator[dict[str, str]]:
    """Yield an environment whose user has these settings."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "config", "odar")
        place.mkdir(parents=True)
        (place / "odar.toml").write_text(settings)
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        yield environment | {
            "HOME": folder,
            "XDG_CONFIG_HOME": f"{folder}/config",
            "ODAR_STORE_URL": f"{folder}/odar.db",
        }


def _run(command: Sequence[str], environment: dict[str, str], stdin: str = "") -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _row(name: str, asked: Sequence[tuple[Item, Asked, Asked]]) -> dict[str, Any]:
    odar = [each for _, each, _ in asked]
    slow = [each for _, _, each in asked]
    graded = [(own.right, alone.right) for _, own, alone in asked if own.right is not None]
    return {
        "kind": name,
        "prompts": len(asked),
        **{path: sum(each.path == path for each in odar) for path in ("simple", "medium", "hard")},
        "calls": sum(each.calls for each in odar) / len(odar),
        "most_calls": max(each.calls for each in odar),
        "cost_usd": sum(each.cost for each in odar),
        "slow_cost_usd": sum(each.cost for each in slow),
        "right": sum(own for own, _ in graded) / len(graded) if graded else None,
        "slow_right": sum(bool(alone) for _, alone in graded) / len(graded) if graded else None,
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    print(f"{'kind':12} prompts simple medium  hard calls   cost  right   slow")
    for row in rows:
        right = ["" if row[name] is None else f"{row[name]:.0%}" for name in ("right", "slow_right")]
        share = f"{row['cost_usd'] / row['slow_cost_usd']:.2f}" if row["slow_cost_usd"] else "?"
        counts = f"{row['simple']:6} {row['medium']:6} {row['hard']:5} {row['calls']:5.1f}"
        print(f"{row['kind']:12} {row['prompts']:7} {counts} {share:>6} {right[0]:>6} {right[1]:>6}")
    print(
        "cost: in units of always asking the slow model; right: share of exact questions, of ODAR and of slow alone"
    )


def _settings(stub: Stub, ratio: float) -> str:
    slow = {f"slow_{name}": price * ratio for name, price in PRICE.items()}
    return STUBS.format(url=stub.url, **PRICE, **slow)


def main() -> int:
    """Run the set and print the tables."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--ratio", type=float, action="append", help="price of slow in units of fast (3, 10, 20)")
    options.add_argument("--dial", choices=("economy", "balanced", "quality"), default="balanced")
    options.add_argument("--local", action="store_true", help="the models of profile local instead of stubs")
    options.add_argument("--keep", type=Path, metavar="FILE", help="with --local: keep what was asked, and resume")
    options.add_argument("--limit", type=int, help="number of prompts, spread over the kinds")
    options.add_argument("--transcript", type=Path, help="write a page with prompts (20, or --limit) and replies")
    options.add_argument("--json", action="store_true", help="print JSON")
    given = options.parse_args()
    items = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    if given.transcript and not given.limit:
        given.limit = 20
    if given.limit:
        items = [items[index * len(items) // given.limit] for index in range(given.limit)]
    model = {"balanced": "odar"}.get(given.dial, f"odar-{given.dial}")
    tables: dict[str, list[dict[str, Any]]] = {}
    if given.local:
        tables["local pair"] = run(LOCAL, items, "qwen2.5-coder-1.5b", model, given.keep)
    else:
        with Stub(items) as stub:
            if given.transcript:
                given.transcript.write_text(transcript(_settings(stub, 10.0), items), "utf-8")
                return 0
            for ratio in given.ratio or (3.0, 10.0, 20.0):
                tables[f"price ratio {ratio:g}"] = run(_settings(stub, ratio), items, "deep", model)
    if given.json:
        print(json.dumps(tables, indent=1))
    for title, rows in tables.items() if not given.json else ():
        print(f"\n{title}")
        show(rows)
    open_ended = [row for rows in tables.values() for row in rows if row["kind"] == "open-ended"]
    one_call = all(row["most_calls"] == 1 for row in open_ended)
    cheaper = all(rows[-1]["cost_usd"] < rows[-1]["slow_cost_usd"] for rows in tables.values())
    return 0 if one_call and cheaper else 1


if __name__ == "__main__":
    sys.exit(main())
