from __future__ import annotations

import numpy as np
import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.served.alignment import ServedAlignment, alignment_file
from odar.serving.service import Service
from odar.types import Step
from support.live_gateway import MemoryStore


@pytest.fixture
def drifted(tmp_path, monkeypatch):
    """Settings of the local model with served energies twice as high as the calibrated ones."""
    monkeypatch.chdir(tmp_path)
    settings = load_settings(profile="tiny")
    odar = Odar(settings, served=alignment_file(settings.store))
    source = odar.agents.source("smollm2-135m", "fast", Step.ANSWER)
    mean = odar.calibration.statistics.get(source).mean
    draws = np.random.default_rng(0).gamma(9, 2 * mean / 9, 200).tolist()
    for energy in draws:
        odar.alignment.count(source, energy)
    odar.alignment.close()
    return settings


def test_doctor_names_drift_and_the_remedy(odar, drifted):
    result = odar("doctor", "--profile", "tiny")
    assert "served energies drift from the calibrated ones: smollm2-135m answer (z = +" in result.out
    assert "odar calibrate" in result.out


def test_doctor_says_why_energies_are_not_kept(odar, drifted):
    file = alignment_file(drifted.store)
    file.write_text("{")
    assert "is damaged; delete it" in odar("doctor", "--profile", "tiny").out


def test_metrics_show_drift(drifted):
    service = Service(drifted, MemoryStore(), served=alignment_file(drifted.store))
    # The gateway has prompts of its own, but the file knows every source of this machine.
    text = service.metrics.text().decode()
    assert 'odar_energy_drifting{model="smollm2-135m",step="answer"} 1.0' in text


def test_ask_adds_energies_to_the_file(odar, provider, tmp_path):
    assert odar("ask", "--path", "medium", "What is 2 + 2?").code == 0
    file = alignment_file(load_settings().store)
    assert _served(file) == 2
    assert odar("ask", "--set", "store.enabled=false", "--path", "medium", "What is 2 + 2?").code == 0
    assert _served(file) == 2


def _served(file):
    return sum(each.count for (_, _, signal), each in ServedAlignment({}, file).load().items() if not signal)
