from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.providers.response import SseReader

STREAM = (
    ": comment\r\n\r\nevent: start\r\ndata: one\r\n\r\ndata: zwei: 😀\ndata:  drei\n\n"
    "id: 7\nretry: 10\ndata:\n\nevent: lonely\n\ndata: vier é\r\n\r\ndata: [DONE]\n\ndata: after\n\n"
).encode()
EVENTS = [event.encode() for event in ("one", "zwei: 😀\n drei", "", "vier é")]


def read(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    reader = SseReader()
    return [event for chunk in chunks for event in reader.feed(chunk)], reader.done


def test_single_bytes_give_the_same_events() -> None:
    assert read([bytes([byte]) for byte in STREAM]) == (EVENTS, True)


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_chunking_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in itertools.pairwise(edges)]) == (EVENTS, True)


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_any_events_are_read(texts: list[str], newline: str, data: st.DataObject) -> None:
    stream = "".join(f"data: {text}{newline}{newline}" for text in texts).encode()
    cut = data.draw(st.integers(0, len(stream)))
    expected = [text.encode() for text in texts if text != "[DONE]"]
    assert read([stream[:cut], stream[cut:]])[0] == expected


@given(st.lists(st.binary()))
def test_garbage_never_raises(chunks: list[bytes]) -> None:
    read(chunks)


@pytest.mark.parametrize("unfinished", [b"data: half", b"data: half\n"])
def test_an_incomplete_event_is_not_returned(unfinished: bytes) -> None:
    assert read([unfinished]) == ([], False)
