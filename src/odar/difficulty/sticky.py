"""How hard a turn of a conversation is: by itself, or by what it follows on.

"Commit it" after a proof is five per cent of a sentence and all of a proof. So a short turn inherits from the
user turns before it, less for each turn in between and less the more it says for itself:

    d = max(d_last, w · max_k 0.75^k · d_k)      k = 1 for the turn before, 2 for the one before that, …

with w = 1 up to 8 words, falling to 0 at 24. A turn at d = 0.9 so gives its first short follow-up 0.68, the next
0.51, then 0.38, then 0.28: the slow agent sees three of them, the weakest model alone only the fourth. Whether 0.75
is the right number is for calibration to say; it is chosen so that one step from a hard turn lands in Medium.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odar.difficulty.base import Estimator, LazyEstimator
from odar.difficulty.text import READ_LIMIT
from odar.types import Estimate, Query

DECAY = 0.75
REACH = 4
"""Turns looked back at: 0.75^5 is below the first threshold whatever came before."""
SHORT_WORDS, LONG_WORDS = 8, 24


def estimate_turn(estimator: Estimator, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
    """The difficulty of a query's last user turn, given the earlier ones.

    With `thresholds`, the dependency parse is made only where d could lie on either side of one of them.
    """
    asked = turns(query)
    if thresholds is None or not isinstance(estimator, LazyEstimator):
        return combine_turns(query, [estimator.estimate(turn) for turn in asked])
    unparsed = [estimator.unparsed(turn) for turn in asked]
    estimate = combine_turns(query, unparsed)
    if not estimate.crosses(thresholds):
        return estimate
    return combine_turns(
        query, [estimator.parsed(turn, known) for turn, known in zip(asked, unparsed, strict=True)]
    )


def turns(query: Query) -> list[Query]:
    """What has to be estimated: the query itself, then the earlier turns that it may lean on.

    >>> from odar.conversation import Message
    >>> said = Message("user", "Prove it."), Message("assistant", "Done."), Message("user", "Commit it.")
    >>> [turn.text for turn in turns(Query.of(said))]
    ['Commit it.', 'Prove it.']
    """
    leans = query.earlier and inheritance(_words(query.text)) > 0
    return [query, *map(Query, query.earlier[-REACH:] if leans else ())]


def combine_turns(query: Query, estimates: Sequence[Estimate]) -> Estimate:
    """The query's estimate, raised by those of its earlier `turns` where it follows on from them."""
    own, *earlier = estimates
    if not earlier:
        return own
    weight = inheritance(_words(query.text))
    before = [estimate.difficulty for estimate in earlier]
    intervals = [estimate.interval or (estimate.difficulty,) * 2 for estimate in estimates]
    lows, highs = zip(*intervals, strict=True)
    exact = [estimate.exact_or_middle for estimate in estimates]
    combined = replace(
        own,
        difficulty=sticky(own.difficulty, weight, before),
        interval=own.interval and (sticky(lows[0], weight, lows[1:]), sticky(highs[0], weight, highs[1:])),
        exact=None if own.exact is None else sticky(exact[0], weight, exact[1:]),
    )
    gain = combined.exact_or_middle - own.exact_or_middle
    if not gain:
        return combined
    return replace(combined, contributions=(*own.contributions, ("inherited", max(before), gain)))


def sticky(own: float, weight: float, earlier: Sequence[float]) -> float:
    """The difficulty of a turn that follows on others, the oldest first.

    >>> round(sticky(0.05, 1.0, [0.9]), 3), sticky(0.8, 1.0, [0.9, 0.1]), sticky(0.05, 0.0, [0.9])
    (0.675, 0.8, 0.05)
    """
    inherited = [DECAY**k * d for k, d in enumerate(reversed(earlier), start=1)]
    return max(own, weight * max(inherited, default=0.0))


def inheritance(words: int) -> float:
    """How much a turn of so many words leans on what came before it.

    >>> inheritance(2), inheritance(16), inheritance(100)
    (1.0, 0.5, 0.0)
    """
    return min(1.0, max(0.0, (LONG_WORDS - words) / (LONG_WORDS - SHORT_WORDS)))


def _words(text: str) -> int:
    """Words of a text, as far as `inheritance` can tell the difference."""
    return len(text[:READ_LIMIT].split(None, LONG_WORDS))
