"""Answers of the local fast model for `scripts/training/acc_fast.py`; stop it at any time, the same command continues.

    python scripts/training/acc_fast_collect.py --data ../shared/data --out ../tmp/acc_fast

300 items each of StrategyQA train, BBH, MATH test (60 per level) and GSM8K train, drawn by a hash of their text, without
questions that the local recording judges; 150 of CRUXEval-O and 140 further ones of MATH level 5, on which other models'
outcomes are known, so that this model's accuracies can be moved to their scale. Prompt, sampling and budget are those
of the profile `local`; answers are read and scored as ODAR does. The lines have the model's text beside set, id,
question and correct, so that they can be scored again (`--rescore`).

One llama.cpp server answers many questions in one batch, which ODAR itself does not do, so answers may differ in rare tokens. On one core of a busy machine it took 70 minutes for 974 answers.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import secrets
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mixture import joined, judged, level, lines, question_hash, same_value, zeroeval_failure

from odar.agents.prompts import load_prompts
from odar.config import load_settings
from odar.lab.graders.mathematics import math_equal, number_match
from odar.lab.graders.text import bigbench, yes_no_match
from odar.policy.answers import extract_answer, last_boxed
from odar.providers.weights import find_weights
from odar.types import Query, Step

ITEMS = 300
PER_LEVEL = 60
COMMON_MATH, COMMON_CRUX = 200, 150
"""Items of MATH level 5 and CRUX, whose outcomes are known for eight other models."""
MODEL = "qwen2.5-coder-0.5b"


@dataclass(frozen=True)
class Item:
    """A question of a set and what its answer is compared with."""

    set: str
    id: str
    question: str
    """As the training mixture has it."""
    query: str
    """As the model is asked."""
    gold: Any
    stratum: str = ""


SCORERS: dict[str, Callable[[Any, str], float]] = {
    "strategyqa": yes_no_match,
    "bbh": bigbench,
    "math": math_equal,
    "gsm8k": number_match,
    "crux": lambda gold, answer: float(same_value(gold, answer.strip("`"))),
}


def drawn(items: list[Item], count: int) -> list[Item]:
    """Some of the items, by a hash of their text."""
    usable = [item for item in items if question_hash(item.question) not in judged()]
    return sorted(usable, key=lambda item: hashlib.sha256(item.question.encode()).hexdigest())[:count]


def strategyqa(data: Path) -> Iterator[Item]:
    """Yes or no."""
    rows = lines(data / "strategyqa" / "train.jsonl")
    ask = "\n\nAnswer with yes or no."
    items = [Item("strategyqa", r["qid"], r["question"], r["question"].strip() + ask, r["answer"]) for r in rows]
    yield from drawn(items, ITEMS)


def bbh(data: Path) -> Iterator[Item]:
    """As many items of every task."""
    files = sorted((data / "bbh").glob("*.json"))
    for place, file in enumerate(files):
        rows = json.loads(file.read_text("utf8"))["examples"]
        items = [
            Item("bbh", f"{file.stem}-{n}", r["input"], r["input"], r["target"], file.stem)
            for n, r in enumerate(rows)
        ]
        yield from drawn(items, ITEMS // len(files) + (place < ITEMS % len(files)))


def math(data: Path) -> Iterator[Item]:
    """As many of every level; more of level 5, where other models' outcomes are known."""
    known = zeroeval_failure(data, "math_l5_outputs")
    rows = list(enumerate(lines(data / "math" / "test.jsonl")))
    for wanted in "12345":
        items = [
            Item("math", f"test-{n}", r["problem"], r["problem"], last_boxed(r["solution"], bare=True), wanted)
            for n, r in rows
            if level(r) == wanted and (wanted < "5" or joined(r["problem"]) in known)
        ]
        yield from drawn(items, COMMON_MATH if wanted == "5" else PER_LEVEL)


def gsm8k(data: Path) -> Iterator[Item]:
    """Of the training half."""
    rows = lines(data / "gsm8k" / "train.jsonl")
    items = [
        Item("gsm8k", f"train-{n}", r["question"], r["question"], r["answer"].rpartition("####")[2].strip())
        for n, r in enumerate(rows)
    ]
    yield from drawn(items, ITEMS)


def crux(data: Path) -> Iterator[Item]:
    """What a Python function returns."""
    with gzip.open(data / "crux_outputs" / "outputs.jsonl.gz", "rt", encoding="utf8") as file:
        rows = [json.loads(line) for line in file]
    items = [Item("crux", f"crux-{n}", r["query"], r["query"], r["gold"]) for n, r in enumerate(rows)]
    yield from drawn(items, COMMON_CRUX)


SETS = {"strategyqa": strategyqa, "bbh": bbh, "math": math, "gsm8k": gsm8k, "crux": crux}


def interleaved(items: Iterable[Item]) -> list[Item]:
    """The items of a set, its strata in turn, so that a stopped run has some of each."""
    strata: dict[str, list[Item]] = {}
    for item in items:
        strata.setdefault(item.stratum, []).append(item)
    return [item for turn in zip_longest(*strata.values()) for item in turn if item is not None]


class Server:
    """A llama.cpp server in this process that answers many requests in one batch."""

    def __init__(self, slots: int, threads: int, context: int) -> None:
        import xllamacpp

        self.key = secrets.token_hex(16)
        params = xllamacpp.CommonParams()
        params.model.path = str(find_weights(MODEL).path)
        params.n_parallel = slots
        params.n_ctx = context * slots
        params.kv_unified = False
        params.cont_batching = True
        params.n_batch, params.n_ubatch = 512, 256
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_ram_mib = 0
        params.cache_idle_slots = False
        params.verbosity = -1
        params.api_keys = [self.key]
        params.endpoint_slots = True
        self.folder = tempfile.TemporaryDirectory()
        params.slot_save_path = f"{self.folder.name}/"
        self.server = xllamacpp.Server(params)
        self.address = str(self.server.listening_address)
        self.prompt = load_prompts("local").exact[Step.ANSWER]
        self.agent = load_settings(profile="local").fast
        self.share_prefix(slots)

    def share_prefix(self, slots: int) -> None:
        """Read the instructions and examples, which all questions share, once, and copy them into every slot."""
        self.complete("Hello", max_tokens=1, id_slot=0)
        self.call("/slots/0?action=save", {"filename": "prefix.bin"})
        for slot in range(1, slots):
            self.call(f"/slots/{slot}?action=restore", {"filename": "prefix.bin"})

    def answer(self, item: Item) -> dict[str, Any]:
        """One line of the output."""
        reply = self.complete(item.query)
        choice = reply["choices"][0]
        found = {"text": choice["message"]["content"] or "", "finish": choice["finish_reason"]}
        return scored(item, found | {"tokens": reply["usage"]["completion_tokens"]})

    def complete(self, text: str, **options: Any) -> dict[str, Any]:
        """What the fast agent of the profile `local` replies."""
        messages = [{"role": m.role, "content": m.text} for m in self.prompt.messages(Query(text))]
        sampling = {
            "max_tokens": self.agent.max_tokens,
            "temperature": self.agent.temperature,
            "top_p": self.agent.top_p,
            "samplers": ["top_k", "temperature", "top_p"],
            "top_k": 64,  # as the profile without it, but need not sort 150,000 words for every token
            "repeat_penalty": 1.0,
            "seed": 42,
            "cache_prompt": True,
        }
        return self.call("/v1/chat/completions", {"messages": messages} | sampling | options)

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request to the server."""
        request = urllib.request.Request(
            self.address + path,
            json.dumps(body).encode(),
            {"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=36_000) as response:
            return json.load(response)


def scored(item: Item, found: dict[str, Any]) -> dict[str, Any]:
    """A line with its score."""
    answer = extract_answer(found["text"])
    right = bool(SCORERS[item.set](item.gold, answer) >= 1)
    return {"set": item.set, "id": item.id, "question": item.question, "correct": right, **found}


def main() -> None:
    """Ask what is missing."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, required=True)
    cli.add_argument("--slots", type=int, default=24)
    cli.add_argument("--threads", type=int, default=1)
    cli.add_argument("--context", type=int, default=2048, help="tokens of prompt and answer")
    cli.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    cli.add_argument("--rescore", action="store_true", help="score the texts again without calling the model")
    args = cli.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    by_set = [interleaved(SETS[name](args.data)) for name in args.sets]
    items = {(item.set, item.id): item for turn in zip_longest(*by_set) for item in turn if item is not None}
    if args.rescore:
        for name in args.sets:
            file = args.out / f"{name}.jsonl"
            kept = [{k: r[k] for k in ("text", "finish", "tokens")} | {"id": r["id"]} for r in lines(file)]
            new = [scored(items[name, r.pop("id")], r) for r in kept]
            file.write_text("".join(json.dumps(row) + "\n" for row in new), "utf8")
        return
    done = {(r["set"], r["id"]) for file in args.out.glob("*.jsonl") for r in lines(file)}
    left = [item for key, item in items.items() if key not in done]
    print(f"{len(items)} items, {len(left)} to ask", flush=True)
    if not left:
        return
    server = Server(args.slots, args.threads, args.context)
    with ThreadPoolExecutor(args.slots) as pool:
        futures = [pool.submit(server.answer, item) for item in left]
        for count, future in enumerate(as_completed(futures), start=1):
            row = future.result()
            with (args.out / f"{row['set']}.jsonl").open("a", encoding="utf8") as file:
                file.write(json.dumps(row) + "\n")
            if count % 25 == 0:
                print(f"{count} of {len(left)}", flush=True)


if __name__ == "__main__":
    main()
