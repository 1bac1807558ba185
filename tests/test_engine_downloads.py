"""Downloads: only models of the path are prepared, and downloading does not count against the deadline."""

from __future__ import annotations

import pytest

from odar.agents.ledger import Ledger
from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import ProviderUnreachable
from odar.options import AskOptions
from odar.providers.base import Completion, Provider, Reply, Request


class Downloading(Provider):
    """A provider whose models take `seconds` to prepare."""

    name = "local"

    def __init__(self, seconds: float = 0.0, *, broken: str = "") -> None:
        self.prepared: list[str] = []
        self.seconds, self.broken = seconds, broken
        self.now = 0.0

    async def prepare(self, model: str) -> None:
        if model not in self.prepared:
            self.now += self.seconds
            self.prepared.append(model)

    async def complete(self, request: Request, on_text: object = None) -> Reply:
        assert request.model in self.prepared, f"{request.model} was asked before its weights were there"
        if request.model == self.broken:
            raise ProviderUnreachable("cannot be downloaded", provider=self.name)
        return Reply(tuple(Completion("Answer: 8") for _ in range(request.n)), model=request.model)

    async def check(self, model: str = "") -> str:
        return "ready"

    async def close(self) -> None:
        pass


def engine(provider: Downloading, **overrides: object) -> Odar:
    settings = load_settings("local", config="/dev/null", environ={}, **overrides)
    return Odar(settings, providers={"local": provider}, estimator=ConstantEstimator(0.1))


FAST, SLOW = "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"


@pytest.mark.parametrize(("path", "models"), [("simple", [FAST]), ("medium", [FAST, SLOW]), ("hard", [FAST, SLOW])])
async def test_only_models_of_the_path_are_downloaded(path, models):
    provider = Downloading()
    async with engine(provider) as odar:
        answer = await odar.aask("How many legs does a spider have?", path=path)
    assert (answer.final, provider.prepared) == ("8", models)


async def test_a_download_does_not_count_against_the_deadline():
    provider = Downloading(seconds=500)
    ledger = Ledger(120, clock=lambda: provider.now)
    async with engine(provider) as odar:
        answer = await odar.aask(
            "How many legs does a spider have?", path="hard", options=AskOptions(ledger=ledger)
        )
    assert provider.now == 1000
    assert len(answer.trace.candidates) == 6
    assert not answer.trace.degradations
    assert answer.trace.spend.seconds == 0


async def test_the_slow_model_is_downloaded_if_the_fast_one_fails():
    provider = Downloading(broken=FAST)
    async with engine(provider) as odar:
        answer = await odar.aask("How many legs does a spider have?", path="simple")
    assert (answer.final, provider.prepared) == ("8", [FAST, SLOW])
    assert "cannot be downloaded" in answer.trace.degradations[0]
