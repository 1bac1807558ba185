"""Answers that ended at the limit of tokens (SPEC 3.6): which are continued, how many there are, what would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from odar.conversation import Options
from odar.types import Candidate, Role

WARN_SHARE = 0.2
"""Share of an agent's answers that may be cut off before the user is told."""
MIN_ANSWERS = 10
"""Fewer answers say little about a share."""
_GOAL = 0.05
_MAX_FACTOR = 4.0

Counts = Mapping[Role, tuple[int, int]]
"""Answers of each agent, and those that were cut off."""


def wants_continuation(finish: str, stated: bool, options: Options) -> bool:
    """Return whether an answer should be continued: it was cut off by our limit before it stated its answer.

    A client that sets max_tokens, tools or a format gets what it asked for, cut off or not.
    """
    own = options.max_tokens is not None or options.tools or options.format is not None
    return finish == "length" and not stated and not own


def cut_off_counts(candidates: Sequence[Candidate], options: Options) -> dict[Role, tuple[int, int]]:
    """Count the answers of each agent, and those cut off; nothing counts where the client set the limit itself."""
    found = {Role.FAST: (0, 0), Role.SLOW: (0, 0)}
    for candidate in candidates if options.max_tokens is None else ():
        answers, cut = found[candidate.role]
        found[candidate.role] = answers + 1, cut + (candidate.finish == "length")
    return found


def tokens_needed(limit: int, answers: int, cut_off: int) -> int:
    """Return a limit at which about 5% of such answers would be cut off.

    Lengths are taken to be memoryless: if a share p is longer than L, p² is longer than 2L. At most four times the
    limit is proposed, because a model that never ends has no length.
    """
    share = (cut_off + 0.5) / (answers + 1)
    factor = min(_MAX_FACTOR, max(1.25, math.log(_GOAL) / math.log(share))) if share < 1 else _MAX_FACTOR
    return math.ceil(limit * factor / 128) * 128


def cut_off_notes(counts: Counts, limits: Mapping[Role, int | None]) -> list[str]:
    """Say of one question which agent had most of its answers cut off, and how many tokens would do."""
    return _describe({role: each for role, each in counts.items() if 2 * each[1] > each[0]}, limits)


def cut_off_warnings(counts: Counts, limits: Mapping[Role, int | None]) -> list[str]:
    """Say of many questions which agent has more than 20% of its answers cut off.

    >>> cut_off_warnings({Role.SLOW: (100, 31)}, {Role.SLOW: 1024})
    ['slow agent: 31 of 100 answers were cut off at 1024 tokens; about 2688 would do (slow.max_tokens)']
    """
    many = {role: (n, cut) for role, (n, cut) in counts.items() if n >= MIN_ANSWERS and cut > WARN_SHARE * n}
    return _describe(many, limits)


def _describe(counts: Counts, limits: Mapping[Role, int | None]) -> list[str]:
    return [
        f"{role} agent: {cut} of {answers} answers were cut off at {limit} tokens; "
        f"about {tokens_needed(limit, answers, cut)} would do ({role}.max_tokens)"
        for role, (answers, cut) in counts.items()
        if (limit := limits.get(role)) is not None
    ]
