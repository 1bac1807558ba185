from __future__ import annotations

import pytest

from odar.dispatch.assign import Dispatcher
from odar.dispatch.catalogue import ModelCard
from odar.dispatch.experts import Expert
from odar.dispatch.models import route_model
from odar.types import Image, Query, Role

DEFAULT = ModelCard("default", "p", "default", scores={"math": 0.6})
SEER = ModelCard("seer", "p", "seer", images=True)
MATHEMATICIAN = ModelCard("mathematician", "p", "mathematician", scores={"math": 0.9, "code": 0.4})
PICTURE = Image("image/png", b"x")


@pytest.mark.parametrize(
    ("expert", "images", "chosen"),
    [
        (Expert.GENERAL, False, "default"),
        (Expert.MATH, False, "mathematician"),
        (Expert.CODE, False, "default"),
        (Expert.MULTIMODAL, True, "seer"),
        (Expert.MATH, True, "seer"),
    ],
)
def test_another_model_needs_a_reason(expert, images, chosen):
    assert route_model([DEFAULT, SEER, MATHEMATICIAN], expert, images=images).name == chosen


def test_nobody_sees_then_the_default_is_asked_and_says_so_itself():
    assert route_model([DEFAULT, MATHEMATICIAN], Expert.MULTIMODAL, images=True) is DEFAULT


def test_each_rule_can_be_switched_off():
    cards = {Role.FAST: [DEFAULT, MATHEMATICIAN], Role.SLOW: [SEER]}
    query = Query("Solve the equation")
    assert Dispatcher(cards).assign(query).fast == "mathematician"
    off = Dispatcher(cards, by_expert=False).assign(query)
    assert (off.expert, off.cue, off.fast) == ("general", "switched off", "default")
    default_pair = Dispatcher(cards, by_model=False).assign(query)
    assert (default_pair.expert, default_pair.fast, default_pair.slow) == ("math", "default", "seer")
    assert Dispatcher(cards).assign(Query("What is this?", (PICTURE,))).slow == "seer"
