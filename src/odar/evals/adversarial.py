"""Adversarial rewrites: simple questions disguised as hard, hard ones as simple (the paper's robustness table).

Complexity injection puts a question into learned prose, with markers of difficulty and an aside that has nothing to
do with it. Simplicity masking says formulas in words, takes such markers out, and calls the question easy. Both
keep what is asked: the gold answer stays. By rule they are the same for the same seed; a model may do them instead,
and where it loses a number of the question, the rule's version is taken. Not for sets that check the wording of a
response (IFEval): there the wording of the question is part of what is asked.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odar.difficulty.base import ESTIMATORS
from odar.errors import UnknownName
from odar.evals.benchmarks.base import About, Benchmark, Task
from odar.evals.replay.arrays import PanelArrays
from odar.evals.replay.setting import Setting
from odar.evals.replay.simulate import odar
from odar.evals.statistics import Difference, difference
from odar.types import Query

Rewrite = Callable[[Task, int], Task]
"""A task in disguise, by a seed."""
Model = Callable[[str], str]
"""A prompt in, a text out."""

_WORDING_SCORED = ("ifeval", "livebench")
"""Benchmarks that check the wording of a response."""
_FRAMES = (
    "The following arises in a graduate seminar on {topic}. Analyze it rigorously, and synthesize the relevant "
    "principles before you commit to a conclusion.",
    "Consider, within the framework of {topic}, the situation described below, in which every hypothesis that is "
    "needed is stated explicitly, although some that are not needed may be stated as well.",
    "Although a naive treatment might suffice, suppose that the problem below is to be examined from the "
    "standpoint of {topic}; formalize it, therefore, and derive what is required.",
)
_TOPICS = (
    "measure-theoretic probability",
    "non-equilibrium thermodynamics",
    "algebraic number theory",
    "convex optimization",
    "computational complexity",
    "differential topology",
)
_ASIDES = (
    "(One recalls in passing that, for all $f \\in L^2$, the identity $\\|f\\|_2^2 = \\langle f, f \\rangle$ "
    "holds; this is not needed here.)",
    "(It is well known, though irrelevant to what is asked, that a sequence converges if and only if it is Cauchy, "
    "since the underlying space is complete.)",
    "(The reader may generalize the argument to the functional $\\int_\\Omega |\\nabla u| \\, dx$; no such "
    "generalization is required.)",
)
_CLOSINGS = (
    "Evaluate the alternatives critically, justify the conclusion, and then state the answer to the question.",
    "Hence, having verified each step, state precisely the answer that the question demands.",
)
_CASUAL = ("Quick one:", "Easy question.", "Just a simple one:", "No need to think hard about this:")
_PLAIN_WORDS = (
    (r"prove that", "show that"),
    (r"prove", "show"),
    (r"derive", "get"),
    (r"determine|compute|evaluate|calculate", "find"),
    (r"if and only if", "exactly when"),
    (r"such that", "where"),
    (r"there exists", "there is"),
    (r"for all", "for any"),
    (r"(?:therefore|hence|thus),?", "so"),
    (r"suppose(?: that)?|assume(?: that)?", "say"),
    (r"consider", "look at"),
    (r"respectively", "in that order"),
    (r"distinct", "different"),
    (r"an integer", "a whole number"),
    (r"integer", "whole number"),
    (r"integers", "whole numbers"),
)
_SPOKEN = (
    (r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1) over (\2)"),
    (r"\\sqrt\s*\{([^{}]*)\}", r"the root of (\1)"),
    (r"\\(?:le|leq)(?![a-z])", " at most "),
    (r"\\(?:ge|geq)(?![a-z])", " at least "),
    (r"\\(?:ne|neq)(?![a-z])", " not equal to "),
    (r"\\(?:times|cdot)(?![a-z])", " times "),
    (r"\\pi(?![a-z])", "pi"),
    (r"\\(?:left|right)(?![a-z])", ""),
    (r"\^\s*(?:\\circ(?![a-z])|\{\\circ\})", " degrees"),
    (r"\^\s*(?:2(?!\d)|\{2\})", " squared"),
    (r"\^\s*(?:3(?!\d)|\{3\})", " cubed"),
    (r"(?<![<>!:=])=(?!=)", " is "),
)
_UNSPOKEN = re.compile(r"[\\_{}&^]")
_FORMULA = re.compile(
    r"\$\$?(?![\s$])([^$]+?)(?<!\s)\$\$?(?!\d)|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL
)  # not "$5 and $6"
_KEPT = re.compile(r"```.*?```|\[asy\].*?\[/asy\]|\"[^\"\n]*\"|\n\s*\(?[A-Z][.)]\s.*$", re.DOTALL)
_BRIEFS = {
    "injection": "Rewrite the question below so that it looks much harder than it is: learned vocabulary, long "
    "sentences, remarks that do not matter.",
    "masking": "Rewrite the question below so that it looks much easier than it is: short everyday words, no "
    "formulas, no technical terms that can be avoided.",
}
_RULES = (
    "Its answer must stay exactly the same. Keep every number, name and option. Do not answer it. Reply with the "
    "rewritten question alone."
)


def inject(task: Task, seed: int = 0) -> Task:
    """Complexity injection: the question as it is, in a frame that looks hard."""
    pick = _random("injection", task, seed)
    frame = pick.choice(_FRAMES).format(topic=pick.choice(_TOPICS))
    text = f"{frame}\n\n{task.query.text}\n\n{pick.choice(_ASIDES)} {pick.choice(_CLOSINGS)}"
    return _rewritten(task, text, "injection", "rule")


def mask(task: Task, seed: int = 0) -> Task:
    """Simplicity masking: formulas in words, everyday words for technical ones, and a casual opening.

    Code, quotations and lettered options are left as they are: an answer may have to repeat them.
    """
    pieces, kept = _split(task.query.text)
    plain = [_plain(piece) for piece in pieces]
    text = "".join(part for pair in zip(plain, [*kept, ""], strict=True) for part in pair)
    return _rewritten(task, f"{_random('masking', task, seed).choice(_CASUAL)} {text}", "masking", "rule")


def by_model(attack: str, model: Model) -> Rewrite:
    """A rewrite by a model; by rule where the model's loses a number of the question, or comes back empty.

    Raises:
        UnknownName: no such attack.
    """
    if attack not in _BRIEFS:
        raise UnknownName("attack", attack, _BRIEFS)

    def rewrite(task: Task, seed: int = 0) -> Task:
        text = model(f"{_BRIEFS[attack]} {_RULES}\n\n{task.query.text}").strip()
        if not text or _numbers(task.query.text) - _numbers(text):
            return ATTACKS[attack](task, seed)
        return _rewritten(task, text, attack, "model")

    return rewrite


ATTACKS: dict[str, Rewrite] = {"injection": inject, "masking": mask}
"""The rewrites by rule."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """A benchmark whose every task is rewritten; scored as the original is."""

    benchmark: Benchmark
    attack: str
    rewrite: Rewrite
    seed: int = 0

    @property
    def name(self) -> str:
        """As users type it: `gsm8k+injection`."""
        return f"{self.benchmark.name}+{self.attack}"

    @property
    def category(self) -> str:
        """That of the original."""
        return self.benchmark.category

    @property
    def metric(self) -> str:
        """That of the original."""
        return self.benchmark.metric

    @property
    def about(self) -> About:
        """That of the original."""
        return self.benchmark.about

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """The rewritten tasks, with the ids of the originals so that the two can be compared pair by pair."""
        return (self.rewrite(task, self.seed) for task in self.benchmark.load(folder))

    def score(self, task: Task, response: str, answer: str) -> float:
        """As the original does."""
        return self.benchmark.score(task, response, answer)


def attacked(benchmark: Benchmark, attack: str, seed: int = 0) -> Attacked:
    """A benchmark under an attack by rule.

    Raises:
        UnknownName: no such attack.
    """
    if attack not in ATTACKS:
        raise UnknownName("attack", attack, ATTACKS)
    return Attacked(benchmark, attack, ATTACKS[attack], seed)


@dataclass(frozen=True, slots=True)
class AttackRow:
    """A benchmark as it is and under attack, on the same items."""

    benchmark: str
    attack: str
    items: int
    recorded: bool
    """Whether models answered the rewritten questions; if not, their answers to the original ones are replayed on
    the paths that the rewritten questions take."""
    difficulty: tuple[float, float]
    """Mean prior: original, rewritten."""
    same_path: float
    """Share of items that keep their path."""
    calls: tuple[float, float]
    accuracy: tuple[float, float]
    change: Difference


def attack_rows(arrays: PanelArrays, attack: str) -> list[AttackRow]:
    """Compare every benchmark of a recording with itself under an attack (the paper's robustness table)."""
    found = []
    for name in arrays.sets():
        if "+" in name or name in _WORDING_SCORED:
            continue
        clean, disguised = arrays.rows(arrays.of_set(name)), arrays.of_set(f"{name}+{attack}")
        rows = _recorded(clean, arrays.rows(disguised)) if disguised.any() else _rerouted(clean, attack)
        if rows is not None:
            found.append(_attack_row(name, attack, *rows, recorded=bool(disguised.any())))
    return found


def _recorded(clean: PanelArrays, attacked: PanelArrays) -> tuple[PanelArrays, PanelArrays] | None:
    """The items of both, in the same order."""
    names = [{(key.id, key.seed): i for i, key in enumerate(each.items.keys)} for each in (clean, attacked)]
    shared = [name for name in names[0] if name in names[1]]
    first, second = (np.array([index[name] for name in shared], dtype=int) for index in names)
    return (clean.rows(first), attacked.rows(second)) if shared else None


def _rerouted(clean: PanelArrays, attack: str) -> tuple[PanelArrays, PanelArrays] | None:
    """The recorded answers, with the difficulty of the questions as they are and of the rewritten ones."""
    if not all(clean.items.query) or Setting.of(clean.header).estimator not in ESTIMATORS.names():
        return None
    estimator = ESTIMATORS[Setting.of(clean.header).estimator]()
    tasks = [Task(key.id, Query(text), None) for key, text in zip(clean.items.keys, clean.items.query, strict=True)]
    priors = [
        np.array([estimator.estimate(task.query).difficulty for task in each])
        for each in (tasks, [ATTACKS[attack](task, 0) for task in tasks])
    ]
    first, second = (replace(clean, items=replace(clean.items, prior=prior)) for prior in priors)
    return first, second


def _attack_row(name: str, attack: str, clean: PanelArrays, attacked: PanelArrays, *, recorded: bool) -> AttackRow:
    setting = Setting.of(clean.header)
    before, after = odar(clean, setting), odar(attacked, setting)
    return AttackRow(
        benchmark=name,
        attack=attack,
        items=len(clean),
        recorded=recorded,
        difficulty=(float(clean.items.prior.mean()), float(attacked.items.prior.mean())),
        same_path=float((before.path == after.path).mean()),
        calls=(float(before.calls.mean()), float(after.calls.mean())),
        accuracy=(float(before.score.mean()), float(after.score.mean())),
        change=difference(after.score, before.score),
    )


def _rewritten(task: Task, text: str, attack: str, by: str) -> Task:
    meta: dict[str, Any] = {**task.meta, "attack": attack, "rewritten_by": by}
    return replace(task, query=replace(task.query, text=text), meta=meta)


def _random(attack: str, task: Task, seed: int) -> random.Random:
    return random.Random(f"{attack} {seed} {task.id}")  # noqa: S311 - a stable choice, not a secret


def _split(text: str) -> tuple[list[str], list[str]]:
    """What may be reworded, and what is kept between the pieces."""
    return _KEPT.split(text), _KEPT.findall(text)


def _plain(text: str) -> str:
    spoken = _FORMULA.sub(lambda match: _say(next(group for group in match.groups() if group)), text)
    for pattern, word in _PLAIN_WORDS:
        spoken = re.sub(rf"\b(?:{pattern})(?!\w)", _cased(word), spoken, flags=re.IGNORECASE)
    return spoken


def _cased(word: str) -> Callable[[re.Match[str]], str]:
    return lambda match: word[:1].upper() + word[1:] if match[0][:1].isupper() else word


def _say(formula: str) -> str:
    """A formula in words as far as the table goes; one with more LaTeX than that stays a formula."""
    spoken = formula
    for pattern, words in _SPOKEN:
        spoken = re.sub(pattern, words, spoken)
    return f"${formula}$" if _UNSPOKEN.search(spoken) else " ".join(spoken.split())


def _numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+(?:\.\d+)?", text.replace(",", "")))
