"""Fit the shipped belief (SPEC 9.3) to recorded answers and write src/odar/policy/belief.json.

    python scripts/fit_belief.py --data ../shared/data

Random cascades of up to four models of MMLU-Pro (83 models), MATH level 5 and CRUX (15 models each) give most weights. The
calibration half of the local pair gives what those sets do not have: several samples of one agent, a verifier that saw the
proposal, and log-probabilities of the answer. Takes half a minute. `scripts/bench_cascade.py` judges the same fit with model
families and items left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from cascade.fit import NOT_FITTED, START, fit_weights, random_walks
from cascade.recorded import load

from odar.policy.belief import Agent, Opinion
from odar.policy.belief_fit import Answers, fit
from odar.policy.equivalence import group_answers
from odar.policy.signals import AnswerKind, QuantileTables
from odar.recording.files import open_recording
from odar.recording.schema import Attempt, RecordedItem, recorded_signals
from odar.types import Step

ROOT = Path(__file__).parents[1]
WALKS = {"mmlu_pro": 16000, "math_l5": 3000, "crux": 3000}
PLAUSIBLE = {"strategyqa": 2, "mmlu_pro": 10, "gsm8k": 0, "math": 0}
LOCAL = {"sure_answer": 0.5, "repeat_agent": 1.0, "repeat_seen": 1.0}
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
        ranks = {
            name: np.array([_rank(tables[role], s.kind, name, getattr(s, name)) for s in signals])
            for name in ("length", "mean_logprob", "answer_logprob")
        }
        skill = float(np.clip((rows[0] * len(items) + 1) / (len(items) + 2), 0.05, 0.95))
        opinions.append(
            Opinion(
                Agent(role, skill, "qwen"),
                groups[j],
                **ranks,
                stated=np.array([s.stated for s in signals]),
                saw_proposal=step is Step.VERIFY,
            )
        )
    difficulty = np.array([item.difficulty for item in items])
    return Answers(opinions, list(right), np.full(len(items), plausible), difficulty, prefixes_only=True)


def _rank(tables: QuantileTables, kind: str, name: str, value: float | None) -> float:
    rank = tables.rank_one(kind, name, value)
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
    belief, _ = fit(belief, local, LOCAL, observations=4.0)
    raw = belief.to_dict() | {
        "about": {
            "made by": "scripts/fit_belief.py",
            "cascades": WALKS,
            "local questions": sum(len(each.right[0]) for each in local[::2]),
            "sources": "LLM-Calibration-Study (MIT), MMLU-Pro (MIT), ZeroEval (Apache-2.0), recordings of this repository",
        }
    }
    (ROOT / "src/odar/policy/belief.json").write_text(json.dumps(raw, indent=1) + "\n", "utf-8")
    print(json.dumps(raw["weights"], indent=1))
    print(f"start of what was not fitted to many models: { {name: START[name] for name in NOT_FITTED} }")


if __name__ == "__main__":
    main()
