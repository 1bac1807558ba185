"""A provider that answers from a script, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odar.errors import ProviderError
from odar.providers.base import Completion, Delta, OnDelta, Provider, Reply, Request
from odar.types import Token, Usage

USAGE = Usage(10, 0, 5, 0)


def completion(text: str, logprob: float | None = -0.1, *, finish: str = "stop") -> Completion:
    """A completion of one token per word, all with the same log-probability."""
    words = [word if i == 0 else " " + word for i, word in enumerate(text.split(" "))]
    return Completion(text, tuple(Token(word, logprob) for word in words), finish)


@dataclass
class ScriptedProvider(Provider):
    """Answer each request with the result of `script`, and record it."""

    script: Callable[[Request, int], Sequence[Completion] | ProviderError]
    name: str = "scripted"
    delay_s: float = 0.0
    usage: Usage = USAGE
    requests: list[Request] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    closed: bool = False
    meet: asyncio.Barrier | None = None
    """Where a request waits for others, if set."""

    async def complete(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        index = len(self.requests)
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.meet is not None:
                await self.meet.wait()
            await asyncio.sleep(self.delay_s)
        finally:
            self.in_flight -= 1
        result = self.script(request, index)
        if isinstance(result, ProviderError):
            raise result
        if on_delta is not None:
            for token in result[0].tokens:
                on_delta(Delta(token.text))
        return Reply(tuple(result), self.usage, request.model)

    async def check(self, model: str = "") -> str:
        return "scripted"

    async def close(self) -> None:
        self.closed = True


def step_of(request: Request) -> str:
    """Return the step of a request with the default prompts."""
    system = request.messages[0].text
    return "verify" if "proposed" in system else "solve" if "care" in system else "answer"


def asked(request: Request) -> int:
    """The number of "What is 7 + 0?"."""
    return int(request.messages[-1].text.split()[2])


def even_fast(request: Request, index: int) -> list[Completion]:
    """Fast is right on even numbers, slow always."""
    number = asked(request)
    if step_of(request) == "answer":
        return [completion(f"Answer: {number if number % 2 == 0 else 'no idea'}")]
    return [completion(f"Judgment: CORRECT\nAnswer: {number}")] * request.n


def uncertain_if_wrong(request: Request, index: int) -> list[Completion]:
    """Fast is right on even numbers and less confident on the others; slow is always right, with falling confidence."""
    number = asked(request)
    if step_of(request) == "answer" and number % 2:
        return [completion("Answer: 99", -1.0)]
    return [completion(f"Answer: {number}", -0.1 - 0.01 * i) for i in range(request.n)]
