"""Fit the shipped belief (SPEC 9.3) to recorded answers and write src/odar/policy/belief.json.

    python scripts/training/fit_belief.py --data ../shared/data

Random cascades of up to four models of MMLU-Pro (83 models), MATH level 5 and CRUX (15 models each) give most weights. Two
recordings give what those sets do not have: the calibration half of the local pair several samples of one agent and a verifier
that saw the proposal, and both it and `freetext_cascade` log-probabilities of direct answers. Takes a minute. `scripts/training/bench_cascade.py` judges the same fit with model
families and items left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from cascade.fit import NOT_FITTED, START, fit_weights, random_walks
from cascade.recorded import load

from odar.lab.calibration.fit import Answers, fit
from odar.lab.graders.text import f1
from odar.lab.recording.files import open_recording
from odar.lab.recording.schema import Attempt, RecordedItem, recorded_signals
from odar.policy.belief import WEIGHTS, Opinion, RatedAgent, chance_level, without_guesses
from odar.policy.equivalence import group_answers
from odar.policy.signals import AnswerKind, QuantileTables, answer_kind
from odar.types import Step

ROOT = Path(__file__).parents[2]
WALKS = {"mmlu_pro": 16000, "math_l5": 3000, "crux": 3000}
PLAUSIBLE = {"strategyqa": 2, "mmlu_pro": 10, "gsm8k": 0, "math": 0}
LOCAL = {"sure_direct": 1.0, "repeat_agent": 1.0, "repeat_seen": 1.0}
"""What the local pair gives, and how far it may be from the start."""


def local_pair() -> list[Answers]:
    """The calibration half of the local pair, by set: fast, three slow samples; and fast, verifier."""
    items = [
        item
        for item in open_recording(ROOT / "runs/local-pair/recording.jsonl.gz").items()
        if item.split == "calibrate"
    ]
    tables = {model: own_quantiles(items, model) for model in ("fast", "slow")}
    found = []
    for name, plausible in PLAUSIBLE.items():
        part = [item for item in items if item.key.set == name]
        for steps in ([(Step.ANSWER, 0), (Step.SOLVE, 0), (Step.SOLVE, 1), (Step.SOLVE, 2)],
                      [(Step.ANSWER, 0), (Step.VERIFY, 0)]):  # fmt: skip
            found.append(answers(part, steps, tables, plausible))
    return found


def direct_answers(data: Path) -> list[Answers]:
    """The direct answers of `freetext_cascade` by set: Llama-3.1-8B, then GPT-5; right from an F1 of a half."""
    with gzip.open(data / "freetext_cascade" / "outcomes.jsonl.gz", "rt", encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    kept = [
        r
        for r in rows
        if r["set"] != "cnli" and answer_kind(r["fast"][1]["text"], r["fast"][1]["text"]) is AnswerKind.DIRECT
    ]
    found = []
    for name in sorted({row["set"] for row in kept}):
        part = [row for row in kept if row["set"] == name]
        texts = [[row["fast"][1]["text"], row["slow"][0]["text"]] for row in part]
        right = np.array(
            [[float(f1([r["gold"]], t) >= 0.5) for t in own] for r, own in zip(part, texts, strict=True)]
        ).T
        groups = np.array([group_answers(own) for own in texts]).T  # (2, N)
        lengths = np.array([[len(text) for text in own] for own in texts], dtype=float).T
        # the log-probability of the whole answer: the mean, times about the number of its tokens
        logprob = np.array([row["fast"][1]["mean_logprob"] for row in part]) * (1 + lengths[0] / 4)
        opinions = [
            Opinion(
                RatedAgent("fast", right[0].mean(), "llama"),
                groups[0],
                _ranks(lengths[0]),
                _ranks(logprob),
                direct=True,
            ),
            Opinion(RatedAgent("slow", right[1].mean(), "gpt"), groups[1], _ranks(lengths[1])),
        ]
        found.append(Answers(opinions, list(right), np.zeros(len(part)), None, prefixes_only=True))
    return found


def _ranks(values: np.ndarray) -> np.ndarray:
    return (np.argsort(np.argsort(values)) + 0.5) / len(values)


def attempt_of(item: RecordedItem, step: Step, index: int) -> Attempt:
    """The recorded answer of a step."""
    return next(a for a in item.attempts if a.step is step and a.index == index)


def own_quantiles(items: list[RecordedItem], agent: str) -> QuantileTables:
    """Quantiles of an agent's first answers, of all kinds of answers together."""
    step = Step.ANSWER if agent == "fast" else Step.SOLVE
    signals = [recorded_signals(attempt_of(item, step, 0)) for item in items]
    names = ("length", "mean_logprob", "answer_logprob")
    return QuantileTables.fit({
        (kind.value, n): [getattr(s, n) for s in signals if s.kind is kind and getattr(s, n) is not None]
        for n in names for kind in AnswerKind
    })  # fmt: skip


def answers(
    items: list[RecordedItem], steps: list[tuple[Step, int]], tables: dict[str, QuantileTables], plausible: int
) -> Answers:
    """What the local pair answered to the items of a set."""
    given = [[attempt_of(item, *step) for step in steps] for item in items]
    groups = np.array([group_answers([a.answer for a in row]) for row in given]).T
    groups[np.array([[not a.answer.strip() for a in row] for row in given]).T] = -1
    right = np.array([[float((a.score or 0) >= 0.5) for a in row] for row in given]).T
    opinions = []
    for j, (step, _) in enumerate(steps):
        role = "fast" if step is Step.ANSWER else "slow"
        rows = [(right[0] if role == "fast" else right[1]).mean()]
        signals = [recorded_signals(row[j]) for row in given]
        direct = np.array([s.kind is AnswerKind.DIRECT and s.answer_logprob is not None for s in signals])
        used = ["answer_logprob" if each else "mean_logprob" for each in direct]
        length = [_rank(tables[role], s.kind, "length", s.length) for s in signals]
        logprob = [_rank(tables[role], s.kind, n, getattr(s, n)) for s, n in zip(signals, used, strict=True)]
        shrunk = (rows[0] * len(items) + 1) / (len(items) + 2)
        skill = float(without_guesses(shrunk, chance_level(plausible)))
        opinions.append(
            Opinion(
                RatedAgent(role, skill, "qwen"),
                groups[j],
                length=np.array(length),
                logprob=np.array(logprob),
                direct=direct,
                stated=np.array([s.stated for s in signals]),
                saw_proposal=step is Step.VERIFY,
            )
        )
    difficulty = np.array([item.difficulty for item in items])
    return Answers(opinions, list(right), np.full(len(items), plausible), difficulty, prefixes_only=True)


def _rank(tables: QuantileTables, kind: str, name: str, value: float | None) -> float:
    rank = tables.rank(kind, name, value)
    return 0.5 if rank is None else rank


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    rng = np.random.default_rng(42)
    walks = []
    for name, number in WALKS.items():
        recorded = load(name, options.data)
        walks += random_walks(recorded, range(len(recorded.models)), np.arange(len(recorded.prior)), number, rng)
    belief = fit_weights(walks)
    local = local_pair()
    belief, _ = fit(belief, [*local, *direct_answers(options.data)], LOCAL, observations=4.0)
    raw = {
        "format": "odar-belief/1",
        "weights": {name: round(float(belief.weights[name]), 4) for name in WEIGHTS},
        "about": {
            "made by": "scripts/training/fit_belief.py",
            "cascades": WALKS,
            "local questions": sum(len(each.right[0]) for each in local[::2]),
            "sources": "LLM-Calibration-Study (MIT), MMLU-Pro (MIT), ZeroEval (Apache-2.0), "
            "ANLP-LLM-Routing-and-Cascading (Apache-2.0), recordings of this repository",
        },
    }
    (ROOT / "src/odar/policy/belief.json").write_text(json.dumps(raw, indent=1) + "\n", "utf-8")
    print(json.dumps(raw["weights"], indent=1))
    print(f"start of what was not fitted to many models: { {name: START[name] for name in NOT_FITTED} }")


if __name__ == "__main__":
    main()
