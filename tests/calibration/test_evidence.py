from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.evidence import evidence_of, is_complete_item
from odar.policy.path import HARD, MEDIUM
from odar.policy.stopping import Stopping
from odar.types import Step
from support.population import attempt, evidence, population, setup


def test_the_calls_and_costs_of_each_path():
    records = population(size=40)
    records[1] = replace(records[1], attempts=records[1].attempts[:4])
    result = setup(stopping=Stopping(None), samples=3).outcomes(evidence_of(records, 0.1))
    assert result.calls[0].tolist() == result.calls[1].tolist() == [1, 2, 4]  # a sample that failed is a call too
    assert result.cost[0] == pytest.approx([0.001, 0.005, 0.013])
    assert result.cost[1] == pytest.approx([0.001, 0.005, 0.009])
    simple = result.on_paths(np.zeros(40, dtype=np.int64))
    assert simple[0].mean() == np.mean([record.attempts[0].score for record in records])


def test_each_path_sees_only_its_own_candidates():
    found = evidence(size=10)
    medium, hard = (setup().simulate(found, np.full(10, path)) for path in (MEDIUM, HARD))
    assert medium.read.tolist() == [[True, True] + [False] * 5] * 10
    assert hard.read.tolist() == [[True, False] + [True] * 5] * 10


def test_rows_are_the_same_items_in_every_array():
    whole, some = evidence(size=30), np.arange(0, 30, 3)
    part = whole.rows(some)
    assert len(part) == len(part.fast) == len(part.candidates) == 10
    assert (part.fast.wrong == ~part.correct[:, 0]).all()
    assert part.fast.prior.tolist() == whole.fast.prior[some].tolist()


def test_effort_is_half_of_the_target_if_it_is_known():
    rng = np.random.default_rng(0)
    records = [
        replace(
            record, attempts=(attempt(rng, Step.ANSWER, float(i % 2), 0.0), *record.attempts[1:]), effort=effort
        )
        for i, (record, effort) in enumerate(zip(population(size=3), (10.0, 10.0, None), strict=True))
    ]
    assert evidence_of(records, 0.1).fast.target == pytest.approx([1.0, 0.5, 1.0])


def test_unknown_values_are_nan():
    item = population(size=1)[0]
    bare = replace(item.attempts[0], tokens=(), logprobs=(), control=(), output_usd=None)
    found = evidence_of([replace(item, attempts=(bare, *item.attempts[1:]))], 0.1)
    assert np.isnan([found.fast.signals.mean_logprob[0], found.cost[0, 0]]).all()
    assert np.isnan(setup().outcomes(found).cost).all()


def test_samples_of_one_request_share_its_prompt():
    item = population(size=1)[0]
    fast, verify, *solves = item.attempts
    together = [replace(each, request=2, prompt_usd=0.03) for each in solves[:3]]
    found = evidence_of([replace(item, attempts=(fast, verify, *together))], 0.1)
    assert found.cost[0].tolist() == pytest.approx([0.001, 0.004, *[0.014] * 3])


def test_an_item_needs_an_answer_at_every_step():
    item = population(size=1)[0]
    assert is_complete_item(item)
    assert not is_complete_item(replace(item, attempts=(item.attempts[0], *item.attempts[2:])))
    assert not is_complete_item(replace(item, attempts=item.attempts[:2]))


def test_a_missing_verification_leaves_its_column_empty():
    item = population(size=1)[0]
    found = evidence_of([replace(item, attempts=(item.attempts[0], *item.attempts[2:]))], 0.1)
    assert found.candidates.present[0].tolist() == [True, False, *[True] * 5]
