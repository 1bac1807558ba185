from __future__ import annotations

import numpy as np
import pytest

from odar.errors import InputError
from odar.evals.pair_summary import summarize_pair
from odar.policy.posterior import PosteriorDifficulty
from odar.recording.schema import Attempt, ItemKey, RecordedItem
from odar.types import Step, Usage

POSTERIOR = PosteriorDifficulty.fitted()


def item(i, fast, slow, mean=None, difficulty=0.5, usd=(0.001, 0.01)):
    attempts = tuple(
        Attempt(step=step, model=step.role.value, text="4", answer="4", score=score, mean_logprob=mean,
                usage=Usage(1, 0, 10), prompt_usd=None if cost is None else 0.0, output_usd=cost)
        for step, score, cost in zip((Step.ANSWER, Step.SOLVE), (fast, slow), usd, strict=True)
    )  # fmt: skip
    return RecordedItem(
        key=ItemKey("s", str(i), 0), category="", metric="score", stratum="", fold=0, query="", gold="4", effort=None,
        features=(), difficulty=difficulty, expert="general", attempts=attempts,
    )  # fmt: skip


def confident(count=200):
    """The fast model is wrong where its log-probability is low; the slow one is always right."""
    rng = np.random.default_rng(0)
    means = -rng.random(count)
    return [item(i, float(mean > -0.5), 1.0, float(mean), (i % 10) / 10) for i, mean in enumerate(means)]


def test_every_way_to_use_the_pair_has_its_row():
    items = confident()
    found = summarize_pair(items, POSTERIOR, 0.3)
    rows = {row.name: row for row in found.rows}
    fast = np.mean([each.attempts[0].score for each in items])
    assert rows["always fast"].accuracy.value == pytest.approx(fast)
    assert (rows["always slow"].accuracy.value, rows["always slow"].calls) == (1.0, 1.0)
    assert rows["oracle"].calls == pytest.approx(2 - fast)
    assert rows["oracle"].cost_usd == pytest.approx(0.001 + 0.01 * (1 - fast))
    assert rows["ODAR prior (d ≥ 0.3)"].slow_share == 0.7
    assert [rows[f"ODAR posterior, {calls:g} calls"].calls for calls in (1.25, 1.5, 1.75)] == [1.25, 1.5, 1.75]
    assert rows["ODAR posterior, 1.5 calls"].gain.low > 0.2
    assert found.apgr["posterior"] > 0.6 > found.apgr["prior"]
    assert found.signals == ("log-probabilities", "question")


def test_unknown_prices_are_unknown_and_no_gap_is_no_apgr():
    found = summarize_pair([item(i, 1.0, 1.0, usd=(0.1, None)) for i in range(40)], POSTERIOR, 0.3)
    rows = {row.name: row for row in found.rows}
    assert (rows["always fast"].cost_usd, rows["always slow"].cost_usd) == (pytest.approx(0.1), None)
    assert found.apgr == {}
    assert "ODAR prior (d ≥ 0.3)" not in rows  # every prior is the same: nothing is known of the questions
    assert found.signals == ()


def test_a_recording_without_pairs_is_refused():
    with pytest.raises(InputError, match="no item has a fast and a slow answer"):
        summarize_pair([], POSTERIOR, 0.3)
