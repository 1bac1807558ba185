"""Numbers from the log-probabilities of a candidate's tokens: its free energy E + λ·V, raw and aligned
(SPEC 5.1-5.5), and the confidences that other fusion rules compare."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import numpy as np

from odar.types import Candidate, Energy, Token, TokenFigures

_WINDOW = 32
"""Number of tokens over which DeepConf-style confidence is averaged."""
_CHARACTERS_PER_TOKEN = 4
"""Characters per token, for candidates whose provider lists no tokens."""


def varentropy(logprobs: Sequence[float]) -> float:
    """V = Var_t(ℓ_t), the population variance (SPEC 5.2)."""
    if not logprobs:
        return 0.0
    mean = math.fsum(logprobs) / len(logprobs)
    deviations = [logprob - mean for logprob in logprobs]
    return math.fsum(map(mul, deviations, deviations)) / len(logprobs)


@dataclass(frozen=True, slots=True)
class Alignment:
    """μ and σ of one model's free energies on its calibration set (SPEC 5.5)."""

    mean: float
    deviation: float

    def align(self, value: float) -> float:
        """F̃ = (F − μ)/σ (SPEC 5.5)."""
        return (value - self.mean) / self.deviation


def measure_energy(tokens: Sequence[Token], varentropy_weight: float, alignment: Alignment | None) -> Energy | None:
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
    return free_energy(energy, varentropy(content), varentropy_weight, alignment)


def free_energy(energy: float, varentropy: float, varentropy_weight: float, alignment: Alignment | None) -> Energy:
    """F = E + λ·V (SPEC 5.3), and F̃ if μ and σ are known.

    >>> round(free_energy(0.18, 0.025, varentropy_weight=0.1, alignment=None).free_energy, 4)
    0.1825
    """
    raw = energy + varentropy_weight * varentropy
    return Energy(energy, varentropy, raw, alignment.align(raw) if alignment else None)


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
    ends = accumulate(map(len, texts))
    return [0 not in inside[end - len(token) : end] for token, end in zip(texts, ends, strict=True)]


def missing_share(figures: Collection[TokenFigures]) -> float:
    """The share of tokens of all candidates that have no log-probability (SPEC 5.6)."""
    total = sum(counts.total for counts in figures)
    return sum(counts.missing for counts in figures) / total if total else 1.0


def token_figures(candidate: Candidate) -> TokenFigures:
    """The numbers of a candidate's tokens, without control tokens.

    If the provider lists no tokens, their number is estimated, and all of them are without a log-probability.
    """
    if candidate.figures is not None:
        return candidate.figures
    counted = [token for token in candidate.tokens if not token.control]
    if not counted:
        characters = len(candidate.text) + sum(len(str(call)) for call in candidate.tool_calls)
        estimate = -(-characters // _CHARACTERS_PER_TOKEN)
        return TokenFigures(estimate, estimate)
    known = [token.logprob for token in counted if token.logprob is not None]
    energy = candidate.energy or measure_energy(candidate.tokens, 0.0, None)
    if energy is None or not known:
        return TokenFigures(len(counted), len(counted) - len(known))
    logprobs = np.array(known)
    width = min(_WINDOW, len(logprobs))
    sums = np.concatenate(([0.0], np.cumsum(logprobs)))
    return TokenFigures(
        len(counted),
        len(counted) - len(known),
        energy.energy,
        energy.varentropy,
        mean_logprob=float(logprobs.mean()),
        mean_probability=float(np.exp(logprobs).mean()),
        lowest_window=float((sums[width:] - sums[:-width]).min() / width),
    )
