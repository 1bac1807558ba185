"""Installing a fit: from the engine to the current setup, and from a fit to a file that the engine reads."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from odar.calibration.fit import fit
from odar.calibration.fusion_fit import FusionFit
from odar.calibration.install import current_parts, report, to_calibration
from odar.config import load_settings
from odar.difficulty.estimator import FORMAT, shipped_estimator
from odar.engine import Odar
from odar.errors import OdarError
from odar.policy.alignment import Statistics
from odar.policy.path import Thresholds
from odar.policy.posterior import PosteriorDifficulty
from odar.policy.signals import AnswerKind, QuantileTables
from odar.types import Query
from support.population import evidence

TABLES = QuantileTables.fit({("direct", "length"): range(100)})


@pytest.fixture(scope="module")
def fitted():
    """A fit in which every part differs from the shipped one."""
    odar = Odar(load_settings("tiny", config="/dev/null", calibration=""))
    found = fit(evidence(size=60), current_parts(odar))
    posterior = PosteriorDifficulty.load().with_weights(AnswerKind.DIRECT, {"long": 1.0})
    estimator = shipped_estimator()
    moved = type(estimator).from_dict(estimator.to_dict(), "copy")
    moved.bias_ += 1.0
    setup = replace(
        found.setup,
        thresholds=Thresholds(0.25, 0.65),
        by_expert={"math": Thresholds(0.1, 0.2, "math")},
        fusion=FusionFit(np.inf, 1.0, np.array([0.5, 0.7, 1.0])),
        statistics=tuple(Statistics(0.2, 0.1, 50, quantiles=TABLES.to_dict()) for _ in range(3)),
        posterior=posterior,
        estimator=moved,
    )
    return replace(found, setup=setup)


def install(fitted, tmp_path):
    odar = Odar(load_settings("tiny", config="/dev/null", calibration=""))
    path = tmp_path / "c.json"
    path.write_text(to_calibration(odar, fitted, {"data": "test"}).to_json())
    return path, Odar(load_settings("tiny", config="/dev/null", calibration=str(path)))


def test_the_engine_uses_the_installed_fit(fitted, tmp_path):
    _, odar = install(fitted, tmp_path)
    today = current_parts(odar)
    assert today.setup.thresholds == Thresholds(0.25, 0.65)
    assert today.setup.by_expert == {"math": Thresholds(0.1, 0.2, "math")}
    assert today.setup.fusion.beta == np.inf
    assert today.setup.fusion.skills.tolist() == [0.5, 0.7, 1.0]
    assert today.posterior.weights == fitted.setup.posterior.weights
    assert odar.estimator.name == "calibrated/1"
    query = Query("Is Paris the capital of France?")
    assert odar.estimator.estimate(query).difficulty > shipped_estimator().estimate(query).difficulty
    assert today.setup.tables.to_dict() == TABLES.to_dict()
    assert odar.settings.routing.mode == "posterior"


def test_the_file_has_readable_settings_and_statistics(fitted, tmp_path):
    path, _ = install(fitted, tmp_path)
    body = json.loads(path.read_text())
    assert body["settings"] == {
        "routing.tau1": 0.25,
        "routing.tau2": 0.65,
        "routing.tau1_by_expert": {"math": 0.1},
        "routing.tau2_by_expert": {"math": 0.2},
        "fusion.beta": "inf",
        "routing.mode": "posterior",
    }
    assert body["estimator"]["format"] == FORMAT
    assert body["report"] == json.loads(json.dumps(report(fitted)))
    assert body["made"]["data"] == "test"
    assert set(body["report"]["after"]["mix"]) == {"simple", "medium", "hard"}


def test_a_mode_chosen_by_calibration_can_change(fitted, tmp_path):
    _, odar = install(replace(fitted, setup=replace(fitted.setup, posterior=None)), tmp_path)
    assert odar.settings.routing.mode == "prior"
    today = current_parts(odar)
    assert (today.setup.posterior, today.may_use_posterior) == (None, True)


def test_a_mode_set_by_a_profile_is_kept(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    today = current_parts(Odar(load_settings("paper", config="/dev/null")))
    assert (today.may_use_posterior, today.setup.posterior) == (False, None)


@pytest.mark.parametrize("part", ["estimator", "posterior"])
def test_a_part_of_another_version_is_rejected(fitted, tmp_path, part):
    path, _ = install(fitted, tmp_path)
    body = json.loads(path.read_text())
    body[part]["format"] = "odar-something/99"
    path.write_text(json.dumps(body))
    with pytest.raises(OdarError, match="odar-something/99"):
        Odar(load_settings("tiny", config="/dev/null", calibration=str(path)))
