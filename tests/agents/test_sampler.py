from __future__ import annotations

import asyncio

from support.engine import MODELS, engine
from support.scripted import completion, step_of

SINGLES = {**MODELS, "deep": {**MODELS["deep"], "n": False}}


def saying(*answers):
    """Return a script with the slow agent's answer to each sample, by seed."""

    def speak(request, index):
        first = request.sampling.seed or 0
        return [completion(f"Answer: {answers[first + i]}", -0.2) for i in range(request.n)]

    return speak


async def hard(slow, **overrides):
    odar, _, provider = engine(slow=slow, difficulty=0.9, **{"fusion__stop_confidence": 0.8, **overrides})
    return await odar.aask("What is 2 + 2?", seed=0), provider


async def test_agreement_in_the_first_wave_skips_the_second():
    answer, provider = await hard(saying(4, 4, 4, 5, 5))
    assert [request.n for request in provider.requests] == [3]
    assert (answer.answer, answer.trace.spend.calls, answer.degraded) == ("4", 4, False)


async def test_disagreement_requests_the_second_wave_with_other_seeds():
    answer, provider = await hard(saying(4, 5, 6, 5, 5))
    assert [(request.n, request.sampling.seed) for request in provider.requests] == [(3, 0), (2, 3)]
    assert (answer.answer, len(answer.trace.candidates)) == ("5", 6)


async def test_similar_free_text_in_the_first_wave_skips_the_second():
    alike = ("The seeds pass through your body unharmed.", "Unharmed, the seeds pass through your body.")
    other = ("A melon grows in you after a while.", "You will need a doctor at once, probably.")
    answer, provider = await hard(saying(*alike, alike[0], *other))
    assert [request.n for request in provider.requests] == [3]
    assert answer.answer in alike
    _, provider = await hard(saying(alike[0], *other, *alike))
    assert [request.n for request in provider.requests] == [3, 2]


async def test_without_early_stopping_all_samples_are_requested_at_once():
    _, provider = await hard(saying(4, 4, 4, 4, 4), fusion__stop_confidence=None)
    assert [request.n for request in provider.requests] == [5]


async def test_two_equal_answers_do_not_end_the_first_wave():
    odar, _, provider = engine(
        slow=saying(4, 4, 5, 5, 5), models=SINGLES, difficulty=0.9, fusion__stop_confidence=0.8
    )
    answer = await odar.aask("What is 2 + 2?", seed=0)
    assert (answer.answer, len(provider.requests)) == ("5", 5)


async def test_requests_in_flight_are_cancelled_when_the_answer_is_settled():
    slow = saying(4, 4, 5, 4, 4)
    odar, _, provider = engine(slow=slow, models=SINGLES, difficulty=0.9, fusion__stop_confidence=0.8)

    async def complete(request, on_text=None, *, plain=provider.complete):
        if step_of(request) == "solve" and request.sampling.seed == 4:
            provider.in_flight += 1
            try:
                await asyncio.sleep(30)
            finally:
                provider.in_flight -= 1
        return await plain(request, on_text)

    provider.complete = complete
    answer = await odar.aask("What is 2 + 2?", seed=0)
    assert provider.in_flight == 0
    assert len(provider.requests) == 4
    cancelled = [call for call in answer.trace.calls if call.error == "cancelled"]
    assert len(cancelled) == 1
    assert answer.trace.spend.cost_usd is None  # it may have been billed: unknown, not zero


async def test_max_calls_applies_across_waves():
    for limit in range(1, 7):
        odar, fast, slow = engine(slow=saying(1, 2, 3, 4, 5), difficulty=0.9, fusion__stop_confidence=0.8)
        await odar.aask("What is 2 + 2?", seed=0, max_calls=limit)
        assert sum(request.n for request in fast.requests + slow.requests) <= limit


async def test_a_failing_agent_is_not_called_again():
    from odar.errors import ProviderError

    odar, _, slow = engine(
        slow=lambda r, i: ProviderError("down", status=503), difficulty=0.9, fusion__stop_confidence=0.8
    )
    answer = await odar.aask("What is 2 + 2?")
    assert len(slow.requests) == 1
    assert answer.degraded


async def test_a_path_chosen_by_the_caller_takes_all_samples():
    odar, _, provider = engine(slow=saying(4, 4, 4, 4, 4), fusion__stop_confidence=0.8)
    answer = await odar.aask("What is 2 + 2?", path="hard", seed=0)
    assert [request.n for request in provider.requests] == [5]
    assert len(answer.trace.candidates) == 6
