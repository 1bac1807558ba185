"""The document of a trace in plain words: what each stage was asked, what it answered, and why that was enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from odar.errors import one_line
from odar.policy.base import FIXED, STOP

_MAX_ANSWER = 36
_JUDGMENTS = {True: "says CORRECT, ", False: "says INCORRECT, ", None: ""}
_WITHOUT_ARTICLE = ("yes/no", "open-ended")


def tell_story(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The story of a question: how it began, each stage with the decision after it, and the answer.

    Each line has a title (`start`, a stage such as slow*2, or `answer`) and a text. "Likely right"
    is p, the probability that the leading answer is right.
    """
    decisions = document["decisions"]
    plan = document["plan"]
    if not decisions or plan is None:
        return []
    lines = [("start", _start(decisions[0], plan))]
    for number, decision in enumerate(decisions):
        if decision["stage"] is None:
            break
        parts = [_answers(document, number), _agreement(document, number)]
        if number + 1 < len(decisions):
            after = decisions[number + 1]
            answered = any(candidate["stage"] <= number for candidate in document["candidates"])
            parts.append("" if after["p"] is None else f"{after['p']:.0%} likely right")
            instead = after["stage"] is not None and not answered
            parts.append(f"{after['stage']} is asked instead" if instead else _reason(after, plan))
        lines.append((decision["stage"], " · ".join(filter(None, parts))))
    if (verdict := document["verdict"]) is not None:
        winner = document["candidates"][verdict["winner"]]
        text = f"{_name(document, verdict['winner'])} by {winner['agent']}: {verdict['reason']}"
        lines.append(("answer", text))
    return lines


def _start(decision: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    article = "" if plan["kind"] in _WITHOUT_ARTICLE else "a "
    seen = f"difficulty {plan['estimate']['difficulty']:.2f}, {article}{plan['kind']}"
    if decision["reason"] == FIXED:
        return f"{seen}: {decision['stage']} is asked, whatever the question (policy {plan['policy']})"
    if decision["price_usd"] is None:
        return str(decision["reason"])
    return f"{seen}: {decision['stage']} is asked first{_cost(decision, plan)}"


def _cost(decision: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """The cost of a stage; empty if prices are only nominal."""
    return "" if plan["nominal"] else f" for {dollars(decision['price_usd'])}"


def spend_line(cost_usd: float | None, slow_usd: float | None, unknown: str) -> str:
    """The cost of a question, and of one call to the slow model if that is known.

    >>> spend_line(0.0001, 0.0021, "unknown"), spend_line(0.0, 0.0, "unknown")
    ('$0.00010; one call to slow: $0.0021', 'free (local models)')
    """
    if not cost_usd and slow_usd == 0 and cost_usd is not None:
        return "free (local models)"
    cost = unknown if cost_usd is None else dollars(cost_usd) if cost_usd else "free"
    return cost if slow_usd is None else f"{cost}; one call to slow: {dollars(slow_usd) if slow_usd else 'free'}"


def dollars(usd: float) -> str:
    """A price with two significant digits.

    >>> dollars(0.0000473), dollars(1.234), dollars(0)
    ('$0.000047', '$1.23', '$0.00')
    """
    return f"${usd:.{max(2, 1 - math.floor(math.log10(usd))) if usd > 0 else 2}f}"


def _reason(decision: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Why a stage was asked, or why the cascade stopped: by cost and gain of the next stage, if known."""
    stops = decision["stage"] is None
    price = decision["price_usd"]
    gain = decision["gain"]
    value = plan["value_usd"]
    if None in (price, gain, decision["p"]) or not value:
        if stops:
            return "" if decision["reason"] == STOP else f"stop: {decision['reason']}"
        return str(decision["reason"])
    needed = f"points of accuracy{_cost(decision, plan)} (worth it from {100 * price / value:.1f})"
    if stops:
        return f"stop: another call would add {100 * gain:.1f} {needed}"
    return f"{decision['stage']} is expected to add {100 * gain:.1f} {needed}"


def _answers(document: Mapping[str, Any], stage: int) -> str:
    """The answers to one stage; equal ones are counted."""
    candidates = document["candidates"]
    groups = document["groups"]
    numbers = [i for i, candidate in enumerate(candidates) if candidate["stage"] == stage]
    if not numbers:
        return "no answer"
    texts = [_JUDGMENTS[candidates[i]["judgment"]] + _name(document, groups.index(groups[i])) for i in numbers]
    return ", ".join(text if n == 1 else f"{text} ({n}×)" for text, n in Counter(texts).items())


def _agreement(document: Mapping[str, Any], stage: int) -> str:
    pairs = zip(document["groups"], document["candidates"], strict=True)
    groups = [group for group, candidate in pairs if candidate["stage"] <= stage]
    if len(groups) < 2:
        return ""
    most = max(Counter(groups).values())
    if len(groups) == 2:
        return "they agree" if most == 2 else "they differ"
    return f"all {most} agree" if most == len(groups) else f"{most if most > 1 else 'none'} of {len(groups)} agree"


def _name(document: Mapping[str, Any], candidate: int) -> str:
    """A short form of an answer; if texts are not stored, a letter for its group of equal answers."""
    final = document["candidates"][candidate].get("final")
    if final is not None:
        return one_line(final, _MAX_ANSWER)
    groups = list(dict.fromkeys(document["groups"]))
    return f"answer {chr(ord('A') + groups.index(document['groups'][candidate]) % 26)}"
