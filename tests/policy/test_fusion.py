from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import ToolCall
from odar.policy.energy import Alignment, measure_energy, missing_share, token_figures
from odar.policy.fusion import Fusion, rank
from odar.policy.fusion_rules import RULES
from odar.types import Candidate, Step, Token

STATISTICS = Alignment(0.1, 0.05)


def choose(candidates, **options):
    return Fusion(**options).choose(candidates)


def candidate(answer, logprobs, step=Step.SOLVE, alignment=STATISTICS, model="m"):
    tokens = tuple(Token(f"w{i} ", value) for i, value in enumerate(logprobs))
    energy = measure_energy(tokens, 0.1, alignment)
    return Candidate(
        step,
        "fast" if step is Step.ANSWER else "slow",
        model,
        f"{answer} {logprobs}",
        answer,
        tokens,
        energy=energy,
    )


def test_the_only_candidate_wins():
    assert choose([candidate("a", [-1.0])]).rule == "only"


def test_hard_path_takes_the_lowest_free_energy():
    verdict = choose([candidate("a", [-1.0] * 4), candidate("b", [-0.2] * 4), candidate("c", [-2.0] * 4)])
    assert (verdict.winner, verdict.rule, verdict.reason) == (1, "fep", "lowest free energy")
    assert sum(verdict.weights) == pytest.approx(1)


def test_ten_percent_missing_logprobs_are_tolerated():
    a, b = candidate("a", [-1.0] * 9 + [None], Step.ANSWER), candidate("b", [-0.1] * 9 + [None])
    assert missing_share([token_figures(a), token_figures(b)]) == pytest.approx(0.1)
    assert (choose([a, b]).rule, choose([a, b]).winner) == ("fep", 1)


def test_thirty_percent_missing_logprobs_gives_the_slow_answer():
    fast = candidate("a", [-0.01] * 7 + [None] * 3, Step.ANSWER)
    slow = candidate("b", [-5.0] * 7 + [None] * 3, Step.VERIFY)
    verdict = choose([fast, slow])
    assert (verdict.winner, verdict.rule) == (1, "slow")
    assert "30% of the tokens have no log-probabilities" in verdict.reason


def test_without_logprobs_the_verifier_judges():
    fast = Candidate(Step.ANSWER, "fast", "f", "Answer: 4", "4")
    for judgment, word in ((True, "CORRECT"), (False, "INCORRECT")):
        slow = Candidate(Step.VERIFY, "slow", "s", f"Judgment: {word}", "5", judgment=judgment)
        verdict = choose([fast, slow])
        assert (verdict.winner, verdict.rule) == (1, "judgment")
        assert verdict.reason.endswith(f"the verifier says {word}")


def test_without_logprobs_several_slow_samples_vote():
    silent = [
        Candidate(Step.SOLVE, "slow", "m", f"text {i}", answer) for i, answer in enumerate(["4", "5", "5.0", "6"])
    ]
    verdict = choose([candidate("6", [-0.1], Step.ANSWER), *silent])
    assert (verdict.rule, silent[verdict.winner - 1].answer) == ("agreement", "5.0")
    assert "2 of 4 agree" in verdict.reason


def test_a_fast_answer_with_logprobs_does_not_beat_a_slow_one_without():
    verdict = choose(
        [candidate("a", [-0.01] * 3, Step.ANSWER), Candidate(Step.VERIFY, "slow", "s", "long " * 20, "b")]
    )
    assert (verdict.winner, verdict.rule) == (1, "slow")


def test_uncalibrated_models_are_marked_and_never_mixed():
    calibrated = candidate("a", [-0.4] * 4, alignment=Alignment(10.0, 1.0))  # aligned: far below
    foreign = candidate("b", [-0.2] * 4, alignment=None, model="stranger")
    verdict = choose([calibrated, foreign])
    assert verdict.rule == "fep (uncalibrated)"
    assert "stranger" in verdict.reason
    assert verdict.winner == 1  # by raw F; by F̃ against F the first would have won


def test_a_candidate_that_cannot_be_scored_cannot_win():
    empty = Candidate(Step.SOLVE, "slow", "m", "</s>", "", (Token("</s>", -0.1, True),))
    assert choose([empty, candidate("a", [-3.0] * 40)]).winner == 1


def test_no_candidates_are_an_error():
    with pytest.raises(ValueError, match="no candidate"):
        choose([])


sets = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.lists(st.floats(-5, -0.01).map(lambda x: round(x, 2)), min_size=1, max_size=5),
        st.sampled_from(list(Step)),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("rule", sorted(RULES.names()))
@given(rows=sets, data=st.data())
def test_fusion_is_invariant_under_candidate_order(rule, rows, data):
    candidates = [
        candidate(answer, logprobs if known else [None] * len(logprobs), step)
        for answer, logprobs, step, known in rows
    ]
    shuffled = data.draw(st.permutations(candidates))
    first = choose(candidates, rule=rule, beta=0.25)
    second = choose(shuffled, rule=rule, beta=0.25)
    assert candidates[first.winner] == shuffled[second.winner]
    assert first.rule == second.rule


@given(st.floats(0.1, 10), st.floats(-3, 3), sets)
def test_one_models_alignment_does_not_change_its_own_argmin(deviation, mean, rows):
    candidates = [candidate(answer, logprobs, Step.SOLVE, Alignment(0.0, 1.0)) for answer, logprobs, _, _ in rows]
    moved = [
        dataclasses.replace(c, energy=measure_energy(c.tokens, 0.1, Alignment(mean, deviation))) for c in candidates
    ]
    chosen = candidates[choose(candidates, beta=np.inf).winner]
    again = moved[choose(moved, beta=np.inf).winner]
    assert again.energy.free_energy == pytest.approx(chosen.energy.free_energy)


def test_skill_weights_prefer_the_better_model():
    weak = [candidate("a", [-0.5] * 4, model="weak"), candidate("a", [-0.5] * 4, model="weak2")]
    strong = candidate("b", [-0.5] * 4, model="strong")
    equal = Fusion(beta=0.25).choose([*weak, strong])
    assert equal.winner in (0, 1)
    skilled = Fusion(
        beta=0.25, skills={("weak", Step.SOLVE): 0.5, ("weak2", Step.SOLVE): 0.5, ("strong", Step.SOLVE): 3.0}
    ).choose([*weak, strong])
    assert skilled.winner == 2


def test_a_model_with_zero_skill_does_not_vote():
    verdict = Fusion(beta=0.25, skills={("mute", Step.SOLVE): 0.0}).choose(
        [candidate("a", [-0.01] * 4, model="mute"), candidate("b", [-3.0] * 4, model="m")]
    )
    assert verdict.winner == 1


def called(arguments: str, step: Step = Step.SOLVE, **fields) -> Candidate:
    calls = (ToolCall("1", "weather", arguments),)
    return Candidate(
        step,
        "fast" if step is Step.ANSWER else "slow",
        "m",
        "",
        f"weather({arguments})",
        tool_calls=calls,
        **fields,
    )


def test_tool_calls_are_grouped_by_name_and_arguments():
    candidates = [
        called('{"city": "Oslo"}', Step.ANSWER),
        called('{"city": "Rome"}'),
        called('{"city":"Rome"}'),
        called('{"city": "Oslo"}'),
    ]
    verdict = choose(candidates)
    assert verdict.winner in (1, 2)
    assert verdict.rule == "agreement"


def test_a_candidate_with_a_fault_loses_regardless_of_energy():
    sure = Candidate(Step.SOLVE, "slow", "m", "no JSON", "no JSON", fault="the text is not JSON")
    right = Candidate(Step.ANSWER, "fast", "m", "{}", "{}")
    verdict = choose([sure, sure, right])
    assert (verdict.winner, verdict.weights) == (2, (0.0, 0.0, 1.0))
    assert "2 of 3 did not keep to the form" in verdict.reason
    assert choose([sure, sure]).winner in (0, 1)


def test_rank_gives_distinct_answers_first():
    texts = ["a", "b", "a", "c", "b"]
    candidates = [Candidate(Step.SOLVE, "slow", "m", text, text) for text in texts]
    verdict = choose(candidates)
    order = rank(candidates, verdict)
    assert order[0] == verdict.winner
    assert sorted(texts[i] for i in order[:3]) == ["a", "b", "c"]
    assert sorted(order) == [0, 1, 2, 3, 4]


def test_a_rule_without_energies_is_called_a_vote():
    """The candidate of the lowest free energy loses, so the reason must not say that it won."""
    candidates = [candidate("4", [-1.0] * 4), candidate("4", [-1.0] * 4), candidate("5", [-0.1] * 4)]
    for options in ({"beta": 0.0}, {"rule": "majority"}):
        verdict = choose(candidates, **options)
        assert candidates[verdict.winner].answer == "4"
        assert verdict.reason == "vote: 2 of 3 answers agree"
    assert choose(candidates[:2], beta=0.25).reason == "lowest free energy of an answer: 2 of 2 agree"


def test_a_cut_off_or_unstated_candidate_votes_only_if_no_other_can():
    """SPEC 5.6b."""
    cut = replace(candidate("a", [-0.01] * 4), finish="length")
    silent = replace(candidate("a", [-0.01] * 4), stated=False)
    sure = candidate("b", [-3.0] * 4, Step.ANSWER)
    verdict = choose([cut, silent, sure])
    assert (verdict.winner, verdict.rule, verdict.weights) == (2, "only", (0.0, 0.0, 1.0))
    assert "2 of 3 were cut off or stated no answer" in verdict.reason
    assert choose([cut, silent]).winner in (0, 1)  # nobody else did: they vote
