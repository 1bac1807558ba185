"""Certificates in the engine: other settings, a target or drift remove them, and the trace says so."""

from __future__ import annotations

import dataclasses
import json

import pytest

from odar.calibration.install import source_list
from odar.calibration_file import Calibration
from odar.config import load_settings
from odar.difficulty.base import ConstantEstimator
from odar.engine import Odar
from odar.errors import SettingsError
from odar.gateway.service import Service
from odar.policy.target import Target
from support.scripted import ScriptedProvider, completion

MODELS = {
    "quick": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 1, "output": 4}},
    "deep": {"provider": "p", "logprobs": True, "n": True, "price": {"input": 3, "output": 15}},
}
FITTED = {"routing.tau1": 0.44, "routing.tau2": 0.76}  # t = 0.4 on the path through (0.3, 0.7)


def settings(calibration="", **overrides):
    own = {"models": MODELS, "providers": {"p": {"kind": "openai"}}, "fast__model": "quick", "slow__model": "deep"}
    more = {"prompts": "default", "routing__mode": "prior", "calibration": str(calibration), **overrides}
    return load_settings("tiny", environ={}, **{**own, **more})


def engine(calibration="", difficulty=0.1, **overrides):
    provider = ScriptedProvider(lambda request, index: [completion("Answer: 4")] * request.n, "p")
    return Odar(
        settings(calibration, **overrides), providers={"p": provider}, estimator=ConstantEstimator(difficulty)
    )


@pytest.fixture
def certified(tmp_path):
    """A calibration file with a certificate for the pair of this test."""
    certificate = {
        "at_most_worse": 0.05,
        "confidence": 0.95,
        "against": "always-hard",
        "t": 0.4,
        "path": [[1, 1], [0.3, 0.7], [0, 0]],
        "reference_accuracy": 0.9,
        "sources": [dataclasses.asdict(source) for source in source_list(engine())],
    }
    file = tmp_path / "calibration.json"
    made = {"certificate": certificate}
    file.write_text(Calibration({}, FITTED, made=made).to_json(), encoding="utf-8")
    return file


async def note(odar, **options):
    return (await odar.aask("What is 2 + 2?", **options)).trace.decision.certificate


async def test_a_certificate_holds_for_its_own_settings(certified):
    assert (await note(engine(certified))).startswith("holds: at most 0.05 less accurate than always-hard, 95%")
    assert await note(engine()) == ""


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"routing__tau1": 0.2}, "routing.tau1 = 0.2 in place of 0.44"),
        ({"slow__model": "quick"}, "another model than it was certified with"),
        ({"fast__temperature": 0.9}, "another temperature than it was certified with"),
        ({"prompts": "chat"}, "another prompt than it was certified with"),
        ({"routing__tau2_by_expert": {"math": 0.9}}, "thresholds of single experts"),
    ],
)
async def test_changed_settings_remove_the_certificate(certified, overrides, why):
    assert await note(engine(certified, **overrides)) == f"removed: {why}"


async def test_a_target_or_a_chosen_path_removes_the_certificate_for_one_question(certified):
    odar = engine(certified)
    assert (
        await note(odar, target=Target.from_options(calls=1.8))
        == "removed: a target of 1.8 calls chose the thresholds"
    )
    assert await note(odar, path="hard") == "removed: the caller chose the path"
    assert (await note(odar)).startswith("holds")


async def test_drift_removes_the_certificate(certified, monkeypatch):
    odar = engine(certified)

    @dataclasses.dataclass
    class Row:
        model: str = "deep"
        step: str = "solve"
        drifting: bool = True

    monkeypatch.setattr(odar, "alignment_report", lambda: [Row()])
    assert await note(odar) == "removed: the energies of deep solve drift"


async def test_learned_thresholds_are_used_and_stay_certified(certified):
    odar = engine(certified, difficulty=0.4, routing__learn=True)
    assert odar.learning_certificate is not None
    assert (await odar.aask("What is 2 + 2?")).path == "simple"
    odar.use_learned(0.47)  # τ1 at t = 0.48 is 0.328
    answer = await odar.aask("What is 2 + 2?")
    assert (answer.path, answer.trace.decision.certificate[:5]) == ("medium", "holds")
    assert engine(certified).learning_certificate is None  # routing.learn is off
    assert engine(certified, routing__learn=True, routing__tau1=0.2).learning_certificate is None


def test_metrics_show_whether_the_certificate_holds(certified):
    same = {"gateway__prompts": "default", "gateway__max_tokens": 1}
    service = Service(settings(certified, **same))
    assert "odar_certificate_holds 1.0" in service.metrics.text().decode()
    assert "odar_certificate_holds 0.0" in Service(settings(certified)).metrics.text().decode()  # chat prompts
    assert "odar_certificate" not in Service(settings()).metrics.text().decode()


def test_a_damaged_certificate_is_rejected(certified):
    body = json.loads(certified.read_text())
    del body["made"]["certificate"]["path"]
    certified.write_text(json.dumps(body))
    with pytest.raises(SettingsError, match=r"its certificate cannot be read .*run odar calibrate again"):
        engine(certified)
