"""Short answers: exact match, F1, edit distances, yes or no, lettered options, BIG-Bench Hard, ARC-AGI grids."""

from __future__ import annotations

import difflib
import itertools
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_UNSPLIT = {"yes", "no", "noanswer"}
_MAX_SENTENCES_RATIO = 5
_YES_NO = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_YES = {"yes", "true"}
_ANSWER_PREFIX = re.compile(r"the (?:final )?answer is:?\s+", re.IGNORECASE)
_LATEX_WRAPPED = re.compile(r"\\?(?:boxed|text|texttt)\{(.*)\}", re.DOTALL)
_BIGBENCH_OPTION = re.compile(r"\(?([a-z])\)(?:[.:]?\s.*)?", re.DOTALL)
Grid = list[list[int]]
GRID_ATTEMPTS = 2
_GRID_ROW = re.compile(r"[ \t]*+\[?(?:\d[ \t,]*+)++\]?,?[ \t]*+")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER_ALONE = re.compile(r"(?:option |choice |answer )?[(\[{]?([A-Za-z])[)\]}]?[.:]?", re.IGNORECASE)
_LETTER_FIRST = re.compile(r"[(\[]([A-Za-z])[)\]][.:,]?\s|([A-Z])[.):,]\s|([A-Z]) (?:is|because|since|[-–—]) ")
_LETTER_INSIDE = re.compile(r"[(\[]([A-Z])[)\]]|\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer)(?: is)?:? [(\[]?([A-Z])\b(?!')")
_MARKUP = re.compile(r"[*_`$]|\\(?:text|textbf|boxed|mathrm)\{([^{}]*)\}")


def normalize(text: str) -> str:
    """The text in lower case, without punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(golds: Sequence[str], answer: str) -> float:
    """1 if the answer is one of the golds except for case, articles, ASCII punctuation and white space."""
    return float(any(normalize(gold) == normalize(answer) for gold in golds))


def f1(golds: Sequence[str], answer: str) -> float:
    """The overlap of words with the nearest gold: the harmonic mean of precision and recall.

    Words count as often as they occur. `yes`, `no` and `noanswer` match as a whole or not at all, as in HotpotQA's
    own script. Two empty answers are equal.
    """
    return max((_f1(normalize(gold), normalize(answer)) for gold in golds), default=0.0)


def _f1(gold: str, answer: str) -> float:
    if gold in _UNSPLIT or answer in _UNSPLIT or not gold or not answer:
        return float(gold == answer)
    wanted = gold.split()
    given = answer.split()
    common = sum((Counter(wanted) & Counter(given)).values())
    return 2 * common / (len(wanted) + len(given))


def rouge_l(golds: Sequence[str], answer: str) -> float:
    """The F-measure of the longest common subsequence of words with the nearest gold (ROUGE-L).

    >>> rouge_l(["the cat sat on the mat"], "the cat was on the mat")
    0.75
    """
    given = normalize(answer).split()
    return max((_rouge_l(normalize(gold).split(), given) for gold in golds), default=0.0)


def _rouge_l(wanted: Sequence[str], given: Sequence[str]) -> float:
    """What is not common is inserted or deleted: a substitution costs as much as both."""
    both = len(wanted) + len(given)
    return (both - levenshtein(wanted, given, substitution=2)) / both if both else 1.0


TEXT_GRADERS = {"exact_match": exact_match, "f1": f1, "rouge_l": rouge_l}
"""Graders by name that compare free text with reference answers."""


def levenshtein(first: Sequence[Hashable], second: Sequence[Hashable], substitution: int = 1) -> int:
    if len(first) < len(second):
        first, second = second, first
    above = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        row = [i]
        for j, b in enumerate(second, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + substitution * (a != b)))
        above = row
    return above[-1]


def similarity(gold: Sequence[Hashable], given: Sequence[Hashable]) -> float:
    """One minus the edit distance divided by the longer length."""
    longest = max(len(gold), len(given))
    return 1.0 - levenshtein(gold, given) / longest if longest else 1.0


def order_similarity(gold: str, answer: str) -> float:
    """The similarity of the order of sentences (LiveBench's plot unscrambling).

    Every gold sentence is matched with the nearest given one, so that small changes of wording do not matter.
    """
    wanted, given = ([part.strip() for part in text.split(".") if part.strip()] for text in (gold, answer))
    if not wanted or not given:
        return float(wanted == given)
    given = given[: _MAX_SENTENCES_RATIO * len(wanted)]  # limits the time for an endless answer
    places = [given.index(difflib.get_close_matches(sentence, given, n=1, cutoff=0.0)[0]) for sentence in wanted]
    return max(0.0, 1.0 - levenshtein(range(len(wanted)), places) / len(wanted))


def yes_no_match(gold: bool, answer: str) -> float:
    """1 if the answer is yes for a true gold, or no for a false one; `true` is yes and `false` is no.

    A first word that punctuation follows decides (`No, Albany is smaller`). Any other text must not contain both:
    `yes and no` is neither.
    """
    text = answer.strip(" \n\t*_`\"'(")
    if match := _YES_NO.match(text):
        rest = text[match.end() :].lstrip("*_`\"' ")
        if not rest or rest[0] in ".,;:!\n)-–—":
            return float((match[1].lower() in _YES) is gold)
    said = {word.lower() in _YES for word in _YES_NO.findall(text)}
    return float(said == {gold})


def bigbench(gold: str, answer: str) -> float:
    """1 if the answer equals the target by BBEH's published rules, which include those of BBH.

    The first line after the last "the answer is" counts, in lower case, without LaTeX wrapping, bold marks, outer
    quotes, a closing full stop and the space after commas. Equal are the same text; `a` and `(a)`; equal numbers
    (`90` and `90.0`); texts that differ in apostrophes, in outer square brackets, or in a closing question mark.
    In addition to the published rules, an option may be followed by its text (`(B) the red ball`).
    """
    wanted = gold.strip().lower().replace(", ", ",").strip("\"'")
    return float(_bigbench_equal(_bigbench_prediction(answer), wanted))


def _bigbench_prediction(answer: str) -> str:
    text = _ANSWER_PREFIX.split(answer.strip())[-1].strip()
    text = text.removesuffix(".").strip("$").strip()
    while match := _LATEX_WRAPPED.fullmatch(text):
        text = match[1].strip()
    line = text.lower().replace(", ", ",").replace("**", "").strip().split("\n")[0].strip()
    return line.removesuffix(".").strip("\"'")


def _bigbench_equal(given: str, wanted: str) -> bool:
    if given.replace("'", "") == wanted.replace("'", "") or wanted in (f"({given})", f"[{given}]"):
        return True
    if given in (f"({wanted})", f"[{wanted}]", f"{wanted}?"):
        return True
    if re.fullmatch(r"\([a-z]\)", wanted) and (match := _BIGBENCH_OPTION.fullmatch(given)):
        return match[1] == wanted[1]
    try:
        return float(given) == float(wanted)
    except ValueError:
        return False


def grid_match(gold: Grid, response: str) -> float:
    """1 if one of the two attempts is exactly the gold grid.

    Attempts are the last two grids of the response, so that a model may quote the examples in its reasoning. A grid
    is a JSON list of lists, or rows of digits with or without spaces.

    >>> grid_match([[1, 2], [3, 4]], "First try:\\n1 2\\n3 3\\n\\nSecond try:\\n[[1, 2], [3, 4]]")
    1.0
    """
    return float(gold in find_grids(response)[-GRID_ATTEMPTS:])


def find_grids(text: str) -> list[Grid]:
    """The grids in a text, in order; lines of unequal length are not a grid."""
    text = re.sub(r"\[\s*\[|\]\s*\]", "\n#\n", text)  # JSON lists become lines of digits
    text = re.sub(r"\]\s*(?:,\s*)?\[", "\n", text)
    found: list[Grid] = []
    for whole, part in itertools.groupby(map(_GRID_ROW.fullmatch, text.split("\n")), bool):
        rows = [[int(digit) for digit in re.findall(r"\d", match[0])] for match in part if match]
        if whole and len({len(row) for row in rows}) == 1:
            found.append(rows)
    return found


def format_grid(grid: Sequence[Sequence[int]]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in grid)


def chosen_letter(answer: str, options: Sequence[str]) -> str | None:
    """The letter of the one option that an answer names, by its letter or by its text; None if it names several.

    An answer may be a letter with any markup (`B`, `(b).`, `**B**`, `\\text{B}`), a letter and the option's text, a
    sentence that names one letter only, or the exact text of an option. A bare letter is tried first, then the
    exact text of an option, then a letter at the beginning of a text.

    >>> chosen_letter("The answer is C because it is blue.", ["red", "green", "blue"])
    'C'
    """
    text = _unmarked(answer)
    valid = LETTERS[: len(options)]
    if (match := _LETTER_ALONE.fullmatch(text)) and match[1].upper() in valid:
        return match[1].upper()
    for form in (_unmarked, _plain):
        same = [letter for letter, option in zip(valid, options, strict=False) if form(option) == form(text) != ""]
        if len(same) == 1:
            return same[0]
    if match := _LETTER_FIRST.match(f"{text} "):
        letter = str(next(group for group in match.groups() if group)).upper()
        if letter in valid:
            return None if _named_letters(text[match.end() :]) & set(valid) - {letter} else letter
    named = _named_letters(text) & set(valid)
    if len(named) == 1:
        return named.pop()
    return None if named else _quoted_letter(_plain(text), [_plain(option) for option in options])


def _named_letters(text: str) -> set[str]:
    return {first or second for first, second in _LETTER_INSIDE.findall(text)}


def _quoted_letter(text: str, options: Sequence[str]) -> str | None:
    """The letter of the one option that a text quotes; one inside a longer quoted option does not count."""
    found = [bool(option and re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text)) for option in options]
    quoted = [i for i, is_quoted in enumerate(found) if is_quoted]
    longest = [i for i in quoted if not any(i != j and options[i] in options[j] for j in quoted)]
    return LETTERS[longest[0]] if len(longest) == 1 else None


def _unmarked(text: str) -> str:
    return " ".join(_MARKUP.sub(lambda match: match[1] or "", text).split())


def _plain(text: str) -> str:
    return _unmarked(text).casefold().strip(" .,;:!\"'")
