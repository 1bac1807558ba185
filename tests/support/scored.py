"""An engine whose agents return no log-probs, and a server that scores their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from support.fault_server import FaultServer, answer, no_logprobs
from support.payloads import message_payload
from support.vllm import scorer

PRICE = {"input": 1.0, "output": 10.0}


@asynccontextmanager
async def three_servers() -> AsyncIterator[tuple[FaultServer, FaultServer, FaultServer]]:
    """Yield three servers: fast answers four, slow answers five, and the scorer prefers four."""
    async with FaultServer() as fast, FaultServer() as slow, FaultServer() as scores:
        fast.behave(no_logprobs("Answer: four"))
        slow.behave(answer(message_payload("Answer: five", usage={"input_tokens": 10, "output_tokens": 5})))
        scores.behave(scorer("four"))
        yield fast, slow, scores


def engine(servers, *, slow_model="deep", judge_price=PRICE, **overrides) -> Odar:
    """Return an engine that uses the three servers; its surrogate is called judge."""
    fast, slow, scores = servers
    settings = load_settings(
        profile="tiny",
        models={
            "quick": {"provider": "fast", "logprobs": True, "price": PRICE},
            "deep": {"provider": "slow", "price": PRICE},
            "judge": {"provider": "scores", "prompt_logprobs": True, "price": judge_price},
        },
        providers={
            "fast": {"kind": "openai", "base_url": fast.url},
            "slow": {"kind": "anthropic", "base_url": slow.origin},
            "scores": {"kind": "openai", "base_url": scores.url},
        },
        prompts="default",
        fast__model="quick",
        slow__model=slow_model,
        routing__samples=3,
        retry={"attempts": 1},
        **{"fusion__surrogate": "judge", "fusion__stop_confidence": None, "calibration": "", **overrides},
    )
    return Odar(settings, estimator=ConstantEstimator(0.5))
