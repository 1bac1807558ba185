from __future__ import annotations

import io

from odar.cli.terminal import AnswerStream


def test_text_is_shown_as_it_comes_and_the_answer_is_printed_after_its_way():
    out = io.StringIO()
    stream = AnswerStream(out)
    for piece in ("\n", "Two and two.", "\nAnswer: 4"):
        stream.feed(piece)
    assert stream.finish("4") is False
    plain = out.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == "Two and two.\nAnswer: 4\n"


def test_a_bare_answer_is_not_printed_twice():
    stream = AnswerStream(io.StringIO())
    stream.feed("Paris")
    assert stream.finish("Paris") is True


def test_nothing_streamed_nothing_seen():
    assert AnswerStream(io.StringIO()).finish("4") is False
