"""Free energy of a candidate: E + λ·V, raw and aligned between models (SPEC 5.1-5.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from odar.types import Energy, Token


def varentropy(logprobs: Sequence[float]) -> float:
    """V = Var_t(ℓ_t), the population variance (SPEC 5.2)."""
    if not logprobs:
        return 0.0
    mean = math.fsum(logprobs) / len(logprobs)
    deviations = [logprob - mean for logprob in logprobs]
    return math.fsum(map(mul, deviations, deviations)) / len(logprobs)


def free_energy(energy: float, variance: float, weight: float) -> float:
    """F = E + λ·V (SPEC 5.3).

    >>> round(free_energy(0.18, 0.025, weight=0.1), 4)
    0.1825
    """
    return energy + weight * variance


@dataclass(frozen=True, slots=True)
class Alignment:
    """μ and σ of one model's free energies on its calibration set (SPEC 5.5)."""

    mean: float
    deviation: float

    def align(self, value: float) -> float:
        """F̃ = (F − μ)/σ (SPEC 5.5)."""
        return (value - self.mean) / self.deviation


def measure_energy(tokens: Sequence[Token], weight: float, alignment: Alignment | None) -> Energy | None:
    """The free energy of a candidate's tokens, or None if they have no characters.

    E = −Σ ℓ_t / characters (SPEC 5.1). Control tokens are ignored; format scaffolding counts for E but not
    for V (SPEC 5.4). A token without a log-probability is left out together with its characters.
    """
    characters = 0
    logprobs: list[float] = []
    content: list[float] = []
    for token, scaffold in zip(tokens, scaffold_mask([token.text for token in tokens]), strict=True):
        if token.logprob is not None and not token.control:
            characters += len(token.text)
            logprobs.append(token.logprob)
            if not scaffold:
                content.append(token.logprob)
    if not characters:
        return None
    energy = -math.fsum(logprobs) / characters
    variance = varentropy(content)
    return align_energy(energy, variance, weight, alignment)


def align_energy(energy: float, variance: float, weight: float, alignment: Alignment | None) -> Energy:
    raw = free_energy(energy, variance, weight)
    return Energy(energy, variance, raw, alignment.align(raw) if alignment else None)


_SCAFFOLD = re.compile(
    r"""
      (?:\*\*|__)?\b(?:final\ )?(?:answer|judg(?:e)?ment)\b(?:\*\*|__)?\s*[:：](?:\*\*|__)?  # Answer:
    | ^[ \t]*\#{1,6}[ \t]  # markdown heading
    | ^[ \t]*(?:\d{1,2}[.)]|[-*+•])[ \t]  # 1.  2)  -  *
    | (?:\*\*|__)?\b(?:step\ \d{1,2}|restate|validate|judge|correct|analyze|strategize|execute|verify)
        (?:\*\*|__)?[:：](?:\*\*|__)?  # Step 2:  **Verify:**
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)


def scaffold_mask(texts: Sequence[str]) -> list[bool]:
    """For each token whether all its characters are white space or part of a format marker.

    >>> scaffold_mask(["An", "swer", ":", " Paris", "\\n"])
    [True, True, True, False, True]
    """
    text = "".join(texts)
    matches = list(_SCAFFOLD.finditer(text))
    if not matches:
        return [not token.strip() for token in texts]
    inside = bytearray(map(str.isspace, text))
    for match in matches:
        inside[match.start() : match.end()] = b"\x01" * (match.end() - match.start())
    mask: list[bool] = []
    start = 0
    for token in texts:
        end = start + len(token)
        mask.append(0 not in inside[start:end])
        start = end
    return mask
