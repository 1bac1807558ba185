"""Forced decoding: log-probabilities of a given text from llama.cpp, by making the model write it.

Its server returns log-probabilities of generated tokens only (ggml-org/llama.cpp, issue 27174). A grammar that
allows one token at each place makes it generate the text. The grammar acts on a copy of the distribution, so the
values are the same as when the model samples this text after a cached prompt. It costs one decoding step a token.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from odar.providers.llamacpp import Chunk, Engine
from odar.types import Token


class Piece(NamedTuple):
    """A token of the model's vocabulary."""

    id: int
    text: str | None
    """None if it is part of a character, for which llama.cpp reports no log-probability."""


class Forced(NamedTuple):
    """The tokens of a text with their log-probabilities."""

    tokens: tuple[Token, ...]
    prompt: int
    """Tokens before it."""
    cached: int


class RefusedError(Exception):
    """The runtime rejected the request; carries its error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


def force(engine: Engine, prompt: Sequence[int], text: str, stop: threading.Event) -> Forced:
    """Make the model write `text` after `prompt`. Call on the engine's thread.

    Raises:
        StoppedError: `stop` was set or the engine closed.
        RefusedError: the runtime refused, for instance because the text does not fit the context.
    """
    pieces = [_piece(entry) for entry in engine.tokenize(text)]
    before = len(prompt)
    if before + len(pieces) > engine.settings.context:  # the runtime would notice only after writing that much
        counts = {"n_prompt_tokens": before + len(pieces), "n_ctx": engine.settings.context}
        raise RefusedError({"type": "exceed_context_size_error", "code": 400, **counts})
    tokens: list[Token] = []
    first: Mapping[str, Any] = {}
    for start, end in runs(pieces):
        # Tokens between two runs are parts of characters and have no log-probability.
        tokens += [Token("", None)] * (start - len(tokens))
        ids = [piece.id for piece in pieces[:end]]
        scored, usage = _write(engine, [*prompt, *ids[:start]], ids[start:], stop)
        tokens += [Token(piece.text or "", value) for piece, value in zip(pieces[start:end], scored, strict=True)]
        first = first or usage
    tokens += [Token("", None)] * (len(pieces) - len(tokens))
    details = first.get("prompt_tokens_details") or {}
    return Forced(tuple(tokens), before, int(details.get("cached_tokens", 0)))


def runs(pieces: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of tokens that are whole characters.

    >>> list(runs([Piece(1, "a"), Piece(2, "b"), Piece(3, None), Piece(4, None), Piece(5, "c")]))
    [(0, 2), (4, 5)]
    """
    start = None
    for place, piece in enumerate((*pieces, Piece(-1, None))):
        if piece.text is not None and start is None:
            start = place
        elif piece.text is None and start is not None:
            yield start, place
            start = None


def _write(
    engine: Engine, prompt: list[int], ids: Sequence[int], stop: threading.Event
) -> tuple[list[float], Mapping[str, Any]]:
    """The log-probabilities of these tokens after this prompt, and what the runtime counted."""
    found: list[tuple[int, float]] = []
    usage: Mapping[str, Any] = {}

    def on_chunk(chunk: Chunk) -> None:
        nonlocal usage
        if "error" in chunk:
            raise RefusedError(chunk["error"])
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            entries = (choice.get("logprobs") or {}).get("content") or ()
            found.extend((entry["id"], entry["logprob"]) for entry in entries)

    body = {
        "prompt": prompt,
        "grammar": "root ::= " + " ".join(f"<[{number}]>" for number in ids),
        "max_tokens": len(ids),
        "temperature": 0.0,
        "samplers": ["temperature"],
        "logprobs": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "cache_prompt": True,
    }
    engine.generate(body, on_chunk, stop)
    if [number for number, _ in found] != list(ids):
        raise RefusedError({"message": "other tokens were written than the text has", "code": 500})
    return [value for _, value in found], usage


def _piece(entry: Mapping[str, Any]) -> Piece:
    """A token as /tokenize lists it: a part of a character comes as numbers instead of text."""
    text = entry["piece"]
    return Piece(int(entry["id"]), text if isinstance(text, str) else None)
