"""Write src/odar/policy/quantiles.json: signals of answers as ranks, for models of which nothing is known yet (SPEC 5.11).

    python scripts/training/fit_quantiles.py --data ../shared/data

Reasoned answers: the median table of the MMLU-Pro models that are right on at least 30%. Direct answers and free text: Llama-3.1-8B
on three sets of `freetext_cascade`. Takes seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
from mixture import judged, lines, question_hash

from odar.lab.recording.files import open_recording
from odar.lab.recording.schema import CHARACTERS_PER_TOKEN, Attempt, recorded_signals
from odar.policy.signals import AnswerKind, QuantileTables, answer_kind
from odar.types import Step

ROOT = Path(__file__).parents[2]
OUT = ROOT / "src/odar/policy/quantiles.json"
LEAST_RIGHT = 0.3


def reasoned(data: Path) -> QuantileTables:
    """Lengths and log-probabilities of the finished answers of each model; the median table of all."""
    folder = data / "mmlu_pro_outcomes"
    items = lines(folder / "items.jsonl")
    kept = {item["row"] for item in items if question_hash(item["question"]) not in judged()}
    by_model: dict[str, list[dict]] = {}
    for row in pyarrow.parquet.read_table(folder / "outcomes.parquet").to_pylist():
        if row["row"] in kept:
            by_model.setdefault(row["model"], []).append(row)
    own = []
    for rows in by_model.values():
        if np.mean([row["correct"] for row in rows]) < LEAST_RIGHT:
            continue
        probability = np.array([row["mean_token_probability"] for row in rows], dtype=float)
        known = np.isfinite(probability)
        if known.mean() < 0.5 or len(np.unique(probability[known])) < 50:  # none, or a constant
            probability[:] = np.nan
        else:
            probability[~known] = np.nanmedian(probability)
        finished = np.array([row["answer"] is not None for row in rows])
        length = CHARACTERS_PER_TOKEN * np.array([row["response_tokens"] for row in rows], dtype=float)
        logprob = np.log(np.clip(probability, 1e-6, 1.0))
        signals = {("reasoned", "length"): length[finished], ("reasoned", "mean_logprob"): logprob[finished]}
        own.append(QuantileTables.fit(signals).tables)
    keys = sorted({key for tables in own for key in tables})
    pooled = {key: np.median([tables[key] for tables in own if key in tables], axis=0) for key in keys}
    pooled["reasoned", "mean_logprob"] *= jensen_factor()
    return QuantileTables(pooled)


def jensen_factor() -> float:
    """The mean log-probability ÷ the log of the mean probability, which is all that MMLU-Pro's outcomes have.

    The median over the reasoned answers of the local pair, the only ones with both figures.
    """
    ratios = []
    for item in open_recording(ROOT / "runs/local-pair/recording.jsonl.gz").items():
        for attempt in item.attempts:
            if attempt.tokens and answer_kind(attempt.text, attempt.answer, attempt.stated) is AnswerKind.REASONED:
                counted = [token.logprob for token in attempt.tokens if not token.control]
                known = [value for value in counted if value is not None]
                ratios.append(np.mean(known) / np.log(np.mean(np.exp(known))))
    print(f"mean log-probability ÷ log of the mean probability: {np.median(ratios):.3f}, {len(ratios)} answers")
    return float(np.median(ratios))


def short_answers(data: Path) -> QuantileTables:
    """Direct answers and free text.

    Direct answers of larger models are far surer than Llama-3.1-8B's: half of them are above a probability of 0.999. So half of
    their table is spread evenly over the magnitudes of the log-probability from 1e-6 to 1: whatever the model, no
    large part of its answers has nearly one rank.
    """
    signals = []
    with gzip.open(data / "freetext_cascade" / "outcomes.jsonl.gz", "rt", encoding="utf8") as file:
        for row in map(json.loads, file):
            if row["set"] != "cnli":
                sample = row["fast"][1]  # the one with a log-probability
                text, mean = sample["text"], sample["mean_logprob"]
                attempt = Attempt(
                    agent="fast", step=Step.ANSWER, model="fast", text=text, answer=text, mean_logprob=mean
                )
                signals.append(recorded_signals(attempt))
    tables = QuantileTables.of_answers(signals)
    for name in ("answer_logprob", "mean_logprob"):
        values = [getattr(each, name) for each in signals if each.kind is AnswerKind.DIRECT]
        known = [value for value in values if value is not None]
        wide = -np.logspace(-6, 0, len(known))
        tables = QuantileTables.fit({("direct", name): [*known, *wide]}).with_fallback(tables)
    return tables


def main() -> None:
    """Fit, and write the file."""
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--data", type=Path, required=True)
    cli.add_argument("--out", type=Path, default=OUT)
    args = cli.parse_args()
    found = short_answers(args.data).with_fallback(reasoned(args.data)).to_dict()
    args.out.write_text(json.dumps(found) + "\n", "utf8")
    print(f"{args.out}: {', '.join(f'{kind} {name}' for kind, rows in found.items() for name in rows)}")


if __name__ == "__main__":
    main()
