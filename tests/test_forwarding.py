"""Which fields of a client's request are sent on."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.conversation import Options
from odar.errors import SettingsError
from odar.forwarding import FORWARDED, PRICED_OTHERWISE, RESERVED, merged, select_fields


def chosen(extra, protocol="openai", **options):
    kept, note = select_fields(Options(extra=extra), protocol=protocol, **options)
    return dict(kept.extra), note


def test_only_listed_fields_are_sent_on():
    assert chosen({"presence_penalty": 1, "models": ["a"], "n": 3, "messages": []}) == (
        {"presence_penalty": 1},
        "fields of the request were not sent on: messages, models, n",
    )


def test_an_operator_extends_the_list_for_a_provider():
    assert chosen({"top_k": 5}) == ({}, "fields of the request were not sent on: top_k")
    assert chosen({"top_k": 5}, forward=["top_k"]) == ({"top_k": 5}, "")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_odar_sets_cannot_be_forwarded(name):
    assert chosen({name: 1}, forward=[name])[0] == {}
    with pytest.raises(SettingsError, match=rf"providers.openai.forward = {name}"):
        load_settings("tiny", environ={}, providers={"openai": {"forward": [name]}})


def test_what_the_catalogue_sets_for_a_model_stays():
    assert chosen({"reasoning_effort": "high"}, fixed={"reasoning_effort": "none"})[0] == {}


@pytest.mark.parametrize("name", sorted(PRICED_OTHERWISE))
def test_where_money_is_limited_nothing_changes_the_price(name):
    assert chosen({name: "priority"}, forward=[name])[0] == {name: "priority"}
    assert chosen({name: "priority"}, forward=[name], priced=True)[0] == {}


def test_another_protocols_fields_are_dropped_and_named():
    assert chosen({"reasoning_effort": "high"}, protocol="anthropic")[1].endswith("reasoning_effort")


def test_a_note_never_repeats_the_clients_own_words():
    note = chosen({"my secret diary": 1, "n": 2})[1]
    assert note == "fields of the request were not sent on: n, 1 unknown"


def test_the_body_wins():
    assert merged({"n": 9, "top_k": 1}, {"n": 2}) == {"n": 2, "top_k": 1}


def test_no_default_changes_the_price():
    assert not frozenset().union(*FORWARDED.values()) & (PRICED_OTHERWISE | RESERVED)
