"""Answers that were cut off at the token limit (SPEC 3.6): counts, and a limit that suffices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from odar.conversation import ChatParameters
from odar.types import Candidate

WARN_SHARE = 0.2
"""Share of an agent's answers above which the user is warned."""
MIN_ANSWERS = 10
"""Minimum number of answers for a warning."""
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


def cut_off_notes(counts: Counts, limits: Mapping[str, int | None], setting: str = "") -> list[str]:
    """A note for each agent that had most of its answers to one question cut off.

    `setting` is the one that limits the length, if it is not the agent's `max_tokens`.
    """
    return _describe({agent: each for agent, each in counts.items() if 2 * each[1] > each[0]}, limits, setting)


def cut_off_warnings(counts: Counts, limits: Mapping[str, int | None]) -> list[str]:
    """A warning for each agent that has more than 20% of its answers to many questions cut off.

    >>> cut_off_warnings({"slow": (100, 31)}, {"slow": 1024})
    ['slow agent: 31 of 100 answers were cut off at 1024 tokens; about 2688 would do (slow.max_tokens)']
    """
    many = {agent: (n, cut) for agent, (n, cut) in counts.items() if n >= MIN_ANSWERS and cut > WARN_SHARE * n}
    return _describe(many, limits)


def _describe(counts: Counts, limits: Mapping[str, int | None], setting: str = "") -> list[str]:
    lines = []
    for agent, (answers, cut) in counts.items():
        if (limit := limits.get(agent)) is None:
            continue
        which = "the answer was" if answers == 1 else f"{cut} of {answers} answers were"
        remedy = f"about {tokens_needed(limit, answers, cut)} would do ({setting or f'{agent}.max_tokens'})"
        lines.append(f"{agent} agent: {which} cut off at {limit} tokens; {remedy}")
    return lines
