"""Certificates in the engine: other settings, a cheaper dial or drift remove them, and the trace says so."""

from __future__ import annotations

import dataclasses
import json

import pytest

from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import SettingsError
from odar.lab.calibration.guarantee import Certificate, certified_calibration
from odar.policy.dial import Dial
from odar.serving.service import Service
from support.live_gateway import MemoryStore
from support.scripted import ScriptedProvider, completion

MODELS = {
    "quick": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
FITTED = {"policy": "cascade", "routing.stages": ["fast", "slow", "slow*2"], "routing.dial": "7"}


def settings(calibration="", **overrides):
    own = {"models": MODELS, "providers": {"p": {"kind": "openai"}}, "fast__model": "quick", "slow__model": "deep"}
    more = {"prompts": "paper", "calibration": str(calibration), **overrides}
    return load_settings("custom", environ={}, **{**own, **more})


def engine(calibration="", difficulty=0.1, **overrides):
    provider = ScriptedProvider(lambda request, index: [completion("Answer: 4")] * request.n, "p")
    return Odar(
        settings(calibration, **overrides), providers={"p": provider}, estimator=ConstantEstimator(difficulty)
    )


@pytest.fixture
def certified(tmp_path):
    """A calibration file with a certificate for the agents of this test."""
    certificate = Certificate(0.05, 0.95, "slow", points=7.0, test_items=400, loss=0.01, more_items=None)
    sources = engine().agents.sources().values()
    file = tmp_path / "calibration.json"
    file.write_text(certified_calibration(Calibration(), certificate, FITTED, sources).to_json())
    return file


async def note(odar, **options):
    return (await odar.aask("What is 2 + 2?", **options)).trace.plan.certificate


async def test_a_certificate_holds_for_its_own_settings(certified):
    assert (await note(engine(certified))).startswith("holds: at most 0.05 less accurate than slow, 95%")
    assert await note(engine()) == ""


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"policy": "paper"}, "policy = paper in place of cascade"),
        ({"routing__stages": ["fast"]}, "routing.stages = ('fast',) in place of ('fast', 'slow', 'slow*2')"),
        ({"slow__model": "quick"}, "another model than it was certified with"),
        ({"fast__temperature": 0.9}, "another temperature than it was certified with"),
        ({"prompts": "chat"}, "another prompt than it was certified with"),
        ({"second__model": "quick"}, "than it was certified with"),
    ],
)
async def test_changed_settings_remove_the_certificate(certified, overrides, why):
    assert why in (found := await note(engine(certified, **overrides))) and found.startswith("removed: ")


async def test_a_cheaper_dial_a_target_or_a_chosen_path_removes_it_for_one_question(certified):
    odar = engine(certified)
    assert await note(odar, dial="balanced") == "removed: the dial is balanced"
    assert await note(odar, dial=Dial.from_options(target_calls=1.8)) == "removed: the dial is target 1.8 calls"
    assert (await note(odar, path="hard")).startswith("removed: the caller chose the path")
    assert (await note(odar, dial="quality")).startswith("holds")
    assert (await note(odar)).startswith("holds")


async def test_drift_removes_the_certificate(certified, monkeypatch):
    odar = engine(certified)

    @dataclasses.dataclass
    class Row:
        model: str = "deep"
        step: str = "solve"
        drifting: bool = True

    monkeypatch.setattr(odar.alignment, "report", lambda steps: [Row()])
    assert await note(odar) == "removed: the energies of deep solve drift"


def test_metrics_show_whether_the_certificate_holds(certified):
    assert "odar_certificate_holds 1.0" in Service(settings(certified), MemoryStore()).metrics.text().decode()
    other = Service(settings(certified, prompts="chat"), MemoryStore())
    assert "odar_certificate_holds 0.0" in other.metrics.text().decode()
    assert "odar_certificate" not in Service(settings(), MemoryStore()).metrics.text().decode()


def test_a_damaged_certificate_is_rejected(certified):
    body = json.loads(certified.read_text())
    del body["made"]["certificate"]["sources"]
    certified.write_text(json.dumps(body))
    with pytest.raises(SettingsError, match=r"its certificate cannot be read .*run odar calibrate again"):
        engine(certified)
