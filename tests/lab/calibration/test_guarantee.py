"""The guarantee holds on unseen items, and it finds cheaper dials."""

from __future__ import annotations

import numpy as np
import pytest

from odar.lab.calibration.guarantee import certify, choose_bet, log_capital

DIALS = np.geomspace(1, 100, 15)


def draw(rng, size):
    """Scores of one slow call, and of cascades that ask it less and less often, by how sure they are of the fast answer.

    As the real ones, they are means over several samples, so some are fractions.
    """
    sure = rng.random(size)
    slow = (rng.random((size, 5)) < 0.9).mean(axis=1)
    fast = rng.random(size) < 0.2 + 0.8 * sure
    scores = [np.where(sure > 1 - share, fast, slow) for share in np.linspace(0, 1, len(DIALS))]
    return scores, slow


@pytest.mark.parametrize(("allowed", "items"), [(0.05, 400), (0.02, 1200)])
def test_violations_are_rare_and_cheaper_dials_are_found(allowed, items):
    """1,000 draws are certified and then judged on 200,000 other items: at most 5% violations, plus sampling error."""
    rng = np.random.default_rng(5)
    scores, slow = draw(rng, 200_000)
    true = dict(zip(DIALS, [float((slow - score).mean()) for score in scores], strict=True))
    assert max(true.values()) > 2 * allowed
    violated = cheaper = 0
    for _ in range(1000):
        scores, slow = draw(rng, items)
        found = certify(DIALS, scores, slow, rng.random(items) < 0.5, allowed)
        violated += found.points is not None and true[found.points] > allowed
        cheaper += found.points is not None and found.points > DIALS[2]
    assert violated <= 65
    assert cheaper >= 800


def test_the_level_of_the_test_holds_at_the_boundary():
    """A dial whose loss equals the limit is certified in at most 5% of the draws."""
    rng = np.random.default_rng(0)
    certified = 0
    for _ in range(1000):
        loss = np.where(rng.random(300) < 0.08, 1.0, np.where(rng.random(300) < 0.0326, -1.0, 0.0))
        bet = choose_bet(loss[150:], 0.05)
        certified += log_capital(loss[:150], 0.05, bet) >= np.log(20)
    assert certified <= 65


def test_three_hundred_items_without_a_loss_certify_one_point():
    assert log_capital(np.zeros(340), 0.01, 0.9 / 0.99) >= np.log(20)
    assert log_capital(np.zeros(250), 0.01, 0.9 / 0.99) < np.log(20)


def test_a_failed_certification_says_how_many_items_are_needed():
    scores, slow = draw(np.random.default_rng(2), 60)
    found = certify(DIALS, scores, slow, np.arange(60) % 2 == 0, 0.01)
    assert found.points is None
    assert found.more_items > 100
    assert found.to_dict()["assumes"].startswith("later questions are exchangeable")


def test_a_dial_that_loses_too_much_is_not_certified_and_no_number_of_items_would_do():
    slow = np.ones(400)
    found = certify((1.0, 2.0), [np.ones(400), np.zeros(400)], slow, np.arange(400) % 2 == 0, 0.02)
    assert (found.points, found.loss, found.more_items) == (1.0, 0.0, None)
