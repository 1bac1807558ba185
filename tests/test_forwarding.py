"""Which fields of a request are forwarded to a provider."""

from __future__ import annotations

import pytest

from odar.config import load_settings
from odar.conversation import ChatParameters, Tool, ToolChoice, Wire
from odar.errors import SettingsError
from odar.forwarding import FORWARDED, PRICED_OTHERWISE, RESERVED, select_fields


def chosen(extra, protocol="openai", **options):
    kept, note = select_fields(ChatParameters(extra=extra), protocol=protocol, **options)
    return dict(kept.extra), note


def test_only_listed_fields_are_forwarded():
    assert chosen({"presence_penalty": 1, "models": ["a"], "n": 3, "messages": []}) == (
        {"presence_penalty": 1},
        "fields of the request were not sent on: messages, models, n",
    )


def test_the_setting_forward_extends_the_list_of_a_provider():
    assert chosen({"top_k": 5}) == ({}, "fields of the request were not sent on: top_k")
    assert chosen({"top_k": 5}, forward=["top_k"]) == ({"top_k": 5}, "")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_fields_set_by_odar_are_not_forwarded(name):
    assert chosen({name: 1}, forward=[name])[0] == {}
    with pytest.raises(SettingsError, match=rf"providers.openai.forward = {name}"):
        load_settings("tiny", environ={}, providers={"openai": {"forward": [name]}})


def test_fields_set_by_the_catalogue_are_not_replaced():
    assert chosen({"verbosity": "high"}, fixed={"verbosity": "low"})[0] == {}
    kept, note = select_fields(ChatParameters(effort="high"), protocol="openai", fixed={"reasoning_effort": "none"})
    assert (kept.effort, note) == (None, "fields of the request were not sent on: reasoning_effort")


@pytest.mark.parametrize("name", sorted(PRICED_OTHERWISE))
def test_fields_that_change_the_price_are_dropped_under_a_cost_limit(name):
    assert chosen({name: "priority"}, forward=[name])[0] == {name: "priority"}
    assert chosen({name: "priority"}, forward=[name], cost_limited=True)[0] == {}


def test_fields_of_another_protocol_are_dropped_and_named():
    assert chosen({"verbosity": "high"}, protocol="anthropic")[1].endswith("verbosity")


def test_effort_is_translated_to_the_levels_of_the_model():
    own, _ = select_fields(ChatParameters(effort="minimal"), protocol="openai")
    assert own.effort == "minimal"  # unchanged for its own protocol
    put, note = select_fields(ChatParameters(effort="minimal"), protocol="anthropic", efforts=("low", "high"))
    assert (put.effort, note) == ("low", "")
    lost, note = select_fields(ChatParameters(effort="minimal"), protocol="anthropic")
    assert lost.effort is None and note.endswith("reasoning_effort")


def test_only_listed_preview_features_are_sent_to_anthropic():
    asked = ChatParameters(protocol="anthropic", betas=("effort-2025-11-24", "fast-mode-2026-02-01", "x"))
    assert select_fields(asked, protocol="anthropic")[0].betas == ("effort-2025-11-24",)
    assert select_fields(asked, protocol="openai")[0].betas == ()


def test_provider_hosted_tools_are_dropped_and_named():
    search = Tool("web_search", hosted="web_search_20250305", wire=Wire("anthropic", {}))
    asked = ChatParameters(
        tools=(search, Tool("f")), tool_choice=ToolChoice("tool", "web_search"), protocol="anthropic"
    )
    kept, note = select_fields(asked, protocol="anthropic")
    assert ([tool.name for tool in kept.tools], kept.tool_choice) == (["f"], None)
    assert note == "tools that run at a provider were left out, offer functions instead: web_search"
    allowed = {"protocol": "anthropic", "forward": ["web_search_20250305"]}
    assert select_fields(asked, **allowed) == (asked, "")
    assert select_fields(asked, **allowed, cost_limited=True)[0].tools == (Tool("f"),)  # each search has a price
    assert select_fields(ChatParameters(tools=(Tool("my words", hosted="my words"),)), protocol="openai")[
        1
    ].endswith(": unknown")


def test_a_note_does_not_quote_unknown_field_names():
    note = chosen({"my secret diary": 1, "n": 2})[1]
    assert note == "fields of the request were not sent on: n, 1 unknown"


def test_no_field_forwarded_by_default_changes_the_price():
    assert not frozenset().union(*FORWARDED.values()) & (PRICED_OTHERWISE | RESERVED)
