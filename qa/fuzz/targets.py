"""What atheris drives, one function a parser: bytes in, and nothing may be raised. Needs nothing but odar itself.

Each also states what must be true of the result, so that a wrong answer is found as well as an exception.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

from odar.policy.answers import extract_answer, extract_judgment, find_answer
from odar.policy.equivalence import canonical_form, equivalent, group_answers
from odar.policy.quantities import concluding_number
from odar.providers.anthropic import StreamedMessage
from odar.providers.openai import StreamedReply, ThinkingFilter
from odar.providers.response import SseReader


def sse(data: bytes) -> None:
    """Server-sent events: the same ones however the bytes are cut."""
    cuts, stream = _cuts(data)
    whole, pieces, bytewise = SseReader(), SseReader(), SseReader()
    expected = whole.feed(stream)
    assert _feed(pieces, [stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])]) == expected
    assert _feed(bytewise, [bytes([byte]) for byte in stream]) == expected
    assert whole.done == pieces.done == bytewise.done
    assert b"[DONE]" not in expected


def stream(data: bytes) -> None:
    """A whole stream, down to the reply: an answer, or one of the errors that mean a malformed one."""
    _, rest = _cuts(data)
    for collector in (StreamedReply(), StreamedMessage()):
        try:
            for event in SseReader().feed(rest):
                payload = json.loads(event)
                if isinstance(payload, dict):
                    collector.feed(payload)
            reply = collector.reply()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            continue  # what `Response` turns into a ProviderProtocolError
        assert all(isinstance(completion.text, str) for completion in reply.completions)


def thinking(data: bytes) -> None:
    """The answer after a block of thoughts: the same however the text is cut."""
    cuts, rest = _cuts(data)
    text = rest.decode("utf-8", "replace")
    whole, pieces = ThinkingFilter(), ThinkingFilter()
    expected = whole.feed(text) + whole.flush()
    edges = [0, *(min(cut, len(text)) for cut in cuts), len(text)]
    found = "".join(pieces.feed(text[a:b]) for a, b in pairwise(edges)) + pieces.flush()
    assert found == expected, (found, expected)
    assert whole.seen == pieces.seen


def answer(data: bytes) -> None:
    """Final answers: found in any text, part of it, and equal to themselves."""
    text = data.decode("utf-8", "replace")
    found = find_answer(text)
    assert found is None or found in text, (found, text)
    assert extract_answer(text) == (text.strip() if found is None else found)
    assert extract_judgment(text) in (True, False, None)
    said = concluding_number(text)
    assert said is None or said in text
    assert equivalent(text, text)


def equivalence(data: bytes) -> None:
    """Two answers: the same form means the same group, whichever comes first."""
    half = len(data) // 2
    one, two = data[:half].decode("utf-8", "replace"), data[half:].decode("utf-8", "replace")
    same = canonical_form(one) == canonical_form(two)
    assert equivalent(one, two) == equivalent(two, one)
    first, second = group_answers([one, two])
    assert first == second or not same


TARGETS: dict[str, Callable[[bytes], None]] = {
    "sse": sse,
    "stream": stream,
    "thinking": thinking,
    "answer": answer,
    "equivalence": equivalence,
}
SEEDS: dict[str, list[bytes]] = {
    "sse": [b"\x02\x05\x09data: one\r\n\r\nevent: x\ndata: two\n\ndata: [DONE]\n\n", b"\x00: c\r\rdata\r\n\r\n"],
    "stream": [
        b'\x00data: {"choices": [{"index": 0, "delta": {"content": "4"}, "logprobs": {"content": [{"token": "4", '
        b'"logprob": -0.1, "bytes": [52]}]}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}\n\n',
        b'\x00data: {"type": "message_start", "message": {"usage": {"input_tokens": 1}}}\n\n'
        b'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "4"}}\n\n',
    ],
    "thinking": [b"\x02\x03\x0a<think>hm</think>\n4", b"\x00 <think>a<think></think></think>4"],
    "answer": [
        b"2 + 2 = 4.\n**Answer:** 4",
        b"so \\boxed{\\frac{1}{2}}",
        b"#### 42",
        b"Judgment: INCORRECT\nAnswer: <5>",
    ],
    "equivalence": [b"1,000 1000.0", b"3/4 km0.75 km", b"\\frac{1}{2}0.5", b"(a) x(A)", b"1 May 2020May 1, 2020"],
}

WORDS: dict[str, list[bytes]] = {
    "sse": [b"data", b":", b" ", b"\n", b"\r", b"event", b"[DONE]", b"\xef\xbb\xbf", b"x", b"\xff"],
    "stream": [b"data: ", b'{"choices":[', b"{", b"}", b"]", b'"delta":', b'"content":', b'"4"', b"\n\n", b"[DONE]", b"1e999"],
    "thinking": [b"<think>", b"</think>", b"<thi", b"nk>", b" ", b"\n", b"4"],
    "answer": [b"Answer:", b"**", b"\n", b"\\boxed{", b"}", b"####", b"the answer is ", b"```", b"<", b">", b"4", b"Judgment: "],
    "equivalence": [b"1", b"000", b",", b".", b"/", b"^", b"\\frac", b"{", b"}", b"km", b"%", b"$", b"-", b"e", b" ", b"(a)"],
}  # fmt: skip
"""Pieces that inputs are put together from."""


def _cuts(data: bytes) -> tuple[list[int], bytes]:
    """The first bytes say where to cut the others."""
    count = data[0] % 8 if data else 0
    rest = data[1 + count :]
    return sorted(min(each, len(rest)) for each in data[1 : 1 + count]), rest


def _feed(reader: SseReader, chunks: list[bytes]) -> list[bytes]:
    return [event for chunk in chunks for event in reader.feed(chunk)]
