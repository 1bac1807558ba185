"""Adversarial rewrites: simple questions disguised as hard, hard ones as simple (the paper's robustness table).

Complexity injection puts a question into learned prose, with markers of difficulty and an unrelated aside.
Simplicity masking writes formulas in words, removes such markers, and calls the question easy. Both keep the
question's meaning, so the gold answer stays the same. They depend on the id of the task alone. They are not for
sets that check the wording of a response (IFEval), whose answer depends on the wording of the question.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from odar.errors import UnknownName
from odar.evals.benchmarks.base import About, Benchmark, Task

Rewrite = Callable[[Task], Task]

WORDING_SCORED = ("ifeval", "livebench")
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


def inject(task: Task) -> Task:
    """Complexity injection: the unchanged question in a frame that looks hard."""
    pick = _random("injection", task)
    frame = pick.choice(_FRAMES).format(topic=pick.choice(_TOPICS))
    text = f"{frame}\n\n{task.query.text}\n\n{pick.choice(_ASIDES)} {pick.choice(_CLOSINGS)}"
    return _rewritten(task, text, "injection")


def mask(task: Task) -> Task:
    """Simplicity masking: formulas in words, everyday words for technical ones, and a casual opening.

    Code, quotations and lettered options are left as they are: an answer may have to repeat them.
    """
    plain, kept = map(_plain, _KEPT.split(task.query.text)), _KEPT.findall(task.query.text)
    text = "".join(part for pair in zip(plain, [*kept, ""], strict=True) for part in pair)
    return _rewritten(task, f"{_random('masking', task).choice(_CASUAL)} {text}", "masking")


ATTACKS: dict[str, Rewrite] = {"injection": inject, "masking": mask}


@dataclass(frozen=True, slots=True)
class Attacked:
    """A benchmark whose every task is rewritten; scored as the original is."""

    name: str
    """The name that users type: `gsm8k+injection`."""
    category: str
    metric: str
    about: About
    original: Benchmark
    rewrite: Rewrite

    def load(self, folder: Path | None = None) -> Iterator[Task]:
        """Iterate over the rewritten tasks; they have the ids of the originals, so that pairs can be compared."""
        return map(self.rewrite, self.original.load(folder))

    def score(self, task: Task, response: str, answer: str) -> float:
        """As the original does."""
        return self.original.score(task, response, answer)


def attacked(benchmark: Benchmark, attack: str) -> Attacked:
    """Return a benchmark under an attack."""
    if attack not in ATTACKS:
        raise UnknownName("attack", attack, ATTACKS)
    name, about = f"{benchmark.name}+{attack}", benchmark.about
    return Attacked(name, benchmark.category, benchmark.metric, about, benchmark, ATTACKS[attack])


def _rewritten(task: Task, text: str, attack: str) -> Task:
    return replace(task, query=replace(task.query, text=text), meta={**task.meta, "attack": attack})


def _random(attack: str, task: Task) -> random.Random:
    return random.Random(f"{attack} 0 {task.id}")  # noqa: S311 - a stable choice, not a secret


def _plain(text: str) -> str:
    spoken = _FORMULA.sub(lambda match: _say(next(group for group in match.groups() if group)), text)
    for pattern, word in _PLAIN_WORDS:
        spoken = re.sub(rf"\b(?:{pattern})(?!\w)", _cased(word), spoken, flags=re.IGNORECASE)
    return spoken


def _cased(word: str) -> Callable[[re.Match[str]], str]:
    return lambda match: word[:1].upper() + word[1:] if match[0][:1].isupper() else word


def _say(formula: str) -> str:
    """Return a formula in words; one with LaTeX that the table does not cover stays as it is."""
    spoken = formula
    for pattern, words in _SPOKEN:
        spoken = re.sub(pattern, words, spoken)
    return f"${formula}$" if _UNSPOKEN.search(spoken) else " ".join(spoken.split())
