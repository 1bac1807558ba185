"""The kind of a request: open-ended, or with an answer of exact form (SPEC 9.3b).

Open-ended requests (writing, advice, translation, small talk, summaries, how-tos, code to write) have no right
answer that two models could agree on. The other kinds have one: choices, yes or no, numbers, short free answers and
tool calls.

When unsure, a request counts as exact. An open-ended request that is taken for an exact one costs money, which is
bounded: the first reply is prose without a final answer, and the cascade stops there. An exact one that is taken
for open-ended is answered by one call, and nothing shows that the answer is wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from odar.question import CoreQuestion, core_question
from odar.types import Query


class Kind(StrEnum):
    """Kinds of requests by the form of their answers."""

    OPEN_ENDED = "open-ended"
    CHOICE = "choice"
    YES_NO = "yes/no"
    NUMBER = "number"
    SHORT = "short answer"
    TOOL_CALL = "tool call"


class RequestKind(NamedTuple):
    """The kind of a request, and how many answers are plausible: agreement on one of two says little."""

    kind: Kind
    plausible: int = 0
    """Two for yes or no, the number of options of a choice; 0 means many."""


_OPEN_ENDED = RequestKind(Kind.OPEN_ENDED)
_ONE_OF_TWO = RequestKind(Kind.CHOICE, 2)
_YES_NO = RequestKind(Kind.YES_NO, 2)
_NUMBER = RequestKind(Kind.NUMBER)
_SHORT = RequestKind(Kind.SHORT)
_TOOL_CALL = RequestKind(Kind.TOOL_CALL)


def request_kind(query: Query) -> RequestKind:
    """The kind of a request.

    With tools that the model may call, an answer of many plausible ones counts as a tool call.

    >>> request_kind(Query("Write a haiku about rain."))
    RequestKind(kind=<Kind.OPEN_ENDED: 'open-ended'>, plausible=0)
    >>> request_kind(Query("Is 91 prime?"))
    RequestKind(kind=<Kind.YES_NO: 'yes/no'>, plausible=2)
    """
    parameters = query.parameters
    mode = parameters.tool_choice.mode if parameters.tool_choice is not None else "auto"
    if mode in ("required", "tool") or (query.turns and query.turns[-1].role == "tool"):
        return _TOOL_CALL
    if not query.text.strip() and not query.images:
        return _OPEN_ENDED if query.turns else _SHORT  # an empty message; recorded answers without their question
    by_text = _text_kind(core_question(query))
    if by_text.plausible:
        return by_text
    if parameters.tools and mode != "none":
        return by_text if by_text is _OPEN_ENDED else _TOOL_CALL
    if parameters.format is not None:
        return _schema_kind(parameters.format.schema) or (_OPEN_ENDED if by_text is _OPEN_ENDED else _SHORT)
    return by_text


def _text_kind(core: CoreQuestion) -> RequestKind:
    if core.options:
        words = {option.strip(" .").lower() for option in core.options}
        return _YES_NO if words in _OPPOSITES else RequestKind(Kind.CHOICE, len(core.options))
    cues = _cues()
    demands = core.demands.lower()
    demanded = next((kind for name, kind in _DEMANDS if cues[name].search(demands)), None)
    if demanded is not None and demanded is not _SHORT:
        return demanded
    text = core.text.strip()
    if len(text) > _HEAD + _TAIL:  # the request is at the beginning or at the end of a long text
        text = f"{text[:_HEAD]}\n\n{text[-_TAIL:]}"
    text = text.lower().replace("’", "'")
    if demanded is not None or core.examples:
        found = _question_kind(text) or _task_kind(text)
        return _SHORT if found is _OPEN_ENDED else found
    if cues["small_talk"].fullmatch(text) or cues["long_form"].search(text):
        return _OPEN_ENDED
    if cues["open_first"].match(text) and not cues["exact_task"].search(text):
        return _OPEN_ENDED
    return _question_kind(text) or _task_kind(text)


_HEAD = 1_200
"""Characters that are read at the beginning of a long question."""
_TAIL = 600
"""Number of characters that are read at the end of a text."""
_OPPOSITES = ({"yes", "no"}, {"true", "false"}, {"valid", "invalid"}, {"correct", "incorrect"})
_MANY_QUESTIONS = 3
_PERSONAL_LENGTH = 120
"""Characters from which a text about the writer with a question at its end asks for advice."""
_FACT_LENGTH = 100
"""Characters up to which a question that asks why or how has a short answer."""
_SENTENCE_END = re.compile(r"(?:(?<![\s.(][a-z])(?<!\b[md]r)\.|[!?])[\"')\]]?\s|\n")
"""Not after the initials of a name."""


_DEMANDS = (
    ("two_words", _YES_NO),
    ("prose_word", None),
    ("number_word", _NUMBER),
    ("letter", RequestKind(Kind.CHOICE)),
    ("exact_word", _SHORT),
)
"""Cues in demands, in the order in which they count; `_SHORT` stands for an exact form that they do not name."""


def _question_kind(text: str) -> RequestKind | None:
    """The kind of the last question in a lower-case text, or None if it asks none."""
    cues = _cues()
    end = text.rfind("?")
    if end == -1:
        sentence = _SENTENCE_END.split(text, maxsplit=1)[0]
        asks = cues["asks"].match(sentence) or cues["asks_yes_no"].match(sentence)
        return _sentence_kind(sentence, text) if asks else None
    if text.count("?") >= _MANY_QUESTIONS and not cues["asks_number"].search(text):
        return _OPEN_ENDED
    before = text[max(0, end - 500) : end]
    starts = [match.end() for match in _SENTENCE_END.finditer(before)]
    sentence = before[starts[-1] if starts else 0 :].strip(" \"'([*_-") + "?"
    _, colon, after = sentence.rpartition(": ")
    return (_sentence_kind(after, text) if colon else None) or _sentence_kind(sentence, text)


def _sentence_kind(sentence: str, text: str) -> RequestKind | None:
    """The kind of a question of one sentence, the last one of `text`."""
    cues = _cues()
    # questions without an interrogative, or in another language
    personal = len(text) > _PERSONAL_LENGTH and cues["personal"].search(text)
    if cues["asks_for_help"].match(sentence):
        return _OPEN_ENDED
    if (foreign := _foreign_kind(sentence)) is not None:
        return foreign
    if cues["asks_yes_no"].match(sentence):
        either = _ONE_OF_TWO if cues["either"].search(sentence) else _YES_NO
        return _OPEN_ENDED if personal else either
    if cues["asks_number"].search(sentence):
        return _NUMBER
    asked = cues["asks"].search(sentence)
    if (asked is None or sentence.startswith("when ")) and cues["conditional"].match(sentence):
        return _YES_NO
    if asked is None:
        return None
    # questions with one: a number, advice, a fact, or one of two
    if "difference" in sentence and cues["two_numbers"].search(text):
        return _NUMBER
    advice = cues["asks_open"].match(sentence, asked.start()) or cues["asks_for_advice"].search(sentence)
    if (
        len(text) <= _FACT_LENGTH
        and cues["asks_fact"].match(sentence, asked.start())
        and not cues["personal"].search(text)
    ):
        advice = None
    if (advice and not cues["formula"].search(text)) or (personal and not cues["has_numbers"].search(text)):
        return _OPEN_ENDED
    return _ONE_OF_TWO if asked[0] in ("which", "who") and cues["either"].search(sentence) else _SHORT


def _foreign_kind(sentence: str) -> RequestKind | None:
    """The kind of a question that begins with an interrogative of German, French, Spanish or Italian.

    Every other question without an English interrogative counts as one for yes or no.
    """
    cues = _cues()
    if cues["foreign_open"].match(sentence):
        return _OPEN_ENDED
    if cues["foreign_number"].match(sentence):
        return _NUMBER
    return _SHORT if cues["foreign_asks"].match(sentence) else None


def _task_kind(text: str) -> RequestKind:
    """The kind of a lower-case text that asks no question."""
    cues = _cues()
    if cues["exact_task"].search(text) or cues["asks_number"].search(text):
        return _NUMBER
    numbers = cues["has_numbers"].search(text)
    opened = cues["open_later"].search(text)
    exact = cues["exact_verb"].search(text)
    if exact and (numbers or not opened or not exact.start()):
        return _NUMBER if numbers else _SHORT
    if cues["completion"].search(text):
        return _NUMBER if text.endswith("=") else _SHORT
    if text.endswith("?"):
        return _YES_NO
    return _SHORT if numbers and not opened and not cues["chat"].search(text) else _OPEN_ENDED


def _schema_kind(schema: Mapping[str, Any] | None) -> RequestKind | None:
    """The kind of an answer by its JSON schema, if that has one field of a small type."""
    fields = schema.get("properties") if schema is not None else None
    field = next(iter(fields.values())) if isinstance(fields, Mapping) and len(fields) == 1 else None
    if not isinstance(field, Mapping):
        return None
    values = field.get("enum")
    if isinstance(values, list) and values:
        return RequestKind(Kind.CHOICE, len(values))
    return {"boolean": _YES_NO, "integer": _NUMBER, "number": _NUMBER}.get(str(field.get("type")))


_PARTS = ("polite", "no_request", "open_verbs", "open_phrases", "exact_verbs", "auxiliary")
"""Lists of kinds.toml that are parts of patterns."""


@cache
def _cues() -> dict[str, re.Pattern[str]]:
    tree = tomllib.loads(resources.files("odar.policy").joinpath("kinds.toml").read_text(encoding="utf-8"))
    lists = {name: "|".join(alternatives) for name, alternatives in tree.items()}
    for inner in ("auxiliary", "formula"):
        lists = {name: each.replace(f"{{{inner}}}", lists[inner]) for name, each in lists.items()}
    later = r"[.!?:;,][\"')\]]?\s{1,3}|\n\s{0,8}"
    polite = lists["polite"]
    opens = f"(?!{lists['no_request']}){polite}(?:(?:{lists['open_verbs']})\\b|{lists['open_phrases']})"
    lists |= {
        "small_talk": rf"(?:{lists['small_talk']})\b[^?\n]{{0,80}}[?!.]?",
        "open_first": opens,
        "open_later": f"(?:{later}){opens}",
        "exact_verb": rf"(?:^|{later}){polite}(?:{lists['exact_verbs']})\b",
    }
    return {name: re.compile(pattern) for name, pattern in lists.items() if name not in _PARTS}
