"""The belief: p and q of a state (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from odar.errors import InputError
from odar.policy.belief import WEIGHTS, Belief, Evidence, Opinion, RatedAgent

FAST = RatedAgent("fast", 0.55, "gpt")
SECOND = RatedAgent("second", 0.55, "gemini")
SLOW = RatedAgent("slow", 0.78, "gpt")
BELIEF = Belief.load()


def judge(*groups: int, plausible: int = 10, agents: tuple[RatedAgent, ...] = (FAST, SECOND, SLOW)):
    opinions = [Opinion(agent, group) for agent, group in zip(agents, groups, strict=False)]
    return BELIEF.posterior(Evidence(opinions, plausible, BELIEF.weights["usual"]))


@pytest.mark.parametrize("plausible", [0, 2, 4, 10])
def test_without_signals_p_and_q_are_the_skill_and_lucky_guesses(plausible: int) -> None:
    for agent in (FAST, SLOW):
        guess = 1 / plausible if plausible else 0.0
        expected = pytest.approx(guess + (1 - guess) * agent.skill, abs=0.03)
        assert judge(plausible=plausible).q(agent) == expected
        assert judge(0, agents=(agent,), plausible=plausible).p == expected


def test_a_direct_answer_is_judged_by_its_own_probability_more_than_by_the_question() -> None:
    def p(logprob: float, difficulty: float) -> float:
        return BELIEF.posterior(Evidence([Opinion(FAST, 0, logprob=logprob, direct=True)], 4, difficulty)).p

    assert p(0.8, 0.7) > p(0.6, 0.5)
    assert p(0.8, 0.5) > BELIEF.posterior(Evidence([Opinion(FAST, 0, logprob=0.8)], 4, 0.5)).p


def test_agreement_raises_p_and_q_and_difference_lowers_them() -> None:
    alone, agree, differ = judge(0), judge(0, 0), judge(0, 1)
    assert agree.p > alone.p + 0.15
    assert differ.p < alone.p - 0.1
    assert agree.q(SLOW) > alone.q(SLOW) > differ.q(SLOW)


def test_the_leader_is_what_more_skill_supports() -> None:
    assert judge(0, 1, 1).leader == 1
    assert judge(0, 1, 2).leader == 2
    weak = replace(SLOW, skill=0.56)
    assert judge(0, 0, 1, agents=(FAST, SECOND, weak)).leader == 0
    assert judge(-1, 3).leader == 3


def test_no_answer() -> None:
    judgment = judge(-1, -1)
    assert judgment.leader == -1
    assert judgment.p == 0
    assert judgment.q(SLOW) < judge().q(SLOW), "others failed to answer, so the question is hard"


def test_agreement_says_less_where_few_answers_are_plausible() -> None:
    def gained(plausible: int) -> float:
        p = np.array([judge(0, plausible=plausible).p, judge(0, 0, plausible=plausible).p])
        return float(np.diff(np.log(p / (1 - p)))[0])

    assert gained(2) + 0.2 < gained(4) < gained(0)


def test_samples_of_one_agent_say_less_than_two_agents() -> None:
    again = judge(0, 0, agents=(FAST, FAST))
    other = judge(0, 0, agents=(FAST, replace(SECOND, family="gpt")))
    assert judge(0).p < again.p < other.p <= judge(0, 0).p
    seen = BELIEF.posterior(
        Evidence([Opinion(FAST, 0), Opinion(SLOW, 0, saw_proposal=True)], 10, BELIEF.weights["usual"])
    )
    assert seen.p < judge(0, 0, agents=(FAST, SLOW)).p


def test_six_samples_of_one_agent() -> None:
    judgment = judge(*[0] * 6, agents=(FAST,) * 6)
    assert judge(0, 0, agents=(FAST, FAST)).p < judgment.p < 1


def test_signals() -> None:
    usual = BELIEF.posterior(Evidence([Opinion(FAST, 0)], 10))
    long = BELIEF.posterior(Evidence([Opinion(FAST, 0, length=0.95)], 10))
    sure = BELIEF.posterior(Evidence([Opinion(FAST, 0, logprob=0.95)], 10))
    unstated = BELIEF.posterior(Evidence([Opinion(FAST, 0, stated=False)], 10))
    assert long.p < usual.p < sure.p
    assert unstated.p < usual.p
    assert long.q(SLOW) < usual.q(SLOW) < sure.q(SLOW)
    hard = BELIEF.posterior(Evidence([], 10, 0.9))
    assert hard.q(SLOW) < BELIEF.posterior(Evidence([], 10, 0.1)).q(SLOW)


def test_an_agent_that_often_gives_no_answer_is_better_when_it_gives_one() -> None:
    silent = replace(FAST, unanswered=0.3)
    assert judge(0, agents=(silent,), plausible=0).p == pytest.approx(0.55 / 0.7, abs=0.02)
    assert judge(plausible=0).q(silent) == pytest.approx(0.55, abs=0.02)


def test_arrays_give_the_same_as_numbers() -> None:
    groups = np.array(list(product((-1, 0, 1, 2), repeat=3))).T
    length = np.linspace(0.1, 0.9, groups.shape[1])
    agents = (FAST, SECOND, replace(SLOW, name="fast"))
    opinions = [Opinion(a, g, length=length, stated=g < 2) for a, g in zip(agents, groups, strict=True)]
    together = BELIEF.posterior(Evidence(opinions, 5, 0.4))
    q = together.q(SLOW)
    for i, row in enumerate(groups.T.tolist()):
        alone = BELIEF.posterior(
            Evidence(
                [Opinion(a, g, length=float(length[i]), stated=g < 2) for a, g in zip(agents, row, strict=True)],
                5,
                0.4,
            )
        )
        assert (alone.leader, alone.p, alone.q(SLOW)) == pytest.approx((together.leader[i], together.p[i], q[i]))


def test_weights_can_be_changed_to_numbers() -> None:
    assert set(BELIEF.weights) == set(WEIGHTS)
    assert len(WEIGHTS) <= 36, "a few dozen weights at most (SPEC 9.3)"
    assert BELIEF.changed({"spread": 2}, "test").weights == {**BELIEF.weights, "spread": 2}
    for bad in ("wide", True, float("nan")):
        with pytest.raises(InputError, match="test: the weight spread must be a number"):
            BELIEF.changed({"spread": bad}, "test")
