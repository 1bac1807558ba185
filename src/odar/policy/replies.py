"""Whether two replies give the same answer, where some state theirs in a sentence (SPEC 10.1).

ODAR's prompts ask for a marked answer, so candidates are compared by `equivalence`. A reply that was passed through
has no mark: "The capital of France is **Paris**." gives the same answer as "Paris".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from odar.policy.answers import concluding_number, extract_answer, numbers_in
from odar.policy.equivalence import canonical, equivalent, group_answers
from odar.policy.response_format import call_key
from odar.policy.similarity import SENTENCE_WORDS, word_overlap
from odar.types import Candidate

MAX_WORDS = 8
"""Maximum number of words of an answer that is searched in the sentences of another reply."""
SAME_PROSE = 0.6
"""Overlap of words from which two answers in prose count as the same."""
_MAX_CHARACTERS = 20_000
"""Only the beginning and the end of a longer reply are read."""
_BOLD = re.compile(r"\*\*([^*\n]{1,100})\*\*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w+")


def same_reply(first: Candidate, second: Candidate) -> bool:
    """Return whether two replies to one question give the same answer, or make the same tool calls."""
    if first.tool_calls or second.tool_calls:
        return call_key(first.tool_calls) == call_key(second.tool_calls)
    one, other = first.answer, second.answer
    if gives_answer(one, other) or gives_answer(other, one):
        return True
    numbers = concluding_number(one), concluding_number(other)
    if all(numbers):
        return equivalent(*map(str, numbers))
    prose = min(len(one.split()), len(other.split())) >= SENTENCE_WORDS
    return prose and word_overlap(one[:_MAX_CHARACTERS], other[:_MAX_CHARACTERS]) >= SAME_PROSE


def answer_in_reply(reply: str, answers: Iterable[str]) -> str | None:
    """Return the first of these answers that a reply gives, or None.

    >>> answer_in_reply("The capital of France is **Paris**.", ["Lyon", "Paris"])
    'Paris'
    """
    return next((answer for answer in answers if gives_answer(reply, answer)), None)


def gives_answer(reply: str, answer: str) -> bool:
    """Return whether a reply gives a short answer: marked, in bold, or in its first or last sentence.

    >>> gives_answer("Yes, 7 is prime.", "yes"), gives_answer("It is B) Rome.", "B")
    (True, True)
    >>> gives_answer("Paris is large. Lyon is the answer.", "Rome")
    False
    """
    marked = extract_answer(reply)
    if equivalent(marked, answer) or len(set(group_answers([marked, answer]))) == 1:
        return True
    if len(answer.split()) > MAX_WORDS or not answer.strip():
        return False
    if len(marked) > _MAX_CHARACTERS:
        marked = f"{marked[: _MAX_CHARACTERS // 2]}\n{marked[-_MAX_CHARACTERS // 2 :]}"
    sentences = [part for part in _SENTENCE_END.split(marked.strip()) if part]
    ends = [sentences[0], sentences[-1]] if sentences else []
    if any(len(set(group_answers([place, answer]))) == 1 for place in (*_BOLD.findall(marked), *ends)):
        return True
    kind = canonical(answer).kind
    if kind == "number":  # "It is 4.": the only number of a sentence
        return any(len(found) == 1 and equivalent(found[0], answer) for found in map(numbers_in, ends))
    if kind == "choice":
        letter = canonical(answer).value.upper()
        chosen = re.compile(rf"(?:\({letter}\)|\b{letter}[).:](?:\s|$)|(?:option|choice|answer|is)\s+{letter}\b)")
        return any(chosen.search(place) for place in ends)
    return kind in ("text", "date") and any(_contains_words(place, answer) for place in ends)


def _contains_words(sentence: str, answer: str) -> bool:
    """Return whether the words of an answer occur in a sentence, in their order and side by side."""
    found = [word.lower() for word in _WORD.findall(sentence)]
    wanted = [word.lower() for word in _WORD.findall(answer)]
    wanted = wanted[1:] if wanted[:1] in (["the"], ["a"], ["an"]) else wanted
    size = len(wanted)
    return bool(size) and any(found[i : i + size] == wanted for i in range(len(found) - size + 1))
