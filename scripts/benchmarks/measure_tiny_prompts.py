"""Measure how well and how fast the local model follows its prompts: the numbers behind the tiny profile.

    python scripts/benchmarks/measure_tiny_prompts.py                    # all three prompts, greedy and sampled
    python scripts/benchmarks/measure_tiny_prompts.py --only answer --show
    python scripts/benchmarks/measure_tiny_prompts.py --speed            # 1 fast + 5 slow samples against 1 slow call

None of the questions appears in the prompts' examples.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Iterable

from odar.agents.prompts import load_prompts
from odar.providers.base import Message, Reply, Request, Sampling
from odar.providers.local import LocalProvider
from odar.types import Query, Step

PROMPTS = load_prompts("tiny").exact
MAX_TOKENS = {"answer": 96, "verify": 192, "solve": 256}
QUESTIONS = (
    ("What is the capital of France?", "paris"),
    ("What is the capital of Japan?", "tokyo"),
    ("What is the capital of Italy?", "rome"),
    ("What is the capital of Germany?", "berlin"),
    ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who developed the theory of relativity?", "einstein"),
    ("What is the chemical symbol for gold?", "au"),
    ("What is the chemical formula of water?", "h2o|h₂o"),
    ("What planet do we live on?", "earth"),
    ("How many days are in a week?", "7|seven"),
    ("How many legs does a spider have?", "8|eight"),
    ("What color is the sky on a clear day?", "blue"),
    ("Which ocean is the largest?", "pacific"),
    ("What gas do plants take in?", "carbon dioxide|co2"),
    ("In which country is the Great Wall?", "china"),
    ("What is the freezing point of water in Celsius?", "0|zero"),
    ("What is 5 + 3?", "8"),
    ("What is 10 - 4?", "6"),
    ("What is 6 times 7?", "42"),
    ("What is 20 divided by 4?", "5"),
)
HELD_OUT = (  # not looked at while the prompts were written
    ("What is the capital of Spain?", "madrid"),
    ("What is the capital of England?", "london"),
    ("What is the capital of Russia?", "moscow"),
    ("What is the capital of China?", "beijing"),
    ("Who wrote Hamlet?", "shakespeare"),
    ("Who was the first president of the United States?", "washington"),
    ("What is the chemical symbol for oxygen?", "o|o2"),
    ("What is the closest star to Earth?", "sun"),
    ("Which planet is known as the Red Planet?", "mars"),
    ("How many months are in a year?", "12|twelve"),
    ("How many minutes are in an hour?", "60|sixty"),
    ("What color is grass?", "green"),
    ("Which animal is known as the king of the jungle?", "lion"),
    ("On which continent is Egypt?", "africa"),
    ("Which language is spoken in Brazil?", "portuguese"),
    ("What is the opposite of hot?", "cold"),
    ("What is 2 + 2?", "4|four"),
    ("What is 9 - 3?", "6|six"),
    ("What is 3 times 5?", "15|fifteen"),
    ("What is 100 divided by 10?", "10|ten"),
)
WRONG = ("madrid", "12", "mars", "green", "3", "albert camus", "silver", "london")


def final_answer(text: str) -> str | None:
    """What the last `Answer:` line says."""
    found = re.findall(r"^Answer:\s*(.+?)\s*$", text, re.MULTILINE)
    return found[-1] if found else None


def is_right(answer: str | None, expected: str) -> bool:
    """Whether the answer holds the expected word or number."""
    return answer is not None and bool(re.search(rf"(?<![\w.])({expected})(?![\w]|\.\d)", answer.lower()))


async def ask(
    provider: LocalProvider,
    step: str,
    turns: tuple[Message, ...],
    temperature: float,
    n: int,
    full_length: bool = False,
) -> Reply:
    """One request with the profile's token limits."""
    extra = {"ignore_eos": True} if full_length else {}
    sampling = Sampling(temperature=temperature, top_p=0.95, max_tokens=MAX_TOKENS[step], seed=42)
    return await provider.complete(Request("smollm2-135m", turns, sampling, n=n, timeout_s=300, extra=extra))


def cases(step: str, questions: tuple[tuple[str, str], ...]) -> Iterable[tuple[str, str, str, bool]]:
    """(question, expected, proposal, whether the proposal is right); verify sees each question both ways."""
    for number, (question, expected) in enumerate(questions):
        yield question, expected, expected.split("|")[0].title(), True
        if step == "verify":
            yield question, expected, WRONG[number % len(WRONG)].title(), False


async def measure(provider: LocalProvider, step: str, temperature: float, held_out: bool, show: bool) -> None:
    """Print how many replies are well formed and right."""
    right = formed = judged = finished = total = 0
    tokens, prompt_tokens, started = 0, 0, time.monotonic()
    for question, expected, proposal, sound in cases(step, HELD_OUT if held_out else QUESTIONS):
        reply = await ask(provider, step, PROMPTS[Step(step)].messages(Query(question), proposal), temperature, 1)
        (completion,) = reply.completions
        answer = final_answer(completion.text)
        last = completion.text.strip().splitlines()[-1:]
        total += 1
        finished += completion.finish == "stop"
        formed += bool(last) and last[0].startswith("Answer:")
        right += is_right(answer, expected)
        judged += f"Judgment: {'CORRECT' if sound else 'INCORRECT'}" in completion.text.splitlines()
        tokens += reply.usage.output or 0
        prompt_tokens = max(prompt_tokens, reply.usage.input or 0)
        if show and not (is_right(answer, expected) and formed):
            print("   ", question, proposal if step == "verify" else "", "->", repr(completion.text))
        elif show:
            print("  ok", question, "->", repr(completion.text))
    seconds = time.monotonic() - started
    judgments = f", right judgments {judged}/{total}" if step == "verify" else ""
    print(
        f"{step} T={temperature}: right {right}/{total}, ends with Answer: {formed}/{total}{judgments}, "
        f"stopped by itself {finished}/{total}, prompt <= {prompt_tokens} tokens, "
        f"{tokens / total:.0f} tokens and {seconds / total:.2f} s a reply",
        flush=True,
    )


async def speed(provider: LocalProvider) -> None:
    """Print the time of the Hard path as a multiple of one slow call.

    Every sample runs to its limit: otherwise the ratio depends on which sample happens to be the long one.
    """
    question = "A train travels 60 miles in 1.5 hours and then 90 miles in 2 hours. What is its average speed?"
    answer, solve = (PROMPTS[step].messages(Query(question)) for step in (Step.ANSWER, Step.SOLVE))
    await ask(provider, "answer", answer, 0.2, 1, full_length=True)
    await ask(provider, "solve", solve, 0.3, 1, full_length=True)
    ratios = []
    for _ in range(3):
        started = time.monotonic()
        slow = await ask(provider, "solve", solve, 0.3, 1, full_length=True)
        one = time.monotonic() - started
        started = time.monotonic()
        await ask(provider, "answer", answer, 0.2, 1, full_length=True)
        batch = await ask(provider, "solve", solve, 0.3, 5, full_length=True)
        six = time.monotonic() - started
        ratios.append(six / one)
        print(
            f"1 slow call {one:.2f} s ({(slow.usage.output or 0) / one:.0f} tok/s); 1 fast + 5 slow {six:.2f} s "
            f"({(batch.usage.output or 0)} tokens); ratio {six / one:.2f}",
            flush=True,
        )
    print(f"median ratio {sorted(ratios)[1]:.2f}")


async def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(MAX_TOKENS))
    parser.add_argument("--temperature", type=float, nargs="*", default=[0.0, 0.2, 0.3])
    parser.add_argument("--show", action="store_true", help="print every reply")
    parser.add_argument("--held-out", action="store_true", help="the second set of questions")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    provider = LocalProvider(threads=arguments.threads)
    try:
        if arguments.speed:
            await speed(provider)
            return
        for step in [arguments.only] if arguments.only else MAX_TOKENS:
            for temperature in arguments.temperature:
                await measure(provider, step, temperature, arguments.held_out, arguments.show)
    finally:
        await provider.close()


if __name__ == "__main__":
    asyncio.run(main())
