from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.providers.response import Event, SseReader

STREAM = (
    ": comment\r\n\r\nevent: start\r\ndata: one\r\n\r\ndata: zwei: 😀\ndata:  drei\n\n"
    "id: 7\nretry: 10\ndata\n\nevent: lonely\n\ndata: vier é\r\rdata: [DONE]\n\ndata: after\n\n"
).encode()
EVENTS = [
    Event("start", "one"),
    Event("message", "zwei: 😀\n drei"),
    Event("message", ""),
    Event("message", "vier é"),
]


def read(chunks: list[bytes]) -> tuple[list[Event], bool]:
    reader = SseReader()
    return [event for chunk in chunks for event in reader.feed(chunk)], reader.done


def test_a_whole_stream_at_once() -> None:
    assert read([STREAM]) == (EVENTS, True)


def test_a_byte_at_a_time() -> None:
    assert read([bytes([byte]) for byte in STREAM]) == (EVENTS, True)


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_chunking_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == (EVENTS, True)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.data(),
)
def test_what_is_written_is_read(texts: list[str], newline: str, data: st.DataObject) -> None:
    stream = "".join(f"data: {text}{newline}{newline}" for text in texts).encode()
    cut = data.draw(st.integers(0, len(stream)))
    expected = [Event("message", text) for text in texts if text != "[DONE]"]
    assert read([stream[:cut], stream[cut:]])[0] == expected


@given(st.lists(st.binary()))
def test_garbage_never_raises(chunks: list[bytes]) -> None:
    read(chunks)


@pytest.mark.parametrize("unfinished", [b"data: half", b"data: half\n"])
def test_an_event_that_was_cut_off_is_no_event(unfinished: bytes) -> None:
    assert read([unfinished]) == ([], False)


def test_an_event_is_there_as_soon_as_its_blank_line_is_even_with_cr_only() -> None:
    assert SseReader().feed(b"data: a\r\r") == [Event("message", "a")]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_byte_order_mark_is_allowed_at_the_beginning_and_only_there(size: int) -> None:
    stream = "\ufeffdata: a\n\n\ufeffdata: b\n\n".encode()
    assert read([stream[i : i + size] for i in range(0, len(stream), size)])[0] == [Event("message", "a")]
