"""Everything that reads the text of a client or a model server takes time proportional to its length, at most.

Regular expressions have their own test (test_patterns.py). These functions search, split and compare texts with code.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from odar.conversation import ToolCall
from odar.difficulty.base import open_estimator
from odar.difficulty.text import mask_latex
from odar.policy.answers import extract_judgment, find_answer
from odar.policy.equivalence import canonical_json, group_answers
from odar.policy.experts import route_expert
from odar.policy.kinds import request_kind
from odar.policy.quantities import concluding_number
from odar.policy.signals import answer_kind, answer_logprob
from odar.policy.similarity import asks_for_choice, is_free_text, lexical_similarity
from odar.providers.anthropic import StreamedMessage
from odar.providers.base import Delta
from odar.providers.openai import StreamedReply, ThinkingFilter
from odar.question import core_question
from odar.serving.protocols.chat import ChatWriter
from odar.serving.protocols.chat_request import ChatRequest
from odar.serving.protocols.messages import MessageWriter
from odar.serving.protocols.responses import ResponseWriter
from odar.types import Query, Token

SIZES = (2_000, 16_000, 128_000)
SLACK = 3
HARMLESS_S = 0.1

RUNS = (
    *" \n1a(\"'`\\$*-<>",
    "a ",
    "<task>\n",
    "</task>\n",
    "Answer:\n",
    "Answer: <response>\n",
    "\\boxed{",
    "####\n",
    "the answer is 4. ",
    "Q: a\nA: b\n",
    "options:\n",
    "A) x\n",
    "(A) ",
    "- a\n",
    "```\n",
    "CORRECT ",
    "$x$ ",
    "\\begin{a}",
    "$$",
    "<think>",
    "[1,",
    "{}",
)


def numbered(form: str) -> Callable[[int], str]:
    """A text of parts that all differ."""
    return lambda size: "".join(form.format(number) for number in range(size // len(form)))


TEXTS: dict[str, Callable[[int], str]] = {
    **{run: lambda size, run=run: run * (size // len(run)) for run in RUNS},
    "tags": numbered("<a{0}>\n"),
    "tags that are closed at the end": lambda size: numbered("<a{0}>\n")(size) + numbered("</a{0}>\n")(size),
    "one tag that is closed at the end": lambda size: "<task>\n" * (size // 7) + "x</task>",
    "added tags that are closed at the end": lambda size: "<context>\n" * (size // 10) + "</context> hi",
    "headings before options": lambda size: "options:\n" * (size // 9) + "x?\nA) x\nB) y",
    "words": numbered("w{0} "),
    "environments": numbered("\\begin{{a{0}}}"),
    "fields": lambda size: "{" + numbered('"k{0}":1.0,')(size) + '"k":1}',
    "boxes": lambda size: "\\boxed{" * (size // 8) + "}" * (size // 8),
    "lines": numbered("{0}. item\n"),
}


def read_thinking(text: str) -> None:
    """A model thinks this text, and the server sends it in small pieces."""
    thinking = ThinkingFilter()
    thinking.feed("<think>")
    for start in range(0, len(text), 16):
        thinking.feed(text[start : start + 16])


def find_tokens(text: str) -> None:
    tokens = [Token(each, -0.1) for each in text]
    answer_logprob(tokens, text[: len(text) // 2])


ESTIMATOR = open_estimator("learned")
ESTIMATOR.estimate(Query("Ready?"))
READERS: dict[str, Callable[[str], Any]] = {
    "core question": lambda text: core_question(Query(text)),
    "kind": lambda text: request_kind(Query(text)),
    "expert": lambda text: route_expert(Query(text)),
    "difficulty": lambda text: ESTIMATOR.estimate(Query(text)),
    "answer": find_answer,
    "judgment": extract_judgment,
    "concluding number": concluding_number,
    "form": is_free_text,
    "choice": asks_for_choice,
    "kind of answer": lambda text: answer_kind(text, text[-300:]),
    "tokens of the answer": find_tokens,
    "JSON": canonical_json,
    "groups": lambda text: group_answers([text, text[1:], text + "x", "4"]),
    "similarity": lambda text: lexical_similarity([text, text[3:], text + " b"]),
    "LaTeX": mask_latex,
    "thinking": read_thinking,
}


def is_slow(read: Callable[[Any], Any], make: Callable[[int], Any], sizes: Sequence[int] = SIZES) -> bool:
    """Whether the processor time grows faster than the text between two sizes, in each of four measurements.

    Like `timeit`, without the cyclic collector: its full runs cost what all objects of the test process make up.
    """

    def seconds(text: Any) -> float:
        gc.disable()
        try:
            began = time.thread_time()
            read(text)
            return time.thread_time() - began
        finally:
            gc.enable()

    for smaller, size in pairwise(sizes):
        short = make(smaller)
        long = make(size)
        for _ in range(4):  # a busy machine disturbs single measurements
            limit = max(SLACK * seconds(short) * size / smaller, HARMLESS_S)
            if seconds(long) <= limit:
                break
        else:
            return True
    return False


@pytest.mark.parametrize("name", READERS)
def test_time_grows_with_the_text(name):
    assert [text for text, make in TEXTS.items() if is_slow(READERS[name], make)] == []


def test_quadratic_time_is_found():
    def closers(text: str) -> None:  # as `core_question` did
        for tag in text.split():
            text.find(tag.replace("<", "</"))

    assert is_slow(closers, TEXTS["tags"])


# ── streams of many small pieces ────────────────────────────────────────────────────────────────────────────

WORDS = "word " * 80
PIECES = (500, 4_000, 32_000)


def feed_openai(delta: dict[str, Any], pieces: int) -> None:
    reply = StreamedReply()
    for _ in range(pieces):
        reply.feed({"choices": [{"index": 0, "delta": delta}]})
    reply.reply()


def feed_anthropic(
    block: dict[str, Any], delta: dict[str, Any], pieces: int, each_in_its_block: bool = False
) -> None:
    reply = StreamedMessage()
    reply.feed({"type": "message_start", "message": {}})
    for number in range(pieces):
        if not number or each_in_its_block:
            reply.feed({"type": "content_block_start", "content_block": block})
        reply.feed({"type": "content_block_delta", "delta": delta})
    reply.reply()


def write_stream(kind: Any, make: Callable[[int], Delta], pieces: int) -> None:
    stream = kind(ChatRequest("m", Query("hi")), "t")
    stream.begin()
    for number in range(pieces):
        stream.piece(make(number))


TOOL = {"type": "tool_use", "id": "a", "name": "f"}
JSON_DELTA = {"type": "input_json_delta", "partial_json": "{}"}
STREAMS: dict[str, Callable[[int], None]] = {
    "blank text": partial(feed_openai, {"content": " " * 400}),
    "text": partial(feed_openai, {"content": WORDS}),
    "reasoning": partial(feed_openai, {"reasoning_content": WORDS}),
    "Anthropic's text": partial(
        feed_anthropic, {"type": "text", "text": ""}, {"type": "text_delta", "text": WORDS}
    ),
    "Anthropic's thinking": partial(
        feed_anthropic, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": WORDS}
    ),
    "Anthropic's input of a tool": partial(feed_anthropic, TOOL, JSON_DELTA),
    "Anthropic's tools": partial(feed_anthropic, TOOL, JSON_DELTA, each_in_its_block=True),
}
for writer in (ChatWriter, MessageWriter, ResponseWriter):
    STREAMS |= {
        f"{writer.__name__}, text": partial(write_stream, writer, lambda _: Delta(WORDS)),
        f"{writer.__name__}, thinking": partial(write_stream, writer, lambda _: Delta(thinking=WORDS)),
        f"{writer.__name__}, arguments": partial(
            write_stream, writer, lambda _: Delta(tool_calls=((0, ToolCall("a", "f", WORDS)),))
        ),
        f"{writer.__name__}, calls": partial(
            write_stream, writer, lambda number: Delta(tool_calls=((number, ToolCall("a", "f", "{}")),))
        ),
    }


@pytest.mark.parametrize("name", STREAMS)
def test_the_time_of_a_stream_grows_with_its_pieces(name):
    assert not is_slow(STREAMS[name], lambda pieces: pieces, PIECES)
