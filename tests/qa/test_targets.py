"""The targets of `make fuzz`, run briefly with hypothesis and with earlier findings."""

from __future__ import annotations

import pytest
from fuzz.strategies import examples
from fuzz.targets import SEEDS, TARGETS, WORDS
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_of_the_fuzz_targets(name):
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@examples(60)
@given(data=st.data())
def test_fuzz_targets_accept_words_in_any_order(name, data):
    words = data.draw(st.lists(st.sampled_from(WORDS[name]) | st.binary(max_size=3), max_size=20))
    TARGETS[name](b"".join(words))


@pytest.mark.parametrize("name", TARGETS)
@examples(30)
@given(data=st.binary(max_size=60))
def test_fuzz_targets_accept_any_bytes(name, data):
    TARGETS[name](data)
