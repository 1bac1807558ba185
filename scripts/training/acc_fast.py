"""Acc_fast by stratum from the local fast model's answers (SPEC 2.11); writes scripts/training/data/acc_fast.json.

    python scripts/training/acc_fast_collect.py --data ../shared/data --out ../tmp/acc_fast
    python scripts/training/acc_fast.py --outcomes ../tmp/acc_fast --data ../shared/data

The outcomes (JSON lines with set, id, question, correct) are those of Qwen2.5-Coder-0.5B-Instruct on items of GSM8K train,
MATH, StrategyQA train and BBH; the calibration half of the local recording, whose answers have the same model, prompt and
budget, is added. That model is far weaker than the small models that answered MMLU-Pro, MATH level 5 and CRUX, so its
accuracies are moved to their scale, as test equating does: guessing is taken out, the logit is moved by how far the model
is below the eight of `mixture.FAST_ZEROEVAL` on the same items of MATH level 5, and guessing is put back. The one
assumption is that this distance is the same for the other sets. Strata are shrunk towards their set.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mixture import DATA, joined, level, lines, steps, zeroeval_failure

from odar.lab.recording.files import open_recording

GUESS = {"gsm8k": 0.0, "math": 0.0, "strategyqa": 0.5}
BBH_OPTIONS = {
    "boolean_expressions": 2, "causal_judgement": 2, "date_understanding": 6, "disambiguation_qa": 3, "formal_fallacies": 2,
    "geometric_shapes": 10, "hyperbaton": 2, "logical_deduction_three_objects": 3, "logical_deduction_five_objects": 5,
    "logical_deduction_seven_objects": 7, "movie_recommendation": 4, "navigate": 2, "penguins_in_a_table": 5,
    "reasoning_about_colored_objects": 18, "ruin_names": 4, "salient_translation_error_detection": 6, "snarks": 2,
    "sports_understanding": 2, "temporal_sequences": 4, "tracking_shuffled_objects_three_objects": 3,
    "tracking_shuffled_objects_five_objects": 5, "tracking_shuffled_objects_seven_objects": 7, "web_of_lies": 2,
}  # fmt: skip
FEWEST, FEWEST_COMMON = 100, 20
"""Items a set needs, and items of MATH level 5 that both the local model and the eight others answered."""
RECORDING = Path(__file__).parents[2] / "runs/local-pair/recording.jsonl.gz"
PRIOR = 8.0
"""How many items of the whole set a stratum is mixed with."""


def stratum_of(data: Path) -> dict[tuple[str, str], str]:
    """(set, question) to its stratum: level of MATH, steps of GSM8K and StrategyQA, task of BBH."""
    found = {("math", joined(r["problem"])): level(r) for r in lines(data / "math" / "test.jsonl")}
    found |= {("gsm8k", joined(r["question"])): steps(r) for r in lines(data / "gsm8k" / "train.jsonl")}
    for part in ("train", "dev"):
        for r in lines(data / "strategyqa" / f"{part}.jsonl"):
            found["strategyqa", joined(r["question"])] = str(min(5, len(r["decomposition"])))
    for file in sorted((data / "bbh").glob("*.json")):
        for e in json.loads(file.read_text("utf8"))["examples"]:
            found["bbh", joined(e["input"])] = file.stem
    return found


def logit(p: float) -> float:
    """Log-odds, away from 0 and 1."""
    p = min(max(p, 0.01), 0.99)
    return math.log(p / (1 - p))


def of_common(right: float, items: int) -> float:
    """The log-odds of a share that may be 0, with half an answer of each kind added (Jeffreys' prior)."""
    return logit((right + 0.5) / (items + 1))


def known(right: Sequence[bool], guess: float) -> tuple[float, float]:
    """Items that were known rather than guessed, and items that could have been: their quotient is the share known."""
    return sum(right) - guess * len(right), (1 - guess) * len(right)


def moved(share: float, guess: float, shift: float) -> float:
    """The accuracy of models that are `shift` logits better, from the share of items that are known."""
    return guess + (1 - guess) / (1 + math.exp(-logit(share) - shift))


def recorded(data: Path) -> Iterator[dict[str, Any]]:
    """Answers of the calibration half of the local recording, in the form of the outcomes."""
    questions = {r["qid"]: r["question"] for r in lines(data / "strategyqa" / "train.jsonl")}
    for item in open_recording(RECORDING).items():
        if item.split == "calibrate" and item.key.set in GUESS:
            question = questions.get(item.key.id, item.query)
            yield {
                "set": item.key.set,
                "id": item.key.id,
                "question": question,
                "correct": item.attempts[0].score == 1,
            }


def read_outcomes(folder: Path, data: Path) -> list[dict[str, Any]]:
    """Every question once."""
    collected = [row for file in sorted(folder.glob("*.jsonl")) for row in lines(file)]
    once = {(row["set"], joined(row["question"])): row for row in [*recorded(data), *collected]}
    return [row for (name, _), row in once.items() if name in (*GUESS, "bbh")]


def main() -> None:
    """Read outcomes, equate, write."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--outcomes", type=Path, required=True)
    cli.add_argument("--data", type=Path, required=True)
    args = cli.parse_args()
    strata, answers = stratum_of(args.data), defaultdict(lambda: defaultdict(list))
    hardest, level5 = zeroeval_failure(args.data, "math_l5_outputs"), []
    for row in read_outcomes(args.outcomes, args.data):
        question = joined(row["question"])
        stratum = strata.get((row["set"], question))
        if stratum is None:
            raise SystemExit(f"{row['set']} {row['id']} is not a question of that set")
        answers[row["set"]][stratum].append(bool(row["correct"]))
        if row["set"] == "math" and question in hardest:
            level5.append((bool(row["correct"]), 1 - hardest[question]))
    sizes = {name: sum(map(len, parts.values())) for name, parts in answers.items()}
    if min(sizes.values(), default=0) < FEWEST or len(sizes) < 4 or len(level5) < FEWEST_COMMON:
        raise SystemExit(
            f"too few outcomes: {sizes} (at least {FEWEST} each of four sets are needed), "
            f"{len(level5)} common items of MATH level 5 (at least {FEWEST_COMMON})"
        )
    local, others = (sum(column) for column in zip(*level5, strict=True))
    shift = of_common(others, len(level5)) - of_common(local, len(level5))
    print(
        f"MATH level 5, {len(level5)} items: local model {local} right, eight models {others:.1f} on average; "
        f"shift {shift:.2f} logits"
    )
    failure: dict[str, dict[str, float]] = {}
    for name, by_stratum in sorted(answers.items()):
        items = sum(map(len, by_stratum.values()))
        guesses = {s: 1 / BBH_OPTIONS[s] if s in BBH_OPTIONS else GUESS.get(name, 0.0) for s in by_stratum}
        parts = {s: known(part, guesses[s]) for s, part in sorted(by_stratum.items())}
        share = sum(k for k, _ in parts.values()) / sum(n for _, n in parts.values())
        shares = {s: (k + PRIOR * share) / (n + PRIOR) for s, (k, n) in parts.items()} | {"all": share}
        guesses["all"] = sum(guesses[s] * len(part) for s, part in by_stratum.items()) / items
        failure[name] = {s: round(1 - moved(part, guesses[s], shift), 3) for s, part in shares.items()}
        right = sum(sum(part) for part in by_stratum.values()) / items
        print(f"{name}: {items} items, {right:.3f} right, {share:.3f} known; moved: {1 - failure[name]['all']:.3f}")
    counts = {
        name: {s: [sum(part), len(part)] for s, part in sorted(by.items())} for name, by in sorted(answers.items())
    }
    document: dict[str, Any] = {"made_by": "scripts/training/acc_fast.py", "model": "Qwen2.5-Coder-0.5B-Instruct"}
    document |= {"shift": round(shift, 3), "common_items": len(level5)}
    text = json.dumps(document | {"right_of": counts, "failure": failure}, indent=1)
    (DATA / "acc_fast.json").write_text(text + "\n", "utf8")


if __name__ == "__main__":
    main()
