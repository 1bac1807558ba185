from __future__ import annotations

import inspect
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar import errors
from odar.errors import (
    AllAgentsFailed,
    BudgetExceeded,
    OdarError,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    StoreError,
    UnknownName,
    did_you_mean,
    one_line,
)

KINDS = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OdarError)}


def test_the_docstring_shows_the_class_hierarchy():
    drawn: list[tuple[int, str]] = [
        (len(line) - len(line.lstrip(" │├└─")), match[1])
        for line in (errors.__doc__ or "").splitlines()
        if (match := re.match(r"[ │├└─]*([A-Z]\w+)(?:  |$)", line))
    ]
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for depth, name in drawn:
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            parents[name] = above[-1][1]
        above.append((depth, name))
    assert {name for _, name in drawn} == set(KINDS)
    assert parents == {name: kind.__base__.__name__ for name, kind in KINDS.items() if kind is not OdarError}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_error_class_has_a_docstring(name):
    assert KINDS[name].__doc__
    assert KINDS[name].spend is None


def test_repeated_causes_are_named_once_with_the_first_providers_details():
    causes = [
        BudgetExceeded("no money"),
        ProviderError("busy", provider="a", status=429, code="c", retry_after=3.0, retryable=True, body="{}"),
        ProviderUnreachable("closed", provider="b"),
    ]
    failed = AllAgentsFailed(["fast: busy", "slow: closed", "fast: busy"], causes)
    assert str(failed) == "no agent produced an answer: fast: busy; slow: closed"
    assert (failed.provider, failed.status, failed.code, failed.retry_after) == ("a", 429, "c", 3.0)
    assert (failed.body, failed.retryable) == ("{}", True)
    assert failed.causes == tuple(causes)


@pytest.mark.parametrize(
    ("causes", "retryable"),
    [
        ([], False),
        ([BudgetExceeded("no")], False),
        ([ProviderError("no"), ProviderTimeout("late", retryable=True)], True),
        ([ProviderError("no"), ProviderTimeout("late")], False),
    ],
)
def test_a_failure_is_retryable_if_one_cause_is(causes, retryable):
    assert AllAgentsFailed(["x"], causes).retryable is retryable


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("busy", provider="p", status=429, retry_after=1.5, retryable=True),
        ProviderTimeout("late"),
        StoreError("full", "rows"),
        BudgetExceeded("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_pickled(error):
    """Ray sends errors between processes."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert again.__dict__ == error.__dict__


names = st.lists(st.from_regex(r"[a-z]{4,10}", fullmatch=True), min_size=1, max_size=6, unique=True)


@given(names, st.data())
def test_a_name_with_one_wrong_letter_is_suggested(known, data):
    name = data.draw(st.sampled_from(known))
    place = data.draw(st.integers(0, len(name) - 1))
    wrong = name[:place] + "_" + name[place + 1 :]
    assert "did you mean" in did_you_mean(wrong, known)
    assert name in str(UnknownName("thing", wrong, known))


@given(st.text(max_size=20), st.lists(st.text(max_size=10), max_size=5))
def test_a_suggestion_is_a_known_name(name, known):
    hint = did_you_mean(name, known)
    assert hint == "" or any(repr(each) in hint for each in known)


@given(st.text())
def test_a_line_is_printable_and_keeps_every_word(text):
    line = one_line(text)
    assert line.isprintable()
    assert line == line.strip()
    words = text.split() if text.isprintable() else []
    assert all(word in line for word in words)


@given(st.text(), st.integers(1, 20))
def test_a_line_is_cut_at_the_limit(text, longest):
    line = one_line(text, longest)
    assert len(line) <= longest
    assert line == one_line(text) or line.endswith("…")
