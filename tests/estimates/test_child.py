"""The process beside: what it reads, what it writes, how it ends."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from odar.conversation import Image
from odar.difficulty.features import FEATURES, phi
from odar.estimates.child import HEAD, ROW, answer, pack, read
from odar.types import Query

PICTURE = Image("image/png", b"...")


@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_what_is_packed_is_read(asked: list[tuple[str, bool]]) -> None:
    queries = [Query(text, (PICTURE,) * image) for text, image in asked]
    source = io.BytesIO(b"".join(map(pack, queries)))
    for query in queries:
        found = read(source)
        assert found is not None
        assert (found.text, len(found.images)) == (query.text, len(query.images))
    assert read(source) is None


def test_lone_surrogates_pass() -> None:
    found = read(io.BytesIO(pack(Query("a\ud800b"))))
    assert found is not None
    assert found.text == "a\ud800b"


@given(st.integers(0, HEAD.size + 3))
def test_half_a_query_is_the_end(length: int) -> None:
    assert read(io.BytesIO(pack(Query("Why?"))[:length])) is None


def test_answers_are_the_features_in_order() -> None:
    queries = [
        Query("Is Paris the capital of France?"),
        Query("", (PICTURE,)),
        Query("Prove that 2 is prime.\nNow."),
    ]
    sink = io.BytesIO()
    answer(io.BytesIO(b"".join(map(pack, queries))), sink)
    rows = list(ROW.iter_unpack(sink.getvalue()))
    assert rows == [tuple(phi(query).tolist()) for query in queries]
    assert rows[1][FEATURES.index("has_image")] == 1.0


def test_the_process_outlives_the_signals_of_a_drain_and_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "odar.estimates.child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in (None, signal.SIGINT, signal.SIGTERM):
            if number is not None:
                os.kill(process.pid, number)
            process.stdin.write(pack(Query("Still there?")))
            process.stdin.flush()
            assert ROW.unpack(process.stdout.read(ROW.size))[1] == 2.0
        process.stdin.close()
        assert process.wait(10) == 0


def test_an_asker_who_is_gone_is_no_error() -> None:
    command = [sys.executable, "-m", "odar.estimates.child"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(pack(Query("Anybody?")))
        process.stdin.close()
        said = process.stderr.read()
        process.wait(10)
    assert b"Traceback" not in said
