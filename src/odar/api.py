"""`odar.ask`, `odar.aask` and `odar.decide`: one engine with the default settings, opened when first needed."""

from __future__ import annotations

import atexit
from functools import cache
from typing import Unpack

from odar.decisions import GivenAnswers, NextStep
from odar.engine import Odar
from odar.inputs import Question
from odar.options import AskKeywords
from odar.types import Answer


def ask(question: Question, **keywords: Unpack[AskKeywords]) -> Answer:
    """Answer one question with the default settings; `AskOptions` describes the options."""
    return _default_engine().ask(question, **keywords)


async def aask(question: Question, **keywords: Unpack[AskKeywords]) -> Answer:
    """Answer one question with the default settings, for async code; `AskOptions` describes the options."""
    return await _default_engine().aask(question, **keywords)


def decide(question: Question, answers: GivenAnswers = (), **keywords: Unpack[AskKeywords]) -> NextStep:
    """Say what ODAR would do with a question, given the answers so far, without any call; see `Odar.adecide`."""
    return _default_engine().decide(question, answers, **keywords)


@cache
def _default_engine() -> Odar:
    odar = Odar()
    atexit.register(odar.close)
    return odar
