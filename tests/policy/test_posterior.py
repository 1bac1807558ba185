"""Posterior difficulty (SPEC 5.11)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.difficulty.estimator import shipped_estimator
from odar.difficulty.features import FEATURES
from odar.errors import InputError
from odar.policy.posterior import (
    ANSWER_TERMS,
    CLIP,
    AnswerStatistics,
    PosteriorDifficulty,
    features_of,
    unsureness,
)
from odar.types import Estimate, Query

Z = st.floats(-10, 10)


@given(st.floats(0, 1), Z, Z)
def test_is_a_probability(prior: float, u: float, t: float) -> None:
    assert 0 <= PosteriorDifficulty.load().update(prior, unsureness=u, log_tokens=t) <= 1


def test_an_unsure_long_answer_is_harder() -> None:
    model = PosteriorDifficulty.load()
    for prior in (0.1, 0.3, 0.5, 0.7):
        calm, torn = (model.update(prior, unsureness=z, log_tokens=z) for z in (-1.0, 1.0))
        assert calm < torn


def test_recovers_a_planted_law() -> None:
    rng = np.random.default_rng(0)
    d, u, t = rng.uniform(0.1, 0.9, 20000), *rng.normal(size=(2, 20000))
    logit = 0.5 * np.log(d / (1 - d)) + 0.8 * u - 0.3 * t + 0.2
    y = rng.uniform(size=20000) < 1 / (1 + np.exp(-logit))
    coef = PosteriorDifficulty(l2=0.0).fit(d, u, t, y).coef_
    assert coef[:4] == pytest.approx([0.2, 0.5, 0.8, -0.3], abs=0.08)
    assert np.abs(coef[4:]).max() < 0.08


def test_no_answer_and_the_prompt_count() -> None:
    rng = np.random.default_rng(0)
    d, u, t = rng.uniform(0.1, 0.9, 8000), *rng.normal(size=(2, 8000))
    silent, phi = rng.integers(0, 2, 8000), rng.normal(size=(8000, 24))
    hard = FEATURES.index("readability")
    y = rng.uniform(size=8000) < 1 / (1 + np.exp(-(2.0 * silent + 1.0 * phi[:, hard] - 1.0)))
    model = PosteriorDifficulty(l2=0.0, l2_prompt=0.0).fit(d, u, t, y, unanswered=silent, features=phi)
    coef = dict(zip((*ANSWER_TERMS, *FEATURES), model.coef_, strict=True))
    assert coef["unanswered"] == pytest.approx(2.0, abs=0.25)
    assert coef["readability"] == pytest.approx(1.0, abs=0.15)
    plain = model.update(0.5, unsureness=0, log_tokens=0, features=phi[0])
    assert model.update(0.5, unsureness=0, log_tokens=0, unanswered=True, features=phi[0]) > plain


def test_the_prior_is_not_replaced_by_the_features_it_is_made_of() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(5000, 24))
    d = 1 / (1 + np.exp(-phi[:, 3]))
    u, t = rng.normal(size=(2, 5000))
    y = rng.uniform(size=5000) < d
    model = PosteriorDifficulty().fit(d, u, t, y, features=phi)
    assert model.coef_[1] == pytest.approx(1.0, abs=0.15)
    assert model.update(0.9, unsureness=0, log_tokens=0) > model.update(0.1, unsureness=0, log_tokens=0) + 0.5


def test_a_harder_prior_is_never_an_easier_posterior() -> None:
    model = PosteriorDifficulty.load()
    values = [model.update(d, unsureness=0, log_tokens=0) for d in (0.05, 0.3, 0.5, 0.7, 0.95)]
    assert values == sorted(values)


def test_what_the_fit_hardly_saw_has_no_say() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(2000, 24))
    proof = FEATURES.index("is_proof")
    phi[:, proof] = np.arange(2000) < 20
    y = np.where(phi[:, proof] == 1, 0, rng.integers(0, 2, 2000))
    model = PosteriorDifficulty().fit(np.full(2000, 0.5), *rng.normal(size=(2, 2000)), y, features=phi)
    plain, asked = phi[100].copy(), phi[100].copy()
    asked[proof] = 1
    one, other = (model.update(0.9, unsureness=0, log_tokens=0, features=f) for f in (plain, asked))
    assert one == pytest.approx(other)


def test_few_rows_stay_near_the_start() -> None:
    start = PosteriorDifficulty.load()
    rng = np.random.default_rng(0)
    d, u, t = rng.uniform(0.1, 0.9, 40), *rng.normal(size=(2, 40))
    y = rng.integers(0, 2, 40)
    near = PosteriorDifficulty(l2=25.0, start=start).fit(d, u, t, y)
    alone = PosteriorDifficulty(l2=1.0).fit(d, u, t, y)
    distance = [np.linalg.norm(m.coef_[1:] - start.coef_[1:]) for m in (near, alone)]
    assert distance[0] < 0.5 * distance[1]
    assert near.scaling_ is start.scaling_


def test_features_left_out_count_as_average() -> None:
    model = PosteriorDifficulty.load()
    query = Query("Prove that 2 is prime.")
    known = features_of(shipped_estimator().estimate(query))
    assert known is not None and known.shape == (24,)
    assert model.update(0.5, unsureness=0, log_tokens=0, features=known) != model.update(
        0.5, unsureness=0, log_tokens=0
    )
    assert features_of(Estimate(0.5, "length", (("word_count", 3.0, 0.5),))) is None


@given(st.floats(0.01, 0.99), st.floats(-CLIP, CLIP), st.floats(-CLIP, CLIP))
def test_an_answer_that_is_not_stated_is_never_easier(prior: float, u: float, t: float) -> None:
    model = PosteriorDifficulty.load()
    stated, silent = (model.update(prior, unsureness=u, log_tokens=t, unanswered=s) for s in (False, True))
    assert silent > stated


def test_one_sided_outcomes_stay_finite() -> None:
    model = PosteriorDifficulty().fit([0.2, 0.8], [0, 1], [1, 0], [1, 1])
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("bad", [([0.5], [0], [0], []), ([], [], [], []), ([0.5], [np.nan], [0], [1])])
def test_bad_data(bad: tuple[list[float], ...]) -> None:
    with pytest.raises(InputError):
        PosteriorDifficulty().fit(*bad)


def test_answers_are_scored_among_their_models_own() -> None:
    probability, tokens = [0.9, 0.8, 0.7], [10, 20, 40]
    u, t = AnswerStatistics.fit(probability, tokens).scores(probability, tokens)
    for scores in (u, t):  # the surest and shortest first
        assert (np.diff(scores) > 0).all()
        assert (scores.mean(), scores.std()) == pytest.approx((0.0, 1.0))


def test_constant_answers_have_scale_one() -> None:
    assert AnswerStatistics.fit([0.9, 0.9], [5, 5]).log_tokens_scale == 1.0
    assert unsureness([0.0])[0] < 20


def test_document_round_trip_and_versions() -> None:
    model = PosteriorDifficulty.load()
    again = PosteriorDifficulty.from_document(model.document())
    assert (again.coef_ == model.coef_).all()
    assert (again.scaling_.mean == model.scaling_.mean).all()
    with pytest.raises(InputError, match="odar-posterior/9"):
        PosteriorDifficulty.from_document(model.document() | {"format": "odar-posterior/9"})
    with pytest.raises(InputError, match="coefficients"):
        PosteriorDifficulty.from_document(model.document() | {"coefficients": {"intercept": 1}})


def test_a_damaged_scaling_is_refused() -> None:
    document = PosteriorDifficulty.load().document()
    with pytest.raises(InputError, match="damaged"):
        PosteriorDifficulty.from_document({**document, "scaling": {}})
