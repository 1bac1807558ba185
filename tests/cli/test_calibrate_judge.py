"""`odar calibrate --judge`: a judge is enabled only if it significantly raises accuracy (SPEC 5.15)."""

from __future__ import annotations

import asyncio
import json

import pytest

from odar.calibration.evidence import evidence_of
from odar.calibration.install import current_parts
from odar.calibration.judge_fit import JudgeTrial, judge_items, judge_trial, judge_work
from odar.config import load_settings
from odar.engine import Odar
from odar.errors import ProviderError
from odar.recording.files import open_recording
from odar.recording.journal import Memo
from odar.recording.schema import row_id
from support.scripted import completion, step_of

TRUE = "The seeds leave your body, and you stay well."
FALSE = (
    "A watermelon will grow in your stomach after some time.",
    "After some time a watermelon will grow in your stomach.",
    "In your stomach a watermelon will grow after some time.",
)
SETTINGS = ("routing.tau1=0", "routing.tau2=0", "routing.samples=4", "fusion.first_wave=4", "fusion.beta=0")
HARD = [word for each in SETTINGS for word in ("--set", each)]


@pytest.fixture
def judge(tmp_path, provider, monkeypatch):
    """Thirty questions where three slow samples agree on a wrong answer and the fourth is right."""
    told = {"names": TRUE, "count": 0}

    def script(request, index):
        shown = request.messages[-1].text
        if "random order" in shown:
            told["count"] += 1
            if isinstance(told["names"], ProviderError):
                raise told["names"]
            if isinstance(told["names"], int):
                return [completion(str(told["names"]))]
            before, found, _ = shown.partition(told["names"])
            return [completion(str(before.count("<reply number=")) if found else "none")]
        if step_of(request) == "solve":
            return [completion(f"Answer: {text}", -0.2) for text in (*FALSE, TRUE)]
        return [completion(f"Answer: {FALSE[0]}", -0.2)]

    monkeypatch.setenv("ODAR_CACHE_DIR", str(tmp_path / "cache"))
    provider.script = script
    rows = [{"query": f"What happens if you swallow {i} seeds?", "answer": TRUE} for i in range(30)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return told


def trial_of(odar, tmp_path) -> JudgeTrial:
    """Run the judge on the recorded items."""
    assert odar("eval", "collect", "data.jsonl", "--out", "r.jsonl", "--quiet", "--yes", *HARD).code == 0
    values = dict(each.replace(".", "__").split("=") for each in SETTINGS)
    settings = load_settings(
        config=tmp_path / "odar.toml", fusion__judge="slow", **{name: int(value) for name, value in values.items()}
    )
    engine = Odar(settings)
    items = list(open_recording("r.jsonl").items())
    evidence, setup = evidence_of(items, settings.fusion.varentropy_weight), current_parts(engine).setup
    asked = judge_items(engine, items, evidence, setup)

    async def ask():
        async with engine:
            return [await judge_work(engine)(item, Memo({}, lambda name, value: None)) for item in asked]

    rows = {outcome.row["id"]: outcome.row for outcome in asyncio.run(ask()) if outcome.row["error"] is None}
    return judge_trial(evidence, setup, [row_id(item.key) for item in items], asked, rows)


def test_a_useful_judge_is_enabled(odar, judge, tmp_path):
    command = ("calibrate", "data.jsonl", "--recording", "r.jsonl", "--judge", "--yes", "--json", *HARD)
    body = json.loads(odar(*command).out)
    assert body["judge"]["accuracy_gain"]["value"] == 1.0
    assert (body["judge"]["rejected"], body["judge"]["items"], judge["count"]) == (None, 30, 60)
    written = json.loads((tmp_path / "calibration.json").read_text())
    assert written["settings"]["fusion.judge"] == "slow"
    settings = load_settings(config=tmp_path / "odar.toml", calibration=str(tmp_path / "calibration.json"))
    assert settings.fusion.judge == "slow"


def test_a_judge_that_is_right_in_every_order_is_accepted(odar, judge, tmp_path):
    trial = trial_of(odar, tmp_path)
    assert (trial.accuracy_gain.value, trial.order_dependent, trial.unreadable) == (1.0, 0.0, 0)
    assert trial.rejection_reason() is None


def test_a_judge_without_a_gain_is_rejected(odar, judge, tmp_path):
    judge["names"] = FALSE[0]
    assert "not significantly above" in trial_of(odar, tmp_path).rejection_reason()


def test_the_position_bias_of_a_judge_is_measured(odar, judge, tmp_path):
    judge["names"] = 1
    trial = trial_of(odar, tmp_path)
    assert (trial.first_place, trial.expected_first, trial.order_dependent) == (1.0, 0.25, 1.0)


def test_an_unreadable_verdict_keeps_the_choice(odar, judge, tmp_path):
    judge["names"] = "nothing that is shown"
    trial = trial_of(odar, tmp_path)
    assert (trial.unreadable, trial.accuracy_gain.value) == (60, 0.0)


def test_a_failing_judge_is_rejected(odar, judge, tmp_path):
    judge["names"] = ProviderError("gone", provider="script")
    trial = trial_of(odar, tmp_path)
    assert trial.items == 0
    assert "no item" in trial.rejection_reason()
