"""The training mixture: every public set of the data folder as rows with a domain and a target d* (SPEC 2.5).

    d* = 0.5 · T / max T + 0.5 · (1 − Acc_fast)

T is the length of the reference reasoning in tokens (or of thinking models' responses). A handful of absurdly
long solutions would push every other row to zero, so "max" is the 99th percentile, and longer ones count as 1.
Sets whose T is measured alike (worked solutions in tokens) share one maximum, so that they stay comparable.
Where no outcomes were recorded, Acc_fast is an assumption, written next to the set that needs it.

GSM8K test and routellm_gsm8k are evaluation only: nothing here reads them.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

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
# The two ChatQA models fail most formats, not most questions.
FAST_LLMROUTER = (
    "qwen2.5-7b-instruct", "llama-3.1-nemotron-51b-instruct", "gemma-2-9b-it", "llama-3.1-8b-instruct",
    "llama-3.3-nemotron-super-49b-v1",
)  # fmt: skip
SOLUTION_TOKENS = 400.0  # the shared 99th percentile of worked solutions, in blanks-separated tokens
LEVEL_FAILURE = {1: 0.10, 2: 0.25, 3: 0.45, 4: 0.65, 5: 0.85}
"""Assumed failure of a fast model by MATH level; their mean agrees with the recorded `math` task of llmrouter."""
STEP_SUCCESS = 0.92
"""Assumed chance that a fast model gets one step of a grade-school solution or a decomposition right."""

LLMROUTER = {
    "math": "mathematics", "natural_qa": "knowledge", "trivia_qa": "knowledge", "openbook_qa": "knowledge",
    "arc_challenge": "knowledge", "commonsense_qa": "commonsense", "mbpp": "coding", "human_eval": "coding",
    "agentverse-logicgrid": "logic", "commongen": "language",
}  # fmt: skip
DEFECTIVE = {"trivia_qa"}
"""Recorded outcomes nobody should learn from: 19% of trivia is scored right for models that are known for 60 to 80%."""
LLMROUTER_TIME = {"mbpp": 0.30, "human_eval": 0.45, "agentverse-logicgrid": 0.90, "commongen": 0.30}
"""No reasoning was recorded for these tasks: a judgement of the work a person has. Question answering: 0.03."""

# task: (domain, T, failure). No outcomes are recorded for BBH: both numbers are our judgement of a fast model.
BBH = {
    "boolean_expressions": ("logic", 0.20, 0.25), "causal_judgement": ("commonsense", 0.30, 0.40),
    "date_understanding": ("commonsense", 0.25, 0.35), "disambiguation_qa": ("language", 0.25, 0.45),
    "dyck_languages": ("logic", 0.40, 0.70), "formal_fallacies": ("logic", 0.45, 0.50),
    "geometric_shapes": ("other", 0.50, 0.60), "hyperbaton": ("language", 0.15, 0.30),
    "logical_deduction_three_objects": ("logic", 0.35, 0.25),
    "logical_deduction_five_objects": ("logic", 0.55, 0.50),
    "logical_deduction_seven_objects": ("logic", 0.75, 0.65),
    "movie_recommendation": ("knowledge", 0.15, 0.35), "multistep_arithmetic_two": ("mathematics", 0.40, 0.50),
    "navigate": ("logic", 0.30, 0.35), "object_counting": ("mathematics", 0.20, 0.25),
    "penguins_in_a_table": ("logic", 0.30, 0.35), "reasoning_about_colored_objects": ("logic", 0.30, 0.30),
    "ruin_names": ("language", 0.20, 0.45), "salient_translation_error_detection": ("language", 0.45, 0.55),
    "snarks": ("language", 0.20, 0.40), "sports_understanding": ("commonsense", 0.10, 0.30),
    "temporal_sequences": ("logic", 0.40, 0.35), "tracking_shuffled_objects_three_objects": ("logic", 0.35, 0.35),
    "tracking_shuffled_objects_five_objects": ("logic", 0.50, 0.50),
    "tracking_shuffled_objects_seven_objects": ("logic", 0.65, 0.60), "web_of_lies": ("logic", 0.40, 0.40),
    "word_sorting": ("language", 0.30, 0.50),
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
    """5,222 items with recorded outcomes: failure of twelve small models, T from five thinking models."""
    items = lines(data / "mmlu_pro_outcomes" / "items.jsonl")
    outcomes = pd.read_parquet(data / "mmlu_pro_outcomes" / "outcomes.parquet")
    fast = outcomes[outcomes.model.isin(FAST_MMLU)].groupby("row").correct.mean()
    thought = outcomes[outcomes.model.isin(THINKING_MMLU)]
    time = np.exp(np.log(thought.response_tokens).groupby(thought.row).mean())
    time = time / np.quantile(time, 0.99)
    domains = {"math": "mathematics", "computer science": "other"}
    return [
        Row("mmlu_pro", i["category"], domains.get(i["category"], "knowledge"), mmlu_text(i),
            d_star(time[i["row"]], 1 - fast[i["row"]]))
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


def math(data: Path) -> list[Row]:
    """MATH: length of the solution, and an assumed failure by level."""
    return [
        Row("math", r["type"], "mathematics", r["problem"],
            d_star(len(r["solution"].split()) / SOLUTION_TOKENS, LEVEL_FAILURE.get(int(r["level"][-1]), 0.5)
                   if r["level"][-1].isdigit() else 0.5))
        for r in lines(data / "math" / "test.jsonl")
    ]  # fmt: skip


def gsm8k(data: Path) -> list[Row]:
    """GSM8K train only: length of the solution, and an assumed failure by its number of steps."""
    return [
        Row("gsm8k", "gsm8k", "mathematics", r["question"],
            d_star(len(r["answer"].split()) / SOLUTION_TOKENS, 1 - STEP_SUCCESS ** r["answer"].count("<<")))
        for r in lines(data / "gsm8k" / "train.jsonl")
    ]  # fmt: skip


def strategyqa(data: Path) -> list[Row]:
    """StrategyQA: length of facts and decomposition, and an assumed failure by its number of steps."""
    rows = []
    for r in lines(data / "strategyqa" / "train.jsonl"):
        reasoning = " ".join([*r["decomposition"], *r["facts"]])
        failure = 1 - STEP_SUCCESS ** len(r["decomposition"])
        target = d_star(len(reasoning.split()) / SOLUTION_TOKENS, failure)
        rows.append(Row("strategyqa", "strategyqa", "commonsense", r["question"], target))
    return rows


def bbh(data: Path) -> list[Row]:
    """BIG-Bench Hard with judged difficulty per task."""
    return [
        Row("bbh", task, domain, e["input"], d_star(time, failure))
        for task, (domain, time, failure) in BBH.items()
        for e in json.loads((data / "bbh" / f"{task}.json").read_text("utf8"))["examples"]
    ]


def anchors(path: Path | None = None) -> list[Row]:
    """The hand-written ends of the scale."""
    path = path or Path(__file__).with_name("anchors.tsv")
    cells = [line.split("\t") for line in path.read_text("utf8").splitlines() if line and line[0] != "#"]
    return [Row("anchors", level, domain, text, LEVELS[level]) for level, domain, text in cells]


SOURCES = {"mmlu_pro": mmlu_pro, "llmrouter": llmrouter, "math": math, "gsm8k": gsm8k, "strategyqa": strategyqa, "bbh": bbh}  # fmt: skip


def mixture(data: Path) -> list[Row]:
    """All sources, then the anchors."""
    return [row for read in SOURCES.values() for row in read(data)] + anchors()


def training_mixture(data: Path) -> list[Row]:
    """The mixture without `DEFECTIVE` tasks: what d* is learned from."""
    return [r for r in mixture(data) if r.task not in DEFECTIVE]
