"""An engine whose two agents answer from a script."""

from __future__ import annotations

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from support.scripted import ScriptedProvider, completion, step_of

MODELS = {
    "quick": {"provider": "fast", "logprobs": True, "n": True, "price": {"input": 1, "cached": 0.1, "output": 4}},
    "deep": {"provider": "slow", "logprobs": True, "n": True, "price": {"input": 3, "cached": 0.3, "output": 15}},
}


def settings(**overrides):
    base = {
        "models": MODELS,
        "providers": {"fast": {"kind": "openai"}, "slow": {"kind": "openai"}},
        "prompts": "paper",
        "policy": "paper",
        "fast__model": "quick",
        "slow__model": "deep",
    }
    return load_settings("tiny", environ={}, **{**base, **overrides})


def talk(request, index):
    """Answer 4 in every step; the third sample of the solver has the highest probability."""
    match step_of(request):
        case "answer":
            return [completion("Answer: 4", -0.5)]
        case "verify":
            return [completion("Judgment: CORRECT\nAnswer: 4", -0.2)]
        case _:
            return [completion(f"Sample {index} {i}.\nAnswer: 4", -0.3 + 0.1 * (i == 2)) for i in range(request.n)]


def engine(fast=talk, slow=talk, difficulty=0.5, **overrides):
    providers = {"fast": ScriptedProvider(fast, "fast"), "slow": ScriptedProvider(slow, "slow")}
    odar = Odar(settings(**overrides), providers=providers, estimator=ConstantEstimator(difficulty))
    return odar, providers["fast"], providers["slow"]


def steps(provider):
    return [step_of(request) for request in provider.requests]
