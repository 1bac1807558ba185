"""`odar observe`, the agreement in `odar traces --summary`, and skills in `odar doctor`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odar.config import load_settings
from odar.engine import Odar
from odar.served.alignment import alignment_file
from odar.traces.archive import Archive
from odar.traces.database import Database
from odar.traces.observations import Observation
from odar.traces.writer import make_row, write_rows
from support.traces import ago, make_record


@pytest.fixture
def observed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sixty observed questions, of which a third differ."""
    monkeypatch.setenv("ODAR_STORE_URL", str(tmp_path / "odar.db"))
    settings = load_settings("tiny", config="/dev/null")
    with Database(settings.store) as database:
        kept = Archive(database).observations(settings)
        for number in range(60):
            row = Observation(
                id=f"{number:032x}", at=ago(), key_id="", kind="number" if number % 2 else "yes/no", stages="fast",
                slow_usd=0.01, cascade_usd=0.004, spent_usd=0.001, same=number % 3 > 0, slow_same=True,
            )  # fmt: skip
            kept.add(row, at_most_differ=0.05)
        with database.write() as connection:
            write_rows(connection, [make_row(make_record(id="a"), content=False)])
    return settings


def test_the_report(odar: Any, observed: Any) -> None:
    shown = odar("observe", "--profile", "tiny").out
    assert "all" in shown and "60%" in shown and "66.7% [" in shown and "yes/no" in shown
    assert "slow itself: +33.3 points [+" in shown
    assert "slow answers: odar observe --resume" in shown
    assert max(map(len, shown.splitlines())) <= 80
    report = json.loads(odar("observe", "--profile", "tiny", "--json").out)
    assert report["total"]["questions"] == 60
    assert odar("observe", "--profile", "tiny", "--since", "2099-01-01").err.startswith("odar: nothing is observed")
    assert odar("observe", "--profile", "tiny", "--since", "soon").code == 2


def test_the_summary_of_traces_shows_agreement(odar: Any, observed: Any) -> None:
    shown = odar("traces", "--profile", "tiny", "--summary").out
    assert "same answer as slow: 66.7% [" in shown
    assert (
        json.loads(odar("traces", "--profile", "tiny", "--summary", "--json").out)["observation"]["excess"]["low"]
        > 0.05
    )


def test_back_by_a_command(odar: Any, observed: Any) -> None:
    assert odar("observe", "--profile", "tiny", "--resume").out == "the cascade answers again\n"
    assert odar("observe", "--profile", "tiny", "--resume").out == "the cascade had not fallen back to slow\n"
    assert json.loads(odar("observe", "--profile", "tiny", "--resume", "--json").out) == {"resumed": False}
    assert "--resume" not in odar("observe", "--profile", "tiny").out


def test_doctor_shows_skills_from_agreement(odar: Any, observed: Any) -> None:
    settings = load_settings("tiny", config="/dev/null", calibration="")
    engine = Odar(settings, served=alignment_file(settings.store))
    labels = [f"{agent} {settings.agent(agent).model}" for agent in settings.agent_names]
    for number in range(100):
        engine.agreement.count({label: i * (number % 2) for i, label in enumerate(labels)}, 0, "")
    engine.close()
    shown = odar("doctor", "--profile", "tiny", "--set", "calibration=''").out
    assert "skills: from agreement on 100 observed questions: fast 0." in shown
    assert "change no skill" in odar("doctor", "--profile", "tiny").out, "the shipped calibration has labels"
