from __future__ import annotations

import io

from odar.cli.terminal import AnswerStream


def test_streamed_text_is_shown_and_the_answer_follows():
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


def test_without_streamed_text_the_answer_was_not_shown():
    assert AnswerStream(io.StringIO()).finish("4") is False
