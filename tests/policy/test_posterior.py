"""The posterior difficulty: monotone in its signals, with sensible defaults for missing ones."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.errors import InputError
from odar.evals.router_quality import apgr
from odar.policy.posterior import FORMAT, MAX_DIFFICULTY, TERMS, PosteriorDifficulty
from odar.policy.signals import LEVELS, RANKED, AnswerKind, AnswerSignals, QuantileTables, SignalArrays

POSTERIOR = PosteriorDifficulty.load()
EVEN = (np.arange(LEVELS) + 0.5) / LEVELS
TABLES = QuantileTables({(kind.value, name): EVEN for kind in AnswerKind for name in RANKED})
"""With these every value is its own rank."""
kinds = st.sampled_from(list(AnswerKind))
ranks = st.floats(0, 1)
maybe = st.none() | ranks


def difficulty(answer: AnswerSignals, tables: QuantileTables | None = TABLES) -> float | None:
    return POSTERIOR.look(answer, tables)[0]


answers = st.builds(
    AnswerSignals,
    kind=kinds,
    prior=ranks,
    stated=st.booleans(),
    length=maybe,
    mean_logprob=maybe,
    answer_logprob=maybe,
    agreement=maybe,
    finished=st.booleans(),
)


@given(answers, st.booleans())
def test_one_answer_is_rated_as_in_an_array(answer, own_tables):
    tables = TABLES if own_tables else None
    [expected] = POSTERIOR.predict(SignalArrays.from_answers([answer]), tables)
    found = difficulty(answer, tables)
    assert (found is None and math.isnan(expected)) or found == pytest.approx(expected)


@given(st.lists(answers, min_size=1, max_size=8))
def test_scalar_and_array_predictions_agree(found):
    together = POSTERIOR.predict(SignalArrays.from_answers(found), TABLES)
    for value, answer in zip(together, found, strict=True):
        alone = difficulty(answer)
        assert (math.isnan(value) and alone is None) or value == pytest.approx(alone)


@given(answers)
def test_a_difficulty_stays_below_thresholds_of_one(answer):
    d = difficulty(answer)
    assert d is None or 0 <= d <= MAX_DIFFICULTY


@given(answers, ranks)
def test_lower_probability_or_agreement_never_lowers_difficulty(answer, other):
    for name, falls in (("answer_logprob", True), ("mean_logprob", True), ("agreement", True), ("length", False)):
        value = getattr(answer, name)
        if value is None:
            continue
        low, high = (replace(answer, **{name: v}) for v in sorted((value, other)))
        below, above = (difficulty(high), difficulty(low)) if falls else (difficulty(low), difficulty(high))
        assert below is None or below <= above + 1e-9


@given(answers)
def test_an_unfinished_answer_has_maximal_difficulty(answer):
    assert difficulty(replace(answer, finished=False)) == MAX_DIFFICULTY


@given(answers)
def test_a_missing_mark_never_makes_an_answer_easier(answer):
    marked, unmarked = (difficulty(replace(answer, stated=stated)) for stated in (True, False))
    assert (marked is None) == (unmarked is None)
    assert marked is None or marked <= unmarked


def test_a_missing_mark_does_not_hide_the_probability_of_the_answer():
    for kind in AnswerKind:
        plain = AnswerSignals(kind, 0.5, False, 0.5, 0.5, 0.5)
        sure = replace(plain, length=0.1, mean_logprob=0.95, answer_logprob=0.95)
        unsure = replace(plain, length=0.9, mean_logprob=0.1, answer_logprob=0.1)
        assert difficulty(sure) < difficulty(unsure) < MAX_DIFFICULTY


def test_length_has_less_weight_if_the_question_looks_hard():
    def spread(prior):
        short, long = (difficulty(AnswerSignals(AnswerKind.REASONED, prior, True, v)) for v in (0.2, 0.8))
        return long - short

    assert spread(0.5) > spread(0.85) > 0


@given(kinds, ranks)
def test_the_prior_decides_without_other_signals(kind, prior):
    assert difficulty(AnswerSignals(kind, prior, True, None)) is None


def test_a_model_without_log_probs_is_judged_by_length():
    short, long = (AnswerSignals(AnswerKind.REASONED, 0.5, True, value) for value in (0.1, 0.9))
    assert difficulty(short) < difficulty(long)


def test_agreement_counts_if_a_second_sample_exists():
    for kind in AnswerKind:
        plain = AnswerSignals(kind, 0.5, True, 0.5, 0.5, 0.5)
        agreed, apart = (difficulty(replace(plain, agreement=value)) for value in (1.0, 0.0))
        assert agreed < difficulty(plain) < apart


def test_the_prior_has_a_bounded_weight():
    """A sure answer to a question that looks as hard as can be stays easier than an unsure answer to an easy one."""
    for kind in (AnswerKind.DIRECT, AnswerKind.FREE_TEXT):
        sure = AnswerSignals(kind, 1.0, True, 0.5, 0.98, 0.98)
        unsure = AnswerSignals(kind, 0.0, True, 0.5, 0.02, 0.02)
        assert difficulty(sure) < difficulty(unsure)


def test_even_ranks_give_the_papers_mix():
    rng = np.random.default_rng(0)
    for kind in (AnswerKind.DIRECT, AnswerKind.FREE_TEXT):
        found = [AnswerSignals(kind, *rng.random(1), True, *rng.random(3)) for _ in range(4000)]
        d = POSTERIOR.predict(SignalArrays.from_answers(found), TABLES)
        shares = [(d < 0.3).mean(), (d >= 0.7).mean()]
        assert shares == pytest.approx([0.41, 0.24], abs=0.03)


def test_shipped_tables_are_used_for_an_unknown_model():
    sure = AnswerSignals(AnswerKind.REASONED, 0.4, True, 300, -0.02, -0.001)
    lost = AnswerSignals(AnswerKind.REASONED, 0.4, True, 3000, -0.9, -2.0)
    assert difficulty(sure, None) < 0.5 < difficulty(lost, None)


SCALES = {"small model": (-2, 1), "larger model": (-5, 0.3), "mostly above 0.999": (-7, -1)}
"""Magnitudes of the log-probabilities of direct answers, as powers of ten."""


def direct_pair(scale, count=1500, digits=None):
    """Return direct answers whose accuracy grows with their probability, and random priors."""
    rng = np.random.default_rng(7)
    logprob = -(10 ** rng.uniform(*SCALES[scale], count))
    order = np.argsort(np.argsort(logprob)) / count
    fast, slow = rng.random(count) < 0.4 + 0.6 * order, rng.random(count) < 0.92
    if digits is not None:
        logprob = np.log(np.maximum(np.round(np.exp(logprob), digits), 1e-9))
    every, unknown = np.ones(count, bool), np.full(count, np.nan)
    kind = np.full(count, AnswerKind.DIRECT.value)
    signals = SignalArrays(kind, rng.random(count), every, unknown, logprob, logprob, unknown, every)
    return signals, fast.astype(float), slow.astype(float)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("digits", [None, 4])
def test_direct_answers_keep_the_order_of_their_probability_after_30_of_them(scale, digits):
    """A random prior costs a bounded amount, also for rounded and tied probabilities."""
    signals, fast, slow = direct_pair(scale, digits=digits)
    raw = apgr(-signals.answer_logprob, fast, slow)
    for known in (signals, signals.rows(slice(30))):
        assert apgr(POSTERIOR.predict(signals, QuantileTables.from_signals(known)), fast, slow) > raw - 0.03


@pytest.mark.parametrize("scale", SCALES)
def test_shipped_tables_give_direct_answers_different_ranks(scale):
    """A table fitted to one small model alone gave 0.57 instead of 0.69 for a larger one."""
    signals, fast, slow = direct_pair(scale)
    ranks = POSTERIOR.tables.rank("direct", "answer_logprob", signals.answer_logprob)
    assert np.ptp(np.quantile(ranks, (0.1, 0.9))) > 0.25
    raw = apgr(-signals.answer_logprob, fast, slow)
    assert apgr(POSTERIOR.predict(signals), fast, slow) > raw - 0.08
    same = replace(signals, prior=np.full(len(signals), 0.4))
    assert apgr(POSTERIOR.predict(same), fast, slow) == pytest.approx(raw, abs=1e-6)


@given(st.floats(-50, -1e-9), st.floats(1.01, 10))
def test_shipped_ranks_of_a_direct_answer_grow_strictly_with_its_probability(logprob, factor):
    low, high = POSTERIOR.tables.rank("direct", "answer_logprob", [logprob * factor, logprob])
    assert low < high


def test_a_look_has_kind_signals_and_terms():
    _, look = POSTERIOR.look(AnswerSignals(AnswerKind.DIRECT, 0.4, True, 0.5, 0.3, 0.2), TABLES, "calibrated")
    assert look.kind == "direct"
    assert look.quantiles == "calibrated"
    assert {name: rank for name, _, rank in look.signals}["answer_logprob"] == pytest.approx(0.2, abs=0.01)
    assert sum(share for _, _, share in look.terms) == pytest.approx(1.0, abs=0.001)
    assert {name for name, _, _ in look.terms} <= set(TERMS)


def test_a_document_survives_a_round_trip():
    again = PosteriorDifficulty.from_dict(json.loads(json.dumps(POSTERIOR.to_dict())))
    assert again.to_dict() == POSTERIOR.to_dict()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "odar-posterior/2"}, "odar-posterior/2"),
        ({"weights": {"direct": {"luck": 1.0}, "reasoned": {"long": 1.0}, "free_text": {"long": 1.0}}}, "'luck'"),
        (
            {"weights": {"direct": {"long": -1.0}, "reasoned": {"long": 1.0}, "free_text": {"long": 1.0}}},
            "at least 0",
        ),
        ({"weights": {}}, "is not a posterior"),
        ({"knots": {k.value: [0.7, 0.3] for k in AnswerKind}}, "must ascend"),
        ({"quantiles": {"direct": {"length": [1.0]}}}, "is not a posterior"),
    ],
)
def test_an_invalid_document_is_rejected(change, why):
    assert POSTERIOR.to_dict()["format"] == FORMAT
    with pytest.raises(InputError, match=why):
        PosteriorDifficulty.from_dict(POSTERIOR.to_dict() | change)
