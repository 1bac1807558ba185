"""Log-probabilities of any server: every token has a valid one or None, and fusion still decides."""

from __future__ import annotations

import json
import math

import pytest
from fuzz.strategies import examples, json_values, mutated, numbers, texts
from fuzz.wire import whole
from hypothesis import given
from hypothesis import strategies as st

from odar.policy.energy import measure_energy, token_figures
from odar.policy.fusion import Fusion
from odar.providers.base import Reply
from odar.providers.openai import read_reply
from odar.types import Candidate, Step, Token
from support.payloads import chat_payload, logprob_entries

ENTRIES = logprob_entries("It is 4 é 😀.\nAnswer: 4")
OLDER = {"tokens": ["It", " is", " 4"], "token_logprobs": [-0.1, None, -0.2]}
wild = st.sampled_from(["-0.1", True, None, [], {}, -1e308, -9999, -9998.9, 1e-9, 10**400, -(10**400)]) | numbers
entries = st.fixed_dictionaries(
    {"token": texts | st.just("<|eot_id|>"), "logprob": wild},
    optional={"bytes": st.none() | st.lists(st.integers(-1, 256), max_size=5) | json_values},
)


def reply_with(logprobs: object, text: str = "It is 4 é 😀.\nAnswer: 4") -> Reply | None:
    payload = chat_payload(text)
    payload["choices"][0]["logprobs"] = logprobs
    result = whole(json.dumps(payload).encode(), read_reply)
    return result if isinstance(result, Reply) else None


def check(tokens: tuple[Token, ...]) -> None:
    for token in tokens:
        assert token.logprob is None or (-9999 < token.logprob <= 0 and isinstance(token.logprob, float))
        assert isinstance(token.text, str)
    energy = measure_energy(tokens, 0.1, None)
    if energy is not None:
        assert math.isfinite(energy.free_energy)
        assert energy.varentropy >= 0
    candidate = Candidate(Step.ANSWER, "fast", "m", "".join(token.text for token in tokens), "4", tokens)
    figures = token_figures(candidate)
    assert 0 <= figures.missing <= figures.total or not tokens
    if energy is not None:
        assert all(map(math.isfinite, (figures.mean_logprob, figures.mean_probability, figures.lowest_window)))


@examples(100)
@given(st.lists(entries, max_size=6))
def test_any_entries_give_valid_tokens_or_an_error(listed):
    reply = reply_with({"content": listed})
    if reply is not None:
        check(reply.completions[0].tokens)


@examples(100)
@given(mutated({"content": ENTRIES}, OLDER))
def test_mutated_entries_give_valid_tokens_or_an_error(logprobs):
    reply = reply_with(logprobs)
    if reply is not None:
        check(reply.completions[0].tokens)


@examples(60)
@given(
    st.lists(st.lists(entries, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["fep", "majority", "mean_logprob", "max_confidence"]),
)
def test_fusion_decides_for_any_candidates(several, rule):
    candidates = []
    for listed in several:
        reply = reply_with({"content": listed})
        if reply is not None:
            tokens = reply.completions[0].tokens
            candidates.append(
                Candidate(
                    Step.SOLVE, "slow", "m", "Answer: 4", "4", tokens, energy=measure_energy(tokens, 0.1, None)
                )
            )
    if candidates:
        verdict = Fusion(rule, 0.25).choose(candidates)
        assert 0 <= verdict.winner < len(candidates)
        assert all(map(math.isfinite, verdict.weights))


@pytest.mark.parametrize("bytes_", [2**31, 2**63 - 1, 10**400, True, "abc", {"a": 1}])
def test_bytes_that_are_not_a_list_are_ignored(bytes_):
    """`bytes(2**31)` would allocate two gigabytes."""
    reply = reply_with({"content": [{"token": "4", "logprob": -0.1, "bytes": bytes_}]})
    assert reply.completions[0].tokens == (Token("4", -0.1),)


@pytest.mark.parametrize("token", [None, 7, [], {}, True])
def test_a_token_that_is_not_a_string_is_read_from_its_bytes(token):
    reply = reply_with(
        {"content": [{"token": token, "logprob": -0.1, "bytes": [52]}, {"token": " 4", "logprob": -0.2}]}
    )
    assert [each.text for each in reply.completions[0].tokens] == ["4", " 4"]
