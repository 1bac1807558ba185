"""The core question of a request: the user's own words, without what clients and templates add (SPEC 9.4).

Set apart are text that a client adds (`<system-reminder>`, `<environment_context>`, attached files, the contents of
AGENTS.md), few-shot examples, the options of a multiple choice, and demands on the form of the answer. In a tool
loop, the question is the task of the turn: the last user turn that has words of the user's.

Every pattern is bounded and all closing tags are found at once, so that the time is linear in the length.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from odar.types import Query


class CoreQuestion(NamedTuple):
    """The user's own words, and facts about what was set apart."""

    text: str
    """Never empty, unless the request is."""
    options: tuple[str, ...] = ()
    """Texts of the options of a multiple choice, each at most 80 characters long."""
    demands: str = ""
    """Demands on the form of the answer, such as "Answer with the letter only."."""
    examples: int = 0
    """Number of few-shot examples."""


def core_question(query: Query) -> CoreQuestion:
    r"""The core of a query's question.

    >>> core_question(Query("<system-reminder>\nBe brief.\n</system-reminder>\nhi")).text
    'hi'
    >>> core_question(Query("Which is red?\nA) blood\nB) snow\n\nAnswer with the letter only."))[:3]
    ('Which is red?', ('blood', 'snow'), 'Answer with the letter only.')
    """
    if query.core is None:
        object.__setattr__(query, "core", _core_question(query))
    found: CoreQuestion = query.core
    return found


def _core_question(query: Query) -> CoreQuestion:
    whole = query.text
    own = own_words(whole)
    if not own:
        earlier = (turn.text for turn in reversed(query.turns) if turn.role == "user")
        whole = next(filter(own_words, earlier), whole)
        own = own_words(whole) or whole.strip()
    if len(whole) > _LONGEST:
        return CoreQuestion(own if len(own) < len(whole.strip()) else whole)
    text, examples = _without_examples(own)
    text, options = _without_options(text)
    text, demands = _without_demands(text)
    text = _without_label(text)
    if not text or text == whole.strip():
        text = whole  # with the white space around it
    return CoreQuestion(text, options, demands, examples)


def earlier_questions(query: Query, limit: int) -> list[str]:
    """The user's own words in the last turns before that of `core_question`, the oldest first."""
    turns = (own_words(turn.text) for turn in reversed(query.turns) if turn.role == "user")
    return list(islice(filter(None, turns), 1, limit + 1))[::-1]


_LONGEST = 50_000
"""Characters up to which options, examples and demands are looked for."""

# ---------------------------------------------------------------- text that a client adds

_TAG = re.compile(r"^[ \t]{0,8}<([A-Za-z][\w-]{0,40})(?:[ \t][^<>\n]{0,300})?>", re.MULTILINE)
_CLOSER = re.compile(r"</([A-Za-z][\w-]{0,40})>")
_NOT_SPACE = re.compile(r"\S")
_OWN_TAGS = re.compile(
    r"user[-_]?(?:query|request|message|prompt|input)|task|feedback|question|query|prompt|command-args|pr_description",
    re.IGNORECASE,
)
"""Tags around the user's own words: Cursor, Copilot, Cline, Claude Code's slash commands, prompt templates."""
_ADDED_TAGS = re.compile(
    r"context|attachments?|rules|documents?|instructions|environment|files?|permissions|command-(?:name|message)|bash-input",
    re.IGNORECASE,
)
_LAST_WORDS = (
    r"context|info|information|details|reminders?|instructions?|files?|contents?|layout|status|(?:meta)?data|rules|"
    r"attachments|selection|stdout|stderr|output|history|memory|memories|skills|tools|diagnostics|errors|documents|"
    r"results?|diff|snippets|tree|hook|caveat|notification|structure"
)
"""Last words of tags of several words: `environment_details`, `ide_selection`, `editorContext`."""
_ADDED_NAME = re.compile(rf"(?:.*[-_]|.*[a-z](?=[A-Z]))(?i:{_LAST_WORDS})")
_HEADING = re.compile(r"^# (?:AGENTS|CLAUDE|GEMINI)\.md\b.{0,300}$|^New task:[ \t]*$", re.MULTILINE)
_AIDER_RULES = "\n# *SEARCH/REPLACE block* Rules:"
_NO_QUESTION = re.compile(
    r"\s*(?:\[[\w-]{1,40} for [^\n]{0,300}\] Result:|Observation:|I have \*added these files|"
    r"I switched to a new code base|Here are summaries of some files present|\[Request interrupted|"
    r"This is the Gemini CLI)"
)
"""Beginnings of user turns that a client wrote: results of tools (Cline, smolagents), files (aider)."""


def own_words(text: str) -> str:
    """A user turn without the text that a client added; empty if nothing else is in it."""
    if _NO_QUESTION.match(text):
        return ""
    if (end := text.find(_AIDER_RULES)) != -1:
        text = text[:end]
    if "<" not in text and "# " not in text and not text.startswith("New task:"):
        return text.strip()
    own = (0, 0)
    kept = []
    position = 0
    for name, start, inner, inner_end, end in _blocks(text):
        if start < position:
            continue  # inside of a block that was set apart
        if _OWN_TAGS.fullmatch(name):
            own = (inner, inner_end) if _NOT_SPACE.search(text, inner, inner_end) else own
        elif _ADDED_TAGS.fullmatch(name) or _ADDED_NAME.fullmatch(name):
            kept.append(text[position:start])
            position = end
    if any(own):
        return text[slice(*own)].strip()
    return _HEADING.sub("", "".join([*kept, text[position:]])).strip()


def _blocks(text: str) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield name, start, inner start, inner end and end of the tags at the beginning of a line that are closed.

    All closing tags are found at once: to search for each of them would take quadratic time.
    """
    closers: dict[str, list[int]] = {}
    for closer in _CLOSER.finditer(text):
        closers.setdefault(closer[1], []).append(closer.start())
    for tag in _TAG.finditer(text):
        name = tag[1]
        positions = closers.get(name, ())
        number = bisect_left(positions, tag.end())
        if number < len(positions):
            yield name, tag.start(), tag.end(), positions[number], positions[number] + len(f"</{name}>")


# ---------------------------------------------------------------- few-shot examples

_LABEL = re.compile(
    r"^[ \t]{0,8}(?:#{1,4} )?\**"
    r"(?:(Q|Question|Problem|Input|Query)|(?:A(?![.:][^\n]*\n[ \t]{0,8}B[.:])|Answer|Solution|Output|Response))"
    r"(?: ?\d{1,3})?\**[:.]\**(?=\s|$)",
    re.MULTILINE | re.IGNORECASE,
)
"""Labels of questions and answers; "A." before "B." is an option."""
_EMPTY_ANSWER = re.compile(r"\s*(?:let['’]s think step by step\W*)?\Z", re.IGNORECASE)


def _without_examples(text: str) -> tuple[str, int]:
    """The question of a text with labels, and how many labelled questions with answers precede it.

    The answer to the last question must be missing: "Input: … Output: …" in a programming task is part of the task.
    """
    if ":" not in text:
        return text, 0
    labels = list(_LABEL.finditer(text))
    unanswered = bool(labels) and not labels[-1][1] and _EMPTY_ANSWER.match(text, labels[-1].end()) is not None
    if unanswered:
        text = text[: labels.pop().start()]
    start = 0
    examples = 0
    if labels and labels[-1][1]:
        examples = sum(bool(before[1]) and not after[1] for before, after in pairwise(labels))
        start = labels[-1].end()
    elif labels and unanswered:  # only answers have labels: the question is the next paragraph
        start = text.find("\n\n", labels[-1].end())
        examples = len(labels) if start != -1 else 0
    return text[start if examples else 0 :].strip(), examples


def _without_label(text: str) -> str:
    """What follows "Question:", unless a passage or another part of the question precedes it."""
    label = next((found for found in _LABEL.finditer(text) if found[1]), None)
    if label is None or label[1].lower() == "input" or not _PREAMBLE.fullmatch(text, 0, label.start()):
        return text
    if "#" in label[0]:
        text = _FORMAT_SECTION.sub("", text)
    return text[label.end() :].strip()


_PREAMBLE = re.compile(
    r"(?=.{0,300}\Z)"
    r"(?:\s*(?:context: none)?\s*|.*\b(?:answers?|questions?|choose|select|pick|choices|options)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
"""A few words about the question, such as "Pick the right answer."."""
_FORMAT_SECTION = re.compile(
    r"(?<=\n)#{1,4} (?:instructions?|(?:answer |output |response )?format)\b.*?(?=\n#{1,4} |\Z)",
    re.IGNORECASE | re.DOTALL,
)


# ---------------------------------------------------------------- options

_OPTION = re.compile(
    r"^[ \t]{0,8}(?:[-*] )?(?:[(\[]([A-Za-z]|\d{1,2})[)\]][.:]?|([A-Za-z]|\d{1,2})[).:])[ \t]+(?=\S)", re.MULTILINE
)
_OPTION_INLINE = re.compile(r"(?<![\w({])(?:\(([A-Z])\)|([A-Z])\))[ \t]*(?=[^\s)])")
_LISTED = re.compile(r"^[ \t]{0,8}[-*•][ \t]+(?=\S)", re.MULTILINE)
_OPTIONS_HEADING = re.compile(
    r"(?:^|(?<=[\s.?!]))(?:#{1,4} )?(?:the )?(?:answer )?(?:options|choices)(?: are)?:[ \t]*\n?", re.IGNORECASE
)
_ASKS_TO_CHOOSE = re.compile(r"\?|\b(?:which|choose|select|pick)\b|_\s*$", re.IGNORECASE)
_MAX_OPTION = 600
"""Characters of the longest option."""


def _without_options(text: str) -> tuple[str, tuple[str, ...]]:
    """A question without its options, and the beginnings of these."""
    headings = list(_OPTIONS_HEADING.finditer(text)) if ":" in text else []
    runs = []
    if "\n" in text:
        runs.append(_last_run(_OPTION.finditer(text)))
    if headings:
        runs.append(list(_LISTED.finditer(text, headings[-1].start())))
    if ")" in text:
        runs.append(_last_run(_OPTION_INLINE.finditer(text)))
    for run in runs:
        if len(run) < 2:
            continue
        start = run[0].start()
        line_end = text.find("\n", run[-1].end())
        end = len(text) if line_end == -1 else line_end
        ends = [*(match.start() for match in run[1:]), end]
        options = [text[match.end() : stop].strip(" \t\n;,") for match, stop in zip(run, ends, strict=True)]
        before = [match for match in headings if match.end() <= start]
        heading = next((match for match in before if not _NOT_SPACE.search(text, match.end(), start)), None)
        if max(map(len, options)) <= _MAX_OPTION and (heading or _are_options(run, text[:start])):
            rest = f"{text[: heading.start() if heading else start].rstrip()}\n{text[end:].lstrip()}"
            return rest.strip(), tuple(option[:80] for option in options)
    return text, ()


def _are_options(run: list[re.Match[str]], before: str) -> bool:
    """Whether a list without a heading is one of options: numbered steps or demands are not."""
    label = run[0][0].strip("([)]. \t:")
    asked = _ASKS_TO_CHOOSE.search(before)
    return asked is not None if not label.isupper() else asked is not None or len(run) > 2


def _last_run(matches: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    """The last of the matches that are labelled A, B, C … or 1, 2, 3 …"""
    run: list[re.Match[str]] = []
    for match in matches:
        label = match[1] or match[2]
        if run and label == _following(run[-1][1] or run[-1][2]):
            run.append(match)
        elif label in ("A", "a", "1"):
            run = [match]
    return run


def _following(label: str) -> str:
    return str(int(label) + 1) if label.isdigit() else chr(ord(label) + 1)


# ---------------------------------------------------------------- demands on the form of the answer

_SENTENCE_BEGIN = re.compile(r"(?:[.!?:)\]\"'] |\n)[ \t]{0,8}")
_UNTIL = r"[^\n]{0,300}?(?:[.!](?=\s|$)|$)"
_ANSWER = (
    r"(?:(?:final|correct|numerical|numeric|letter) ){0,3}(?:answer|response|reply|result|solution|output|choice)s?"
)
_FORMS = (
    rf"(?:end|finish|conclude|begin|start) (?:your|the) {_ANSWER} (?:with|by)\b",
    r"(?:end|finish) with (?:[\"'`“]|the (?:line|words?) )?(?:final )?answer",
    rf"(?:put|write|give|place|enclose|present|state|provide|express|report|box) (?:your|the) {_ANSWER}\b"
    r"[^\n.]{0,40}(?:\b(?:in|within|inside|as|after|on|using|only|boxed|with|between)\b|:)",
    rf"(?:format|return|output|structure) (?:your|the) {_ANSWER} (?:as|in|like)\b",
    r"(?:let's |let us )?(?:think|reason|work|solve (?:it|this|the problem))(?: through it| carefully)?"
    r" ?step[- ]by[- ]step",
    r"show (?:all )?(?:your|the) (?:work|working|steps|reasoning)\b",
    r"(?:do not |don't )?explain your (?:reasoning|answer)\b",
    rf"the (?:last|final) line of (?:your|the) {_ANSWER}\b",
    rf"(?:your|the) {_ANSWER} (?:should|must|has to|needs to) "
    r"(?:be (?:an?|one|the|either|in|given|just|only|exactly)|end with|include)\b",
    rf"keep (?:your|the) (?:{_ANSWER}|explanation)\b",
    r"(?:the )?following (?:is|are) (?:a )?multiple[- ]choice questions?\b",
    r"you are an? (?:[\w-]{1,20} ){0,4}(?:expert|assistant)\b",
    r"(?:choose|select|pick)(?: only)? (?:the|one|exactly one)(?: of the)?(?: single)? ?"
    r"(?:correct|best|right|most likely|most appropriate)? ?(?:answer|option|choice|letter)s?\b",
    r"(?:output|return|respond with|reply with|write|give|provide|print)(?: me)? (?:only|just|nothing but) "
    r"(?:the|an?|your|one|valid)\b",
    r"only (?:output|return|respond|reply|answer|write|give|provide|print)\b",
    r"(?:no|do not (?:include|provide|give)|don't include|without) (?:any )?(?:further |other |extra )?"
    r"(?:explanation|explanations|reasoning|text|commentary)\b",
    r"(?:use|return|respond in|reply in|output) (?:valid |a )?json\b",
    r"(?:just|simply) (?:the|give|say|answer)(?: me)? (?:the )?(?:letter|number|word|answer|name)\b",
    r"(?:yes or no|true or false)[?.!]?(?=\s*$)",
    r"(?:answer|respond|reply)(?: (?:the|this) (?:following )?(?:multiple[- ]choice )?(?:question|problem)s?)?,? "
    r"(?:only |just |directly )?"
    r"(?:with|by|in the form|in json|in one|in a single|as json|only|yes|true|the letter)\b",
)
_INTRODUCTION = (  # Answer the following question:
    r"(?:read|answer|solve|consider)(?: carefully)? the "
    r"(?:following(?: [\w-]{1,20}){0,4} (?:question|problem)|(?:question|problem) below)s?\b"
    r"[^\n:.]{0,200}(?:[:.]|$)"
)
_DEMAND = re.compile(
    r"(?:please,? |remember to |(?:be|make) sure to )?(?:and )?"
    rf"(?:(?:{'|'.join(_FORMS)}){_UNTIL}|{_INTRODUCTION})",
    re.IGNORECASE | re.MULTILINE,
)
_DEMANDS_LENGTH = 2_000
"""Characters at the beginning and at the end of a text in which demands are looked for."""


def _without_demands(text: str) -> tuple[str, str]:
    """A question without demands on the form of the answer, and these; nothing if no question is left."""
    demands: list[str] = []
    kept: list[str] = []
    position = 0
    starts = [0, *(match.end() for match in _SENTENCE_BEGIN.finditer(text))]
    for start in starts:
        near = start < _DEMANDS_LENGTH or len(text) - start < _DEMANDS_LENGTH
        if near and position <= start and (found := _DEMAND.match(text, start)):
            kept.append(text[position:start])
            demands.append(found[0].strip())
            position = found.end()
    rest = "".join([*kept, text[position:]]).strip()
    return (rest if any(map(str.isalnum, rest)) else text), " ".join(demands)
