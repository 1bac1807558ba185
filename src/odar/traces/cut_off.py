"""Answers that were cut off at the token limit (SPEC 3.6): counts, and a limit that suffices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from odar.conversation import ChatParameters
from odar.types import Candidate

_ACCEPTED_SHARE = 0.05
_MAX_FACTOR = 4.0
Counts = Mapping[str, tuple[int, int]]
"""Number of answers of each agent, and how many of them were cut off."""


def cut_off_counts(candidates: Sequence[Candidate], parameters: ChatParameters) -> dict[str, tuple[int, int]]:
    """Count the answers of each agent and those cut off; all are 0 if the client set the limit."""
    counts: dict[str, tuple[int, int]] = {}
    if parameters.max_tokens is None:
        for candidate in candidates:
            answers, cut_off = counts.get(candidate.agent, (0, 0))
            counts[candidate.agent] = answers + 1, cut_off + (candidate.finish == "length")
    return counts


def tokens_needed(limit: int, answers: int, cut_off: int) -> int:
    """A limit at which about 5% of such answers would be cut off.

    Lengths are assumed to be exponential: if a share p is longer than L, p² is longer than 2L. At most four times
    the limit is proposed, because no limit suffices for a model that never stops.
    """
    share = (cut_off + 0.5) / (answers + 1)
    factor = min(_MAX_FACTOR, max(1.25, math.log(_ACCEPTED_SHARE) / math.log(share)))
    return math.ceil(limit * factor / 128) * 128


def cut_off_warnings(
    counts: Counts, limits: Mapping[str, int | None], *, share: float = 0.2, least: int = 10, setting: str = ""
) -> list[str]:
    """A line for each agent that has more than this share of its answers cut off, out of at least so many.

    `setting` is the one that limits the length, if it is not the agent's `max_tokens`.

    >>> cut_off_warnings({"slow": (100, 31)}, {"slow": 1024})
    ['slow agent: 31 of 100 answers were cut off at 1024 tokens; about 2688 would do (slow.max_tokens)']
    """
    lines = []
    for agent, (answers, cut) in counts.items():
        limit = limits.get(agent)
        if limit is not None and answers >= least and cut > share * answers:
            which = "the answer was" if answers == 1 else f"{cut} of {answers} answers were"
            remedy = f"about {tokens_needed(limit, answers, cut)} would do ({setting or f'{agent}.max_tokens'})"
            lines.append(f"{agent} agent: {which} cut off at {limit} tokens; {remedy}")
    return lines
