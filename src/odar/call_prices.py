"""What a call is expected to cost, by an agent's model, the tokens of a question and the usual lengths of answers.

Prices are relative if one of them is unknown or zero; the policies compare them with each other only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odar.calibration_file import Calibration, Source
from odar.catalogue import REASONING_TOKENS, ModelCard, Price
from odar.types import CHEAP_AGENTS, SLOW, Ask, Step

USUAL_TOKENS = 300
"""Assumed length of an answer, if it was not measured."""
REFERENCE_TOKENS = 500
"""Length of the prompt of the reference call, whose price fixes the unit of the dial (SPEC 9.5)."""
NOMINAL_USD_PER_BILLION = 0.1
"""Nominal dollars per million tokens and billion parameters, for free models."""
UNKNOWN_RATIO = 10.0
"""Price of an agent of unknown price, in calls of the fast agent; cheap agents count as 1."""
_NOMINAL_FAST = Price(0.1, 0.1, 0.4)
"""Price of the fast agent if no price is known."""

Lengths = Mapping[str, tuple[float, float]]
"""Usual lengths of each agent's calls in tokens: its prompt beyond the question, and its answer."""


def usual_lengths(
    agents: Iterable[str], calibration: Calibration, sources: Mapping[tuple[str, Step], Source]
) -> Lengths:
    """The lengths that the calibration measured; an agent that it does not know is missing."""
    found = {}
    for agent in agents:
        known = calibration.statistics.get(sources[agent, Ask(agent).step])
        if known is not None and known.output_tokens is not None:
            found[agent] = (known.prompt_tokens or 0.0, known.output_tokens)
    return found


def without_prompts(lengths: Lengths) -> Lengths:
    """The lengths of calls that send the user's prompt unchanged."""
    return {agent: (0.0, output) for agent, (_, output) in lengths.items()}


def call_prices(
    cards: Mapping[str, ModelCard],
    tokens: int,
    cached: Mapping[str, int] | None = None,
    lengths: Lengths | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """The expected price of one call to each agent, and of each further sample of the same request.

    Args:
        cards: the model of each agent.
        tokens: length of the question.
        cached: number of these tokens in the cache of each agent's provider.
        lengths: usual lengths of each agent's prompts and answers.
    """
    calls = {}
    samples = {}
    for agent, price in token_prices(cards).items():
        usual = USUAL_TOKENS + REASONING_TOKENS.get(cards[agent].effort, 0)
        own_prompt, output = (lengths or {}).get(agent, (0.0, usual))
        read = min(tokens, (cached or {}).get(agent, 0))
        # the new turns of a conversation in the cache are written to it too
        fresh = price.written if read and price.written is not None else price.input
        prompt = (tokens - read + own_prompt) * fresh + read * price.cached
        answer = output * price.output
        calls[agent] = (prompt + answer) / 1_000_000
        samples[agent] = answer / 1_000_000 if cards[agent].n else calls[agent]
    return calls, samples


def reference_price(cards: Mapping[str, ModelCard]) -> float:
    """The price of a slow call of ordinary length, the unit of the dial (SPEC 9.5)."""
    return call_prices(cards, REFERENCE_TOKENS)[0][SLOW]


def token_prices(cards: Mapping[str, ModelCard]) -> dict[str, Price]:
    """The price of each agent's tokens; nominal ones for models that are free or of unknown price."""
    prices = {agent: _known_price(card) for agent, card in cards.items()}
    fast = next((price for price in prices.values() if price is not None), _NOMINAL_FAST)
    found = {}
    for agent, price in prices.items():
        ratio = 1.0 if agent in CHEAP_AGENTS else UNKNOWN_RATIO
        found[agent] = price or Price(ratio * fast.input, ratio * fast.cached, ratio * fast.output)
    return found


def is_nominal(cards: Mapping[str, ModelCard]) -> bool:
    """Whether a price is unknown or zero, so that prices are relative."""
    return any(card.price is None or card.price.free for card in cards.values())


def _known_price(card: ModelCard) -> Price | None:
    """The price of a model, by its size if it is free; None if neither is known."""
    if card.price is not None and (card.price.input or card.price.output):
        return card.price
    if card.parameters is None:
        return None
    each = card.parameters * NOMINAL_USD_PER_BILLION
    return Price(each, each, each)
