"""Text as the features see it: cleaned, with LaTeX masked, cut into words (SPEC 2.2)."""

from __future__ import annotations

import re

PLACEHOLDER = "formula"
"""What a LaTeX block becomes before readability and parsing: an ordinary noun, so that syntax survives."""

_SURROGATES = re.compile("[\ud800-\udfff]")

# Pandoc's rule for inline maths: no blank after the opening "$" nor before the closing one, and no digit
# after the closing one. "$5 and $7" is money and stays.
_LATEX_BLOCK = re.compile(
    r"\$\$.{1,4000}?\$\$"
    r"|\\\[.{1,4000}?\\\]"
    r"|\\\(.{1,4000}?\\\)"
    r"|\\begin\{(\w{1,20}\*?)\}.{0,4000}?\\end\{\1\}"
    r"|(?<![\\$])\$(?=[^\s$])[^$\n]{0,400}?(?<![\s\\])\$(?!\d)",
    re.DOTALL,
)
_LATEX_COMMAND = re.compile(r"\\[A-Za-z]+(?:\{[^{}]{0,200}\})*")
_TERM = re.compile(r"[a-z][a-z'+#]*")


def clean(text: str) -> str:
    r"""Lone surrogates become U+FFFD, one for one, so that every tokenizer accepts the text.

    >>> clean("a\ud800b") == "a\ufffdb"
    True
    """
    return _SURROGATES.sub("\ufffd", text)


def mask_latex(text: str) -> str:
    r"""LaTeX blocks and stray commands become a placeholder word.

    >>> mask_latex(r"Solve $x^2=4$ for \alpha.")
    'Solve formula for formula.'
    >>> mask_latex("It costs $5, not $7.")
    'It costs $5, not $7.'
    """
    if "$" in text or "\\" in text:
        text = _LATEX_BLOCK.sub(PLACEHOLDER, text)
        text = _LATEX_COMMAND.sub(PLACEHOLDER, text)
    return text


def has_latex(text: str) -> bool:
    r"""Whether a LaTeX block or command is in the text.

    >>> has_latex(r"\frac{1}{2}"), has_latex("C:/temp"), has_latex("$5 or $6")
    (True, False, False)
    """
    return ("$" in text or "\\" in text) and bool(_LATEX_COMMAND.search(text) or _LATEX_BLOCK.search(text))


def terms(text: str) -> list[str]:
    """The lower-cased word terms that vocabularies and the domain classifier work on.

    >>> terms("Prove Euler's theorem in C++, twice.")
    ['prove', "euler's", 'theorem', 'in', 'c++', 'twice']
    """
    return _TERM.findall(text.lower())
