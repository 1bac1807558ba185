"""Difficulty estimates for the engine: in this process, without holding up the event loop, and never missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from odar.background import Once
from odar.difficulty.base import Estimator
from odar.difficulty.baselines import LengthEstimator
from odar.difficulty.sticky import REACH, estimate_turn
from odar.types import Estimate, Query

LONG_TEXT = 1_500
"""Characters beyond which a text is estimated in a thread. A short one takes a fraction of a millisecond."""
THREADS = 2

_log = logging.getLogger(__name__)


class InProcessEstimator:
    """Runs an estimator for the engine.

    Short texts are estimated in the event loop. Loading and long texts run in a thread, so that one long prompt
    does not delay other estimates. If the estimator fails, the `length` estimator answers and the estimate says so.

    >>> from odar.difficulty.base import open_estimator
    >>> asyncio.run(InProcessEstimator(open_estimator("constant"))(Query("Why?"))).difficulty
    0.5
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._loading = Once(lambda: estimator.estimate(Query("Ready?")))
        self._threads = ThreadPoolExecutor(THREADS, "odar-estimate")

    async def __call__(self, query: Query, thresholds: Sequence[float] | None = None) -> Estimate:
        """The estimate of the last turn, given the earlier ones.

        It is exact where d could lie on either side of one of the `thresholds`, and always without them.
        """
        try:
            await self._loading.wait()  # once: questions that arrive meanwhile must not each load the parser
            if len(query.text) + sum(map(len, query.earlier[-REACH:])) <= LONG_TEXT:
                return estimate_turn(self._estimator, query, thresholds)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, estimate_turn, self._estimator, query, thresholds)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a tokenizer written in Rust can panic, which is not an `Exception`
            return self._fallback(query, error)

    def _fallback(self, query: Query, error: BaseException) -> Estimate:
        name, kind = self._estimator.name, type(error).__name__
        _log.warning("estimator %s failed (%s); the length of the question decides", name, kind)
        found = LengthEstimator().estimate(query)
        return Estimate(
            found.difficulty,
            found.estimator,
            found.contributions,
            fallback=f"estimator {name} failed ({kind}); the length of the question decided",
        )

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
