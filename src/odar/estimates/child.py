"""The process beside: reads queries, writes their 24 features. `Beside` runs it, as `python -m`.

A query is its size in bytes and whether it has an image (`HEAD`), then its text in UTF-8; its features are 24
doubles. Answers come in the order of the questions. The end of the input, that of whoever asks, ends it.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import struct
import sys
from typing import BinaryIO

from odar.conversation import Image
from odar.difficulty.features import FEATURES, FeatureExtractor
from odar.types import Query

HEAD = struct.Struct("<I?")
ROW = struct.Struct(f"<{len(FEATURES)}d")
_AN_IMAGE = (Image("image/png", b""),)
"""The features ask no more than whether there is one."""


def pack(query: Query) -> bytes:
    """A query as `read` reads it."""
    text = query.text.encode("utf-8", "surrogatepass")
    return HEAD.pack(len(text), bool(query.images)) + text


def read(source: BinaryIO) -> Query | None:
    """The next query; None at the end, and where the asker died in the middle of one.

    >>> from io import BytesIO
    >>> source = BytesIO(pack(Query("Why?")) + pack(Query("How?"))[:-1])
    >>> read(source).text, read(source)
    ('Why?', None)
    """
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, has_image = HEAD.unpack(head)
    text = source.read(size)
    return None if len(text) < size else Query(text.decode("utf-8", "surrogatepass"), _AN_IMAGE * has_image)


def answer(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer queries until there are no more."""
    extractor = FeatureExtractor()
    extractor.phi(Query("Ready?"))  # loads the parser
    gc.collect()
    gc.freeze()  # what is loaded stays: no collection need look at it again
    while (query := read(source)) is not None:
        sink.write(extractor.phi(query).astype("<f8").tobytes())
        sink.flush()


if __name__ == "__main__":
    # both reach the whole group; this one must live until the last request is drained
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        answer(sys.stdin.buffer, sys.stdout.buffer)
