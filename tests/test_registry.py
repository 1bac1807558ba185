from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from odar import registry as module
from odar.difficulty.base import ESTIMATORS
from odar.errors import UnknownName
from odar.lab.benchmarks.base import BENCHMARKS
from odar.policy.fusion_rules import RULES
from odar.providers.pool import KINDS
from odar.registry import Registry


@pytest.fixture
def numbers(monkeypatch) -> Registry[float]:
    targets = {"pi": "math:e", "tau": "math:tau", "broken": "math:nothing_such", "absent": "no_such_module:x"}
    points = [EntryPoint(name, target, "odar.numbers") for name, target in targets.items()]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == "odar.numbers" else [])
    return Registry("number", {"pi": 3.14}, group="odar.numbers")


def test_listing_imports_nothing(monkeypatch, tmp_path):
    (tmp_path / "heavy_thing.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("heavy", "heavy_thing:x", "odar.things")
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    things: Registry[object] = Registry("thing", {}, group="odar.things")
    assert things.names() == {"heavy"}
    assert "heavy_thing" not in sys.modules


def test_a_plug_in_is_loaded_once(numbers, monkeypatch):
    import math

    assert numbers["tau"] == math.tau
    monkeypatch.setattr(math, "tau", 3.0)
    assert numbers["tau"] != 3.0


def test_added_entries_override_built_in_and_earlier_ones(numbers):
    numbers.add("pi", 3.0)
    numbers.add("two", 1.0)
    numbers.add("two", 2.0)
    assert (numbers["pi"], numbers["two"]) == (3.0, 2.0)
    assert numbers.names() == {"absent", "broken", "pi", "tau", "two"}


def test_an_unknown_name_gets_a_suggestion_and_the_list(numbers):
    with pytest.raises(
        UnknownName, match=r"unknown number 'pie'; did you mean 'pi'\? \(known: absent, broken, pi, tau\)"
    ):
        numbers["pie"]
    with pytest.raises(UnknownName, match=r"\(known: none\)"):
        Registry("thing", {}, group="odar.things")["x"]


def test_a_missing_module_or_attribute_raises_its_own_error(numbers):
    with pytest.raises(AttributeError, match="nothing_such"):
        numbers["broken"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        numbers["absent"]


def test_entry_points_do_not_replace_built_in_entries(numbers):
    assert numbers["pi"] == 3.14


@pytest.mark.parametrize("registry", [BENCHMARKS, ESTIMATORS, KINDS, RULES], ids=lambda each: each._kind)
def test_every_built_in_entry_can_be_loaded(registry):
    assert registry.names()
    for name in registry.names():
        assert registry[name] is registry[name]
