"""Fetch the public sets that ODAR's weights are trained on from their hubs, in the layout that the training scripts read.

    python scripts/training/fetch_data.py DIR                # all sets; what is there already is kept
    python scripts/training/fetch_data.py DIR gsm8k bbh      # some of them
    python scripts/training/fetch_data.py DIR --mirror URL   # from URL/raw.githubusercontent.com/…, such as a company's mirror

Each file must have the SHA-256 of `data_sha256.txt`, whether it is fetched as it is or made from what is fetched; otherwise
nothing is written. Recorded outcomes of models (`BY_HAND`) were put together from many files of their authors and cannot be made
again from a hub by a program; their origin is printed and, if they are there, their SHA-256 checked. See docs/training.md.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

HASHES = Path(__file__).with_name("data") / "data_sha256.txt"
GITHUB = "https://raw.githubusercontent.com"
MATH = "https://huggingface.co/datasets/EleutherAI/hendrycks_math/resolve/main"
ROUTELLM = f"{GITHUB}/lm-sys/RouteLLM/main/routellm/evals/gsm8k"
WEAK, STRONG = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"
MAX_BYTES = 100_000_000
SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra", "precalculus",
)  # fmt: skip
AS_IT_IS = {
    "gsm8k": (f"{GITHUB}/openai/grade-school-math/master/grade_school_math/data", ("train.jsonl", "test.jsonl")),
    "bbh": (f"{GITHUB}/suzgunmirac/BIG-Bench-Hard/main/bbh", ()),
    "bbeh": (f"{GITHUB}/google-deepmind/bbeh/main/bbeh/mini", ("data.json",)),
    "truthfulqa": (f"{GITHUB}/sylinrl/TruthfulQA/main", ("TruthfulQA.csv", "data/mc_task.json")),
    "ifeval": (f"{GITHUB}/google-research/google-research/master/instruction_following_eval/data", ()),
    "ud_english_ewt": (
        f"{GITHUB}/UniversalDependencies/UD_English-EWT/master",
        ("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"),
    ),
}
"""Set to the address of its folder and its files; without files, those of `data_sha256.txt`."""
BY_HAND = {
    "mmlu_pro_outcomes": "github.com/Linwei94/LLM-Calibration-Study, items github.com/TIGER-AI-Lab/MMLU-Pro",
    "llmrouter_outcomes": "github.com/ulab-uiuc/LLMRouter",
    "math_l5_outputs": "github.com/WildEval/ZeroEval",
    "crux_outputs": "github.com/WildEval/ZeroEval",
    "alpaca_eval": "github.com/tatsu-lab/alpaca_eval",
    "freetext_cascade": "github.com/wangy8205165/ANLP-LLM-Routing-and-Cascading",
}
Get = Callable[[str], bytes]


def strategyqa(get: Get, name: str) -> bytes:
    """The split of the authors' repository as JSON lines, without passages of Wikipedia."""
    rows = json.loads(get(f"{GITHUB}/eladsegal/strategyqa/main/data/strategyqa/{Path(name).stem}.json"))
    kept = ("qid", "question", "answer", "decomposition", "facts")
    return "".join(json.dumps({key: row[key] for key in kept}, ensure_ascii=False) + "\n" for row in rows).encode()


def math(get: Get, name: str) -> bytes:
    """The seven subjects one after another."""
    import pandas as pd  # of the dependency group `train`

    parts = [get(f"{MATH}/{subject}/test-00000-of-00001.parquet") for subject in SUBJECTS]
    table = pd.concat([pd.read_parquet(io.BytesIO(part)) for part in parts])
    table = table[["problem", "level", "type", "solution"]].assign(idx=range(len(table)))
    return table.to_json(orient="records", lines=True).encode()


def routellm_gsm8k(get: Get, name: str) -> bytes:
    """Outcomes of both models, and which prompts RouteLLM's authors found in its training data."""
    import pandas as pd

    table = pd.read_csv(io.BytesIO(get(f"{ROUTELLM}/gsm8k_responses.csv")))
    contaminated = pd.read_json(io.BytesIO(get(f"{ROUTELLM}/contaminated_prompts.jsonl")), lines=True)[
        "eval_prompt"
    ]
    names = {WEAK: "weak_correct", STRONG: "strong_correct"}
    names |= {f"{WEAK}_response": "weak_response", f"{STRONG}_response": "strong_response"}
    table = table.rename(columns=names)[["prompt", *names.values()]]
    table["contaminated"] = table["prompt"].isin(contaminated)
    return table.to_json(orient="records", lines=True, force_ascii=False).encode()


MADE = {"strategyqa": strategyqa, "math": math, "routellm_gsm8k": routellm_gsm8k}


def as_it_is(get: Get, folder: str, name: str) -> bytes:
    """A file of a hub; the name of ours is the last part of theirs."""
    address, files = AS_IT_IS[folder]
    return get(f"{address}/{next((file for file in files if file.endswith(name)), name)}")


def hashes() -> dict[str, str]:
    """File to SHA-256."""
    pairs = (line.split() for line in HASHES.read_text("utf8").splitlines())
    return {file: value for value, file in pairs}


def getter(client: httpx.Client, mirror: str | None) -> Get:
    """A function that fetches an address, from the mirror if there is one."""

    def get(address: str) -> bytes:
        url = f"{mirror.rstrip('/')}/{address.removeprefix('https://')}" if mirror else address
        body = bytearray()
        with client.stream("GET", url) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ValueError(f"{url} has more than {MAX_BYTES} bytes")
        return bytes(body)

    return get


def fetch(out: Path, sets: list[str], get: Get) -> list[str]:
    """Fetch what is missing; return a line for each file that is not there afterwards."""
    problems = []
    for file, expected in hashes().items():
        folder, name = file.split("/")
        if folder not in sets:
            continue
        path = out / file
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == expected:
            print(f"{file}: there")
        elif folder in BY_HAND:
            problems.append(
                f"{file}: {'has another SHA-256' if path.exists() else 'by hand'}, from {BY_HAND[folder]}"
            )
        else:
            try:
                body = MADE[folder](get, name) if folder in MADE else as_it_is(get, folder, name)
                found = hashlib.sha256(body).hexdigest()
                if found != expected:
                    raise ValueError(
                        f"SHA-256 {found[:12]}… instead of {expected[:12]}…: the hub has another version"
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body)
                print(f"{file}: {len(body)} bytes")
            except (httpx.HTTPError, ValueError, KeyError) as error:
                problems.append(f"{file}: {error}")
    return problems


def main() -> None:
    """Fetch, and end with 1 if a file is missing."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted({file.split("/")[0] for file in hashes()})
    cli.add_argument("out", type=Path, metavar="DIR")
    cli.add_argument("sets", nargs="*", metavar="SET", help=", ".join(known))
    cli.add_argument("--mirror", metavar="URL")
    args = cli.parse_args()
    if unknown := set(args.sets) - set(known):
        cli.error(f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        problems = fetch(args.out, args.sets or known, getter(client, args.mirror))
    print(*problems, sep="\n", file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
