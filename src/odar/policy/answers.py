"""What a reply says: its final answer, a verifier's judgment (SPEC 3.1), and whether it gives a known answer.

No input raises an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from odar.policy.equivalence import call_key, canonical_form, equivalent
from odar.policy.quantities import concluding_number, numbers_in
from odar.policy.similarity import SENTENCE_WORDS, word_overlap
from odar.types import Candidate

_ANSWER_WORDS = "answer|answer is|respuesta|réponse|antwort|risposta|resposta|ответ|答案|答え|回答|정답|جواب"
_MARKUP = r"[*_`#> \t]{0,8}"  # bounded, so that no input makes the search slow
_MARKER = re.compile(
    rf"(?:^|(?<=[\s*_`#>.!?)])){_MARKUP}(?:the[ ])?(?:final[ ])?(?:{_ANSWER_WORDS}){_MARKUP}[:：]{_MARKUP}",
    re.IGNORECASE | re.MULTILINE,
)
"""Answer: or **The final answer:** or `Réponse` ："""
_SENTENCE = re.compile(
    r"\bthe (?:final |correct )?answer is[:：]?\s+(.+?)(?:[.!](?=\s|$)|$)", re.IGNORECASE | re.MULTILINE
)
"""So the correct answer is 42."""
_HASHES = re.compile(r"^####[ \t]*(\S[^\n]{0,80})\s*\Z", re.MULTILINE)
"""#### 42 in the last line, as in GSM8K"""
_JUDGMENT = re.compile(
    r"judg(?:e)?ment[*_` \t]*[:：][*_` \t]*<?(not[ ]+|in)?correct|(?<!not )\b(INCORRECT|CORRECT)\b", re.IGNORECASE
)
"""**Judgment:** incorrect, or the bare word CORRECT"""
_YES_NO = re.compile(r"\W*(?:yes|no)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\W{0,3}(?:(?:i'm |i am )?sorry,? (?:but )?)?(?:i (?:really |just )?(?:do not|don't) know"
    r"|(?:i am|i'm) (?:not sure|not certain|unable to)"
    r"|i (?:cannot|can't|can not) (?:answer|say|tell|determine|help))\b",
    re.IGNORECASE,
)
"""I do not know. Sorry, but I cannot answer that."""
_LONGEST_REFUSAL = 200
"""Characters of an answer above which it says more than that."""
_PLACEHOLDER = re.compile(r"</?(?:response|answer)>", re.IGNORECASE)
"""Copied from the instructions: Answer: <response>"""
_FENCE = "```"
_READ_AT_END = 50_000
"""Characters at the end of a text in which an answer or a judgment is looked for."""


def extract_answer(text: str) -> str:
    """The marked final answer; the whole text if none is marked.

    >>> extract_answer("2 + 2 = 4.\\n**Answer:** 4")
    '4'
    >>> extract_answer("Paris")
    'Paris'
    """
    found = find_answer(text)
    return text.strip() if found is None else found


def is_refusal(answer: str) -> bool:
    """Whether an answer only says that the model has none; two such answers do not agree.

    >>> is_refusal("I'm sorry, but I don't know."), is_refusal("I know that it is 4.")
    (True, False)
    """
    return len(answer) <= _LONGEST_REFUSAL and _REFUSAL.match(answer.replace("\u2019", "'")) is not None


def find_answer(text: str) -> str | None:
    """The marked final answer, or None.

    The last `Answer:` counts, in any of several languages and kinds of markup; without one, the last `\\boxed{}`,
    then a final `#### 42` as in GSM8K, then "the answer is …". If the model copied `Answer: <response>` from its
    instructions, the line before it is the answer.

    >>> find_answer("so we get \\\\boxed{\\\\frac{1}{2}}")
    '\\\\frac{1}{2}'
    >>> find_answer("It is scattered light.\\nAnswer: <response>")
    'It is scattered light.'
    >>> find_answer("no idea") is None
    True
    """
    text = _last_lines(text)
    end = len(text)
    copied_template = 0
    for match in reversed(list(_MARKER.finditer(text))):
        block = _first_block(text[match.end() : end])
        if answer := _PLACEHOLDER.sub("", block).strip():
            return _unwrap(answer)
        end = match.start()
        if block:
            copied_template = end
    if (boxed := last_boxed(text)) is not None:
        return _without_text_command(boxed)
    if hashes := _HASHES.search(text):
        return _unwrap(hashes.group(1))
    if sentences := _SENTENCE.findall(text):
        return _unwrap(sentences[-1])
    before = text[:copied_template].rstrip()
    return _unwrap(before[before.rfind("\n") + 1 :]) if before else None


MAX_ANSWER_WORDS = 20
"""Maximum number of words of an answer; a longer text is prose or reasoning."""
_MAX_ANSWER_CHARACTERS = 200


def is_bare_answer(text: str) -> bool:
    """Whether an unmarked text is the answer itself: one short line, or yes or no with a short reason.

    >>> is_bare_answer("Penguins swim."), is_bare_answer("No.\\nThey swim."), is_bare_answer("They swim.\\nSo 4")
    (True, True, False)
    """
    text = text.strip()
    short = 0 < len(text) <= _MAX_ANSWER_CHARACTERS and len(text.split()) <= MAX_ANSWER_WORDS
    return short and ("\n" not in text or _YES_NO.match(text) is not None)


def extract_judgment(text: str) -> bool | None:
    """A verifier's judgment: True for CORRECT, False for INCORRECT, None if it gave none.

    An explicit `Judgment:` line counts for more than the bare word, and the last one counts.

    >>> extract_judgment("**Judgment:** incorrect\\nAnswer: 5")
    False
    >>> extract_judgment("I am not sure.") is None
    True
    """
    explicit: bool | None = None
    bare: bool | None = None
    for match in _JUDGMENT.finditer(_last_lines(text)):
        if match.group(2) is None:
            explicit = match.group(1) is None
        elif match.group(2).isupper():  # in lower case it is an ordinary word
            bare = match.group(2) == "CORRECT"
    return bare if explicit is None else explicit


def _last_lines(text: str) -> str:
    """The end of a long text, from the beginning of a line if one begins soon."""
    start = len(text) - _READ_AT_END
    if start <= 0:
        return text
    line = text.find("\n", start, start + 1_000)
    return text[start if line == -1 else line + 1 :]


def _first_block(text: str) -> str:
    """The text up to the first blank line, or up to the end of a code block that opens before it."""
    text = text.strip()
    blank = re.search(r"\n\s*\n", text)
    fence = text.find(_FENCE)
    if fence != -1 and (blank is None or fence < blank.start()):
        close = text.find(_FENCE, fence + len(_FENCE))
        return text if close == -1 else text[: close + len(_FENCE)]
    return text[: blank.start()] if blank else text


def _unwrap(answer: str) -> str:
    """The answer without bold, code marks, the angle brackets of a copied template, and a box."""
    if (boxed := last_boxed(answer)) is not None:
        return _without_text_command(boxed)
    bare = answer.strip() if _FENCE in answer else answer.strip(" \n*`")
    if bare.startswith("<") and bare.endswith(">") and bare.count("<") == 1:
        bare = bare[1:-1].strip()
    return bare or answer.strip()


_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\{([^{}\\$]{1,200})\}")


def _without_text_command(boxed: str) -> str:
    r"""The words of a box that holds nothing but words.

    >>> _without_text_command(r"\text{Yes}"), _without_text_command(r"5 \text{ km}")
    ('Yes', '5 \\text{ km}')
    """
    words = _TEXT_COMMAND.fullmatch(boxed)
    return words[1].strip() if words and words[1].strip() else boxed


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=(?P<braces>\{)|(?P<bare>[^\s{}$.,]{1,80}+))")
"""The beginning of \\boxed{42} or \\boxed 42"""


def last_boxed(text: str, *, bare: bool = False) -> str | None:
    """Content of the last \\boxed{…} or \\fbox{…}, braces balanced.

    A box that is never closed, as in a response that was cut off, does not count.

    Args:
        text: a solution.
        bare: whether a box without braces counts too. Only for LaTeX: a sentence about \\boxed notation would have
            the answer "notation".

    >>> last_boxed("so \\\\boxed{\\\\frac{1}{2}} it is"), last_boxed("is $\\\\boxed 2$.", bare=True)
    ('\\\\frac{1}{2}', '2')
    """
    boxes = [match for match in _BOX.finditer(text) if bare or match["braces"]]
    closing = _matching_braces(text) if boxes else {}
    for match in reversed(boxes):
        if match["bare"]:
            return match["bare"]
        if match.end() in closing:
            return text[match.end() + 1 : closing[match.end()]].strip()
    return None


def _matching_braces(text: str) -> dict[int, int]:
    """Position of the closing brace of each opening one."""
    closing: dict[int, int] = {}
    unclosed: list[int] = []
    for match in re.finditer(r"(?<!\\)[{}]", text):
        if match[0] == "{":
            unclosed.append(match.start())
        elif unclosed:
            closing[unclosed.pop()] = match.start()
    return closing


MAX_WORDS = 8
"""Maximum number of words of an answer that is searched in the sentences of another reply."""
SAME_PROSE = 0.6
"""Overlap of words from which two answers in prose count as the same."""
_READ_CHARACTERS = 20_000
"""Only the beginning and the end of a longer reply are read."""
_PLAIN_WORD = re.compile(r"\w+")
_BOLD = re.compile(r"\*\*([^*\n]{1,100})\*\*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def same_reply(first: Candidate, second: Candidate) -> bool:
    """Whether two replies to one question give the same answer, or make the same tool calls (SPEC 10.1).

    ODAR's prompts ask for a marked answer, so candidates are compared by `equivalence`. A reply that was passed
    through has no mark: "The capital of France is **Paris**." gives the same answer as "Paris".
    """
    if first.tool_calls or second.tool_calls:
        return call_key(first.tool_calls) == call_key(second.tool_calls)
    one, other = first.answer, second.answer
    if gives_answer(one, other) or gives_answer(other, one):
        return True
    numbers = concluding_number(one), concluding_number(other)
    if all(numbers):
        return equivalent(*map(str, numbers))
    prose = min(len(one.split()), len(other.split())) >= SENTENCE_WORDS
    return prose and word_overlap(one[:_READ_CHARACTERS], other[:_READ_CHARACTERS]) >= SAME_PROSE


def answer_in_reply(reply: str, answers: Iterable[str]) -> str | None:
    """The first of these answers that a reply gives, or None.

    >>> answer_in_reply("The capital of France is **Paris**.", ["Lyon", "Paris"])
    'Paris'
    """
    return next((answer for answer in answers if gives_answer(reply, answer)), None)


def gives_answer(reply: str, answer: str) -> bool:
    """Whether a reply gives a short answer: marked, in bold, or in its first or last sentence.

    >>> gives_answer("Yes, 7 is prime.", "yes"), gives_answer("It is B) Rome.", "B")
    (True, True)
    >>> gives_answer("Paris is large. Lyon is the answer.", "Rome")
    False
    """
    marked = extract_answer(reply)
    if equivalent(marked, answer):
        return True
    if len(answer.split()) > MAX_WORDS or not answer.strip():
        return False
    if len(marked) > _READ_CHARACTERS:
        marked = f"{marked[: _READ_CHARACTERS // 2]}\n{marked[-_READ_CHARACTERS // 2 :]}"
    sentences = [part for part in _SENTENCE_END.split(marked.strip()) if part]
    ends = [sentences[0], sentences[-1]] if sentences else []
    if any(equivalent(place, answer) for place in (*_BOLD.findall(marked), *ends)):
        return True
    kind = canonical_form(answer).kind
    if kind == "number":  # "It is 4.": the only number of a sentence
        return any(len(found) == 1 and equivalent(found[0], answer) for found in map(numbers_in, ends))
    if kind == "choice":
        letter = canonical_form(answer).value.upper()
        chosen = re.compile(rf"(?:\({letter}\)|\b{letter}[).:](?:\s|$)|(?:option|choice|answer|is)\s+{letter}\b)")
        return any(chosen.search(place) for place in ends)
    return kind in ("text", "date") and any(_contains_words(place, answer) for place in ends)


def _contains_words(sentence: str, answer: str) -> bool:
    """Whether the words of an answer occur in a sentence, in their order and side by side."""
    found = [word.lower() for word in _PLAIN_WORD.findall(sentence)]
    wanted = [word.lower() for word in _PLAIN_WORD.findall(answer)]
    wanted = wanted[1:] if wanted[:1] in (["the"], ["a"], ["an"]) else wanted
    size = len(wanted)
    return bool(size) and any(found[i : i + size] == wanted for i in range(len(found) - size + 1))
