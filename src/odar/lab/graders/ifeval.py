"""IFEval: checks of its 25 instructions, strict or loose.

Written from the description of the instructions in the paper (Zhou et al. 2023, arXiv 2311.07911).
The language of a response is determined by its script and, if languages share one, by their most common words:
`langdetect` has had no release since 2021, has no wheel, and gives different answers unless its global seed is set.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import chain
from statistics import fmean
from typing import Any

Arguments = Mapping[str, Any]
"""Arguments of an instruction by their published names, including the spelling `section_spliter`."""
Check = Callable[[str, Arguments], bool]
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0300-\u036f\u0900-\u0963\u200c])*")  # vowel signs are not letters in re
_MAX_CHARACTERS = 20_000  # of a text whose language is determined
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|e\.g|i\.e|inc|ltd|co|corp|no|vol|fig|al|cf|p\.s|p\.p\.s|u\.s|u\.k|u\.n|a\.m|p\.m"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mt|rev|gen|col|lt|sgt|capt|approx|dept|est|[a-z]|\d{1,2}|"
)
_OPENING_QUOTES = "\"'([*_“‘"
_CLOSING_QUOTES = "\"')]*_”’"
_END_MARKS = ".!?"


def check_instructions(
    instructions: Sequence[str], arguments: Sequence[Arguments], response: str, *, loose: bool = False
) -> tuple[bool, ...]:
    """Whether a response follows each instruction of a prompt; an empty response follows none.

    Strict checks take the response as it is. Loose checks also try the response without its first line, its last
    line, or both, each with and without asterisks; an instruction is followed if one of these versions follows it.
    Arguments that are None are absent: the hub's file has every argument for every instruction.

    Raises:
        KeyError: an instruction is not one of the 25.
    """
    lines = response.split("\n")
    versions = [response]
    if loose:
        versions += ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
        versions += [version.replace("*", "") for version in versions]
    versions = [version for version in versions if version.strip()]
    given = [{key: value for key, value in (each or {}).items() if value is not None} for each in arguments]
    pairs = [(CHECKS[name], each) for name, each in zip(instructions, given, strict=True)]
    return tuple(any(check(version, each) for version in versions) for check, each in pairs)


def figures(rows: Iterable[Mapping[str, Any]], responses: Iterable[str]) -> dict[str, float]:
    """The four published figures: the shares of followed prompts and instructions, strict and loose.

    `rows` are those of IFEval's file, with `instruction_id_list` and `kwargs`; there is a response for each.
    """
    pairs = list(zip(rows, responses, strict=True))
    found = {}
    for rule in ("strict", "loose"):
        followed = [
            check_instructions(row["instruction_id_list"], row["kwargs"], text, loose=rule == "loose")
            for row, text in pairs
        ]
        found[f"prompt-level {rule}"] = fmean(map(all, followed))
        found[f"instruction-level {rule}"] = fmean(chain.from_iterable(followed))
    return found


def _satisfies(count: int, relation: str | None, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _keyword_frequency(text: str, given: Arguments) -> bool:
    count = len(re.findall(re.escape(given["keyword"].strip()), text, re.IGNORECASE))
    return _satisfies(count, given.get("relation"), given["frequency"])


def _paragraphs(text: str, given: Arguments) -> bool:
    """*** separates the paragraphs, none of which is empty except at either end."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1]
    return all(inner) and sum(map(bool, parts)) == int(given["num_paragraphs"])


def _nth_paragraph(text: str, given: Arguments) -> bool:
    parts = [part.strip() for part in re.split(r"\n\n", text)]
    nth = given["nth_paragraph"]
    filled = [part for part in parts if part]
    if nth > len(filled) or not parts[nth - 1]:
        return False
    word = re.match(r"[^\s.,?!'\"]*", parts[nth - 1].split()[0].lstrip("'\""))
    return (
        len(filled) == int(given["num_paragraphs"])
        and word is not None
        and word[0].lower() == given["first_word"].lower()
    )


def _postscript(text: str, given: Arguments) -> bool:
    marker = given["postscript_marker"].strip().rstrip(".")
    spaced = r"\.\s?".join(re.escape(letter) for letter in marker.split("."))
    return re.search(spaced, text, re.IGNORECASE) is not None


def _bullets(text: str, given: Arguments) -> bool:
    stars = re.findall(r"^[^\S\n]*\*[^*].*$", text, re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", text, re.MULTILINE)
    return len(stars) + len(dashes) == int(given["num_bullets"])


def _highlights(text: str, given: Arguments) -> bool:
    single = [part for part in re.findall(r"\*([^\n*]*)\*", text) if part.strip()]
    double = [part for part in re.findall(r"\*\*([^\n*]*)\*\*", text) if part.strip()]
    return len(single) + len(double) >= int(given["num_highlights"])


def _json(text: str, _: Arguments) -> bool:
    bare = re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE).strip()
    try:
        json.loads(bare)
    except (ValueError, RecursionError):
        return False
    return True


def _two_responses(text: str, _: Arguments) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


def _quoted(text: str, _: Arguments) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare.startswith('"') and bare.endswith('"')


def _capital_words(text: str, given: Arguments) -> bool:
    words = re.findall(r"\w+(?:[-/.&]\w+)*", text)
    return _satisfies(sum(map(str.isupper, words)), given.get("capital_relation"), given["capital_frequency"])


CHECKS: dict[str, Check] = {
    "keywords:existence": lambda text, given: all(
        re.search(re.escape(word), text, re.IGNORECASE) for word in given["keywords"]
    ),
    "keywords:frequency": _keyword_frequency,
    "keywords:forbidden_words": lambda text, given: (
        not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in given["forbidden_words"])
    ),
    "keywords:letter_frequency": lambda text, given: _satisfies(
        text.lower().count(given["letter"].lower()), given.get("let_relation"), given["let_frequency"]
    ),
    "language:response_language": lambda text, given: language(text) in (given["language"], None),
    "length_constraints:number_sentences": lambda text, given: _satisfies(
        count_sentences(text), given.get("relation"), given["num_sentences"]
    ),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda text, given: _satisfies(
        len(re.findall(r"\w+", text)), given.get("relation"), given["num_words"]
    ),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "detectable_content:number_placeholders": lambda text, given: (
        len(re.findall(r"\[[^\[\]\n]*\]", text)) >= int(given["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": lambda text, _: any(
        f"My answer is {word}." in text for word in ("yes", "no", "maybe")
    ),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": lambda text, given: (
        len(re.findall(rf"{re.escape(given['section_spliter'].strip())}\s?\d+\s?", text))
        >= int(given["num_sections"])
    ),
    "detectable_format:json_format": _json,
    "detectable_format:title": lambda text, _: any(
        line[line.find("<<") : line.rfind(">>") + 2].strip("<> ") for line in text.split("\n") if "<<" in line
    ),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, given: (
        text.strip().lower().startswith(given["prompt_to_repeat"].strip().lower())
    ),
    "startend:end_checker": lambda text, given: (
        text.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower())
    ),
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda text, _: text.isupper() and language(text) == "en",
    "change_case:english_lowercase": lambda text, _: text.islower() and language(text) == "en",
    "punctuation:no_comma": lambda text, _: "," not in text,
}
"""The 25 instructions by their published names."""


def language(text: str) -> str | None:
    """The ISO 639-1 code of the main language; None if the text has no letters."""
    text = unicodedata.normalize("NFC", text[:_MAX_CHARACTERS])
    scripts = Counter(_script(char) for char in text if char.isalpha())
    if not scripts:
        return None
    if scripts["HIRAGANA"] + scripts["KATAKANA"]:
        scripts["HIRAGANA"] += scripts.pop("CJK", 0)  # Japanese is written with Han characters too
    script = scripts.most_common(1)[0][0]
    words = Counter(_WORD.findall(text.lower()))
    known = _languages().get(script, {script.lower(): frozenset()})
    return max(known, key=lambda code: sum(words[word] for word in known[code]))


@cache
def _languages() -> dict[str, dict[str, frozenset[str]]]:
    text = resources.files("odar.lab.graders").joinpath("languages.toml").read_text(encoding="utf-8")
    return {
        script: {code: frozenset(words.split()) for code, words in table.items()}
        for script, table in tomllib.loads(text).items()
    }


def _script(char: str) -> str:
    """The first word of a character's Unicode name, which for letters is their script."""
    return unicodedata.name(char, "UNKNOWN").split()[0].partition("-")[0]


def count_sentences(text: str) -> int:
    """A sentence ends with . ! or ?, optional quotes or brackets, white space, and no lower-case letter after it.
    The full stop of an abbreviation (`Dr.`, `e.g.`), of an initial (`J. Smith`) or of a list number (`1.`) does not
    end a sentence; the end of the text does."""
    words = text.split()
    ends = [place for place, word in enumerate(words) if _ends_sentence(word, words[place + 1 : place + 2])]
    after = words[ends[-1] + 1 :] if ends else words
    return len(ends) + any(char.isalnum() for word in after for char in word)


def _ends_sentence(word: str, following: list[str]) -> bool:
    core = word.rstrip(_CLOSING_QUOTES)
    stem = core.rstrip(_END_MARKS)
    if stem == core:
        return False
    if not following:
        return True
    if following[0].lstrip(_OPENING_QUOTES)[:1].islower():
        return False
    return core[len(stem) :] != "." or _ABBREVIATION.fullmatch(stem.lstrip(_OPENING_QUOTES).lower()) is None
