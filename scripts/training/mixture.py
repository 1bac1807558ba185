"""The training mixture: every public set of the data folder as rows with a domain and a target d* (SPEC 2.5, 2.11).

    d* = 0.5 · T / max T + 0.5 · (1 − Acc_fast)

T is the length of the reference reasoning in tokens (or of thinking models' responses). A handful of absurdly
long solutions would push every other row to zero, so "max" is the 99th percentile, and longer ones count as 1.
Sets whose T is measured alike (worked solutions in tokens) share one maximum, so that they stay comparable.

Where several small models answered every item (MMLU-Pro, LLMRouter, MATH level 5, CRUX), Acc_fast is the share of them that
were right on that item. For GSM8K, MATH levels 1 to 4, StrategyQA and BBH it is assumed, by steps, level and task
(`acc_assumed.json`). `acc_fast.json` has what the local fast model got right there; weights that were trained with it were
not installed (docs/lab-notes.md). T is estimated by hand for sets without recorded reasoning: four tasks of LLMRouter, BBH, CRUX.

GSM8K test, routellm_gsm8k and the judged half of the local recording are evaluation only: nothing here learns from them.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from odar.policy.equivalence import equivalent
from odar.question import core_question
from odar.types import Query

DATA = Path(__file__).with_name("data")
ALPHA = 0.5
FAST_MMLU = (
    "gpt-4.1-nano", "gpt-4o-mini-2024-07-18", "claude-3-haiku-20240307", "gemini-1.5-flash-8b", "gemma-2-9b-it",
    "Qwen2.5-7B-Instruct", "Qwen3-4B", "Qwen3-8B", "Meta-Llama-3.1-8B-Instruct-Turbo", "Phi-4-mini-instruct",
    "Mistral-Nemo-Instruct-2407", "gemma-3-12b-it",
)  # fmt: skip
THINKING_MMLU = (
    "Qwen3-4B-think",
    "Qwen3-8B-think",
    "Qwen3-14B-think",
    "Qwen3-30B-A3B-think",
    "Qwen3-32B-think",
)
STRONG_MMLU = (
    "gpt-4o-2024-08-06",
    "gpt-4.1",
    "claude-3-7-sonnet-20250219",
    "deepseek-chat",
    "grok-3-beta",
    "o4-mini-2025-04-16",
)
# The two ChatQA models fail most formats, not most questions.
FAST_LLMROUTER = (
    "qwen2.5-7b-instruct", "llama-3.1-nemotron-51b-instruct", "gemma-2-9b-it", "llama-3.1-8b-instruct",
    "llama-3.3-nemotron-super-49b-v1",
)  # fmt: skip
FAST_ZEROEVAL = (
    "Qwen2.5-3B-Instruct", "gemma-2-2b-it", "Qwen2-7B-Instruct", "Meta-Llama-3.1-8B-Instruct", "gemma-2-9b-it",
    "gpt-3.5-turbo-0125", "claude-3-haiku-20240307", "gpt-4o-mini-2024-07-18",
)  # fmt: skip
SOLUTION_TOKENS = 400.0  # the shared 99th percentile of worked solutions, in blanks-separated tokens
CRUX_TIME = 0.30
"""No reasoning is recorded for CRUX: a judgement of the work a person has."""

LLMROUTER = {
    "math": "mathematics", "natural_qa": "knowledge", "trivia_qa": "knowledge", "openbook_qa": "knowledge",
    "arc_challenge": "knowledge", "commonsense_qa": "commonsense", "mbpp": "coding", "human_eval": "coding",
    "agentverse-logicgrid": "logic", "commongen": "language",
}  # fmt: skip
DEFECTIVE = {"trivia_qa"}
"""Recorded outcomes nobody should learn from: 19% of trivia is scored right for models that are known for 60 to 80%."""
LLMROUTER_TIME = {"mbpp": 0.30, "human_eval": 0.45, "agentverse-logicgrid": 0.90, "commongen": 0.30}
"""No reasoning was recorded for these tasks: a judgement of the work a person has. Question answering: 0.03."""

# task: (domain, T). No reasoning is recorded for BBH: T is a judgement of the work a person has.
BBH = {
    "boolean_expressions": ("logic", 0.20), "causal_judgement": ("commonsense", 0.30),
    "date_understanding": ("commonsense", 0.25), "disambiguation_qa": ("language", 0.25),
    "dyck_languages": ("logic", 0.40), "formal_fallacies": ("logic", 0.45), "geometric_shapes": ("other", 0.50),
    "hyperbaton": ("language", 0.15), "logical_deduction_three_objects": ("logic", 0.35),
    "logical_deduction_five_objects": ("logic", 0.55), "logical_deduction_seven_objects": ("logic", 0.75),
    "movie_recommendation": ("knowledge", 0.15), "multistep_arithmetic_two": ("mathematics", 0.40),
    "navigate": ("logic", 0.30), "object_counting": ("mathematics", 0.20),
    "penguins_in_a_table": ("logic", 0.30), "reasoning_about_colored_objects": ("logic", 0.30),
    "ruin_names": ("language", 0.20), "salient_translation_error_detection": ("language", 0.45),
    "snarks": ("language", 0.20), "sports_understanding": ("commonsense", 0.10),
    "temporal_sequences": ("logic", 0.40), "tracking_shuffled_objects_three_objects": ("logic", 0.35),
    "tracking_shuffled_objects_five_objects": ("logic", 0.50),
    "tracking_shuffled_objects_seven_objects": ("logic", 0.65), "web_of_lies": ("logic", 0.40),
    "word_sorting": ("language", 0.30),
}  # fmt: skip

LEVELS = {"simple": 0.10, "medium": 0.50, "hard": 0.93}


@dataclass(frozen=True)
class Row:
    """One training query."""

    source: str
    task: str
    domain: str
    text: str
    target: float
    options: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The question with its options: that there are any is a feature (f19), what they say is not."""
        return "\n".join(
            [self.text, *(f"({letter}) {o}" for letter, o in zip(ascii_uppercase, self.options, strict=False))]
        )

    @cached_property
    def core(self) -> str:
        """The question without options, examples and demands, of which features and vocabularies are made."""
        return core_question(Query(self.prompt)).text

    @property
    def held_out(self) -> bool:
        """A fifth of the rows, by a hash of the text: no script learns d* from them."""
        return self.source != "anchors" and zlib.crc32(self.text.encode()) % 5 == 0


def d_star(time: float, failure: float) -> float:
    """SPEC 2.5 with both parts clipped to [0, 1]."""
    return ALPHA * min(1.0, max(0.0, time)) + (1 - ALPHA) * min(1.0, max(0.0, failure))


def lines(path: Path) -> list[dict]:
    """A JSON-lines file."""
    return [json.loads(line) for line in path.read_text("utf8").split("\n") if line]


def mmlu_text(item: dict) -> str:
    """The question without its ten options.

    The models saw them, but their length says nothing of the difficulty (r −0.10 with them) and swamps the question's.
    """
    return str(item["question"])


def mmlu_pro(data: Path) -> list[Row]:
    """5,222 items with recorded outcomes: failure of twelve small models, T from five thinking models.

    Every other one has its options, so that f19 does not stand for the other sets that have options.
    """
    import pandas as pd  # of the extra `train`; reference_mixture.py works without it

    items = lines(data / "mmlu_pro_outcomes" / "items.jsonl")
    outcomes = pd.read_parquet(data / "mmlu_pro_outcomes" / "outcomes.parquet")
    fast = outcomes[outcomes.model.isin(FAST_MMLU)].groupby("row").correct.mean()
    thought = outcomes[outcomes.model.isin(THINKING_MMLU)]
    time = np.exp(np.log(thought.response_tokens).groupby(thought.row).mean())
    time = time / np.quantile(time, 0.99)
    domains = {"math": "mathematics", "computer science": "other"}
    return [
        Row("mmlu_pro", i["category"], domains.get(i["category"], "knowledge"), mmlu_text(i),
            d_star(time[i["row"]], 1 - fast[i["row"]]), tuple(i["options"]) if i["row"] % 2 else ())
        for i in items
    ]  # fmt: skip


def llmrouter(data: Path) -> list[Row]:
    """Ten tasks with the recorded scores of five models that follow the formats."""
    rows = []
    for r in lines(data / "llmrouter_outcomes" / "train.jsonl"):
        failure = 1 - float(np.mean([r["scores"][m] for m in FAST_LLMROUTER]))
        time = LLMROUTER_TIME.get(r["task"], 0.03)
        if r["task"] == "math":
            time = len(r["ground_truth"].split()) / SOLUTION_TOKENS
        rows.append(Row("llmrouter", r["task"], LLMROUTER[r["task"]], r["query"], d_star(time, failure)))
    return rows


def level(row: dict) -> str:
    """The level of a MATH row, "1" to "5"; "?" where it has none."""
    last = str(row["level"])[-1]
    return last if last.isdigit() else "?"


def steps(row: dict) -> str:
    """The calculation steps of a GSM8K solution, from "1" to "6" for six and more."""
    return str(min(6, max(1, row["answer"].count("<<"))))


def math(data: Path) -> list[Row]:
    """MATH: length of the solution; failure of eight models on each item of level 5, by level for the others."""
    scored = {joined(question): failure for question, failure in zeroeval_failure(data, "math_l5_outputs").items()}
    rows = []
    for r in lines(data / "math" / "test.jsonl"):
        failure = scored.get(joined(r["problem"]), stratum_failure("math", level(r)))
        time = len(r["solution"].split()) / SOLUTION_TOKENS
        rows.append(Row("math", r["type"], "mathematics", r["problem"], d_star(time, failure)))
    return rows


def crux(data: Path) -> list[Row]:
    """CRUXEval-O: failure of eight models on each item."""
    return [
        Row("crux", "crux", "coding", question, d_star(CRUX_TIME, failure))
        for question, failure in zeroeval_failure(data, "crux_outputs").items()
    ]


def gsm8k(data: Path) -> list[Row]:
    """GSM8K train only: length of the solution, and the failure by its number of steps."""
    return [
        Row("gsm8k", "gsm8k", "mathematics", r["question"],
            d_star(len(r["answer"].split()) / SOLUTION_TOKENS, stratum_failure("gsm8k", steps(r))))
        for r in lines(data / "gsm8k" / "train.jsonl")
    ]  # fmt: skip


def strategyqa(data: Path) -> list[Row]:
    """StrategyQA: length of facts and decomposition, and the failure by its number of steps."""
    rows = []
    for r in lines(data / "strategyqa" / "train.jsonl"):
        reasoning = " ".join([*r["decomposition"], *r["facts"]])
        failure = stratum_failure("strategyqa", str(min(5, len(r["decomposition"]))))
        target = d_star(len(reasoning.split()) / SOLUTION_TOKENS, failure)
        rows.append(Row("strategyqa", "strategyqa", "commonsense", r["question"], target))
    return rows


def bbh(data: Path) -> list[Row]:
    """BIG-Bench Hard with the failure per task."""
    return [
        Row("bbh", task, domain, e["input"], d_star(time, stratum_failure("bbh", task)))
        for task, (domain, time) in BBH.items()
        for e in json.loads((data / "bbh" / f"{task}.json").read_text("utf8"))["examples"]
    ]


def joined(text: str) -> str:
    """A text with single blanks: how questions of two sets are matched."""
    return " ".join(text.split())


STRATA = "acc_assumed.json"
"""The table of `stratum_failure`; another one is "acc_fast.json" (`scripts/training/train_estimator.py --acc-fast`)."""


@cache
def stratum_document(name: str) -> dict[str, Any]:
    """What a table of failures holds."""
    return json.loads((DATA / name).read_text("utf8"))


def stratum_source() -> str:
    """What made the table of `stratum_failure`."""
    document = stratum_document(STRATA)
    return f"{document['made_by']}, {document['model']}" if document["model"] else str(document["made_by"])


def stratum_failure(source: str, stratum: str) -> float:
    """The failure of a fast model in a stratum; of the whole set where the stratum is not in the table."""
    found: dict[str, float] = stratum_document(STRATA)["failure"][source]
    return found.get(stratum, found["all"])


@cache
def judged() -> frozenset[str]:
    """Hashes of questions that no fit may see."""
    return frozenset(json.loads((DATA / "judged.json").read_text("utf8"))["hashes"])


def question_hash(text: str) -> str:
    """How `judged` names a question."""
    return hashlib.sha256(joined(text).encode()).hexdigest()[:16]


_ANSWER = re.compile(r'"answer"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|([^\n}]+))')


def stated(output: str) -> str | None:
    """The last `answer` field of a model's JSON, which is often not valid JSON as a whole."""
    found = list(_ANSWER.finditer(output))
    if not found:
        return None
    quoted, bare = found[-1].groups()
    if quoted is None:
        return str(bare).strip().rstrip(",")
    try:
        return str(json.loads(f'"{quoted}"', strict=False))
    except ValueError:
        return str(quoted)


def same_value(gold: str, answer: str) -> bool:
    """Whether two Python literals have the same value."""
    try:
        return bool(ast.literal_eval(answer) == ast.literal_eval(gold))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return answer.strip().strip("\"'") == gold.strip().strip("\"'")


@cache
def zeroeval_right(data: Path, folder: str) -> dict[str, dict[str, bool]]:
    """Question to model to whether it was right, scored here from the outputs."""
    same = same_value if folder == "crux_outputs" else lambda gold, answer: equivalent(answer, gold)
    right = {}
    with gzip.open(data / folder / "outputs.jsonl.gz", "rt", encoding="utf8") as file:
        for row in map(json.loads, file):
            answers = {model: stated(output) for model, output in row["outputs"].items()}
            right[row["query"]] = {m: a is not None and same(row["gold"], a) for m, a in answers.items()}
    return right


def zeroeval_failure(data: Path, folder: str) -> dict[str, float]:
    """Question to the share of the eight small models that got it wrong."""
    return {
        question: 1 - float(np.mean([right[model] for model in FAST_ZEROEVAL]))
        for question, right in zeroeval_right(data, folder).items()
    }


def recorded(data: Path, source: str) -> tuple[dict[str, dict[str, float]], tuple[str, ...], tuple[str, ...]]:
    """Question to model to score, the weak models and the strong ones, of a set that has outcomes."""
    if source == "mmlu_pro":
        import pandas as pd

        outcomes = pd.read_parquet(data / "mmlu_pro_outcomes" / "outcomes.parquet")
        table = outcomes[outcomes.model.isin(FAST_MMLU + STRONG_MMLU)].pivot(
            index="row", columns="model", values="correct"
        )
        scored = table.astype(float).to_dict("index")
        items = lines(data / "mmlu_pro_outcomes" / "items.jsonl")
        return {mmlu_text(i): scored[i["row"]] for i in items}, FAST_MMLU, STRONG_MMLU
    if source == "llmrouter":
        rows = lines(data / "llmrouter_outcomes" / "train.jsonl")
        strong = tuple(model for model in FAST_LLMROUTER if "nemotron" in model)
        return {r["query"]: r["scores"] for r in rows}, tuple(set(FAST_LLMROUTER) - set(strong)), strong
    folder = "crux_outputs" if source == "crux" else "math_l5_outputs"
    right = zeroeval_right(data, folder)
    return right, FAST_ZEROEVAL, tuple(sorted(set(next(iter(right.values()))) - set(FAST_ZEROEVAL)))


def anchors(path: Path | None = None) -> list[Row]:
    """The hand-written ends of the scale."""
    path = path or DATA / "anchors.tsv"
    cells = [line.split("\t") for line in path.read_text("utf8").splitlines() if line and line[0] != "#"]
    return [Row("anchors", level, domain, text, LEVELS[level]) for level, domain, text in cells]


SOURCES = {"mmlu_pro": mmlu_pro, "llmrouter": llmrouter, "math": math, "gsm8k": gsm8k, "strategyqa": strategyqa, "bbh": bbh, "crux": crux}  # fmt: skip


def mixture(data: Path) -> list[Row]:
    """All sources, then the anchors."""
    return [row for read in SOURCES.values() for row in read(data)] + anchors()


def training_mixture(data: Path) -> list[Row]:
    """The mixture without `DEFECTIVE` tasks and without questions on which the local recording is judged."""
    return [r for r in mixture(data) if r.task not in DEFECTIVE and question_hash(r.text) not in judged()]
