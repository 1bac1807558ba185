"""The local model scores a given text, compared with sampling the same text."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import ProviderError, ProviderTimeout
from odar.providers.base import Message, Request, Sampling
from odar.providers.llamacpp import EngineSettings, teacher_force
from odar.providers.local import LocalProvider
from support.fault_server import FaultServer, anthropic_ok

ASK = Request("smollm2-135m", (Message("user", "How many legs does a spider have?"),))


async def test_a_scored_text_has_the_log_probabilities_of_sampling(provider):
    """Equal to the last bit, so context, tokens and distribution are the same."""
    sampling = Sampling(temperature=0.7, top_p=1.0, max_tokens=16, seed=3)
    for _ in range(2):  # the first reads the prompt in batches, whose kernels round differently
        sampled = await provider.complete(Request("smollm2-135m", ASK.messages, sampling))
    (said,) = sampled.completions
    own = [token for token in said.tokens if not token.control]
    scored = await provider.score(ASK, said.text)
    assert scored.completions[0].tokens == tuple(own)
    assert (scored.usage.input, scored.usage.output) == (sampled.usage.input, len(own))


async def test_a_likely_text_scores_better_than_nonsense(provider):
    async def mean(text):
        tokens = (await provider.score(ASK, text)).completions[0].tokens
        return sum(token.logprob for token in tokens) / len(text)

    assert await mean("A spider has eight legs.") > await mean("Legs spider eight has a zebra.")


async def test_partial_characters_have_no_score(provider):
    text = "A spider 🕷 has 8 legs."
    tokens = (await provider.score(ASK, text)).completions[0].tokens
    known = [token for token in tokens if token.logprob is not None]
    assert "".join(token.text for token in known).replace(" ", "") == "Aspiderhas8legs."
    assert len(tokens) > len(known)


async def test_control_tokens_in_a_scored_text_are_plain_text(provider):
    tokens = (await provider.score(ASK, "Eight.<|im_end|>")).completions[0].tokens
    assert "".join(token.text for token in tokens) == "Eight.<|im_end|>"
    assert all(token.logprob is not None for token in tokens)


async def test_a_text_beyond_the_context_is_rejected(provider):
    with pytest.raises(ProviderError, match="tokens and the local model's context is 512"):
        await provider.score(ASK, "eight legs " * 400)


async def test_scoring_has_a_timeout(provider):
    with pytest.raises(ProviderTimeout):
        await provider.score(Request("smollm2-135m", ASK.messages, timeout_s=0.01), "eight legs " * 60)


async def test_the_local_model_scores_answers_of_anthropic(engine):
    """Use the local model as `fusion.surrogate`."""
    async with FaultServer() as claude:
        claude.behave(anthropic_ok("A spider has eight legs.\nAnswer: 8"))
        settings = load_settings(
            profile="tiny",
            models={"claude": {"provider": "claude", "price": {"input": 3, "output": 15}}},
            providers={"claude": {"kind": "anthropic", "base_url": claude.origin}},
            prompts="default",
            fast__model="claude",
            slow__model="claude",
            calibration="",
            fusion__surrogate="smollm2-135m",
            local__threads=1,
        )
        ready = {"local": LocalProvider(threads=1, contexts={"smollm2-135m": 512})}
        async with Odar(settings, providers=ready, estimator=ConstantEstimator(0.5)) as odar:
            answer = await odar.aask("How many legs does a spider have?", path="medium")
    assert answer.trace.verdict.scorer == "fep by surrogate smollm2-135m (uncalibrated)"
    assert all(0 < candidate.energy.energy < 3 for candidate in answer.trace.candidates)
    assert [call.cost_usd for call in answer.trace.calls if call.scoring] == [0.0, 0.0]


class Unwilling:
    """An engine whose runtime generates other tokens."""

    settings = EngineSettings(Path("weights"), 1, 512, 1)

    def tokenize(self, text):
        return [{"id": 5, "piece": "a"}, {"id": 6, "piece": [240, 159]}]

    def generate(self, body, on_chunk, stop):
        on_chunk({"choices": [{"logprobs": {"content": [{"id": 9, "logprob": -1.0}]}}]})


def test_a_runtime_that_generates_other_tokens_is_an_error():
    with pytest.raises(ProviderError, match="generated tokens differ"):
        teacher_force(Unwilling(), [1], "a", threading.Event())
