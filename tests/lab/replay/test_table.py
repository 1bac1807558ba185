"""The table of a recording: states, prices and walks of items small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from odar.calibration_file import Calibration
from odar.config import with_values
from odar.errors import InputError, SettingsError
from odar.lab.recording.files import open_recording, write_recording
from odar.lab.replay.outcomes import mean_outcomes
from odar.lab.replay.policies import run_policy
from odar.lab.replay.table import ReplayTable, load_table, load_tables
from odar.policy.base import FixedPolicy
from odar.policy.belief import Belief
from odar.policy.dial import Dial
from odar.policy.fusion import Fusion
from odar.policy.paper import PaperPolicy
from odar.types import FAST, SLOW, Stage, Step
from support.panels import calibration, collect_panel, handmade_panel, header, synthetic_panel

FLAT = [0.2] * 7
SIMPLE, MEDIUM, HARD = range(3)


def table_of(folder, *answers, energies=None, **more):
    return load_table(handmade_panel(folder, answers, energies or [FLAT] * len(answers), **more))


def test_difficulty_chooses_the_path_and_its_cost(tmp_path):
    row = ["4"] * 7
    table = table_of(tmp_path, row, row, row, row, difficulty=[0.1, 0.3, 0.69, 0.7])
    found = table.walk(PaperPolicy())
    assert found.path.tolist() == [SIMPLE, MEDIUM, MEDIUM, HARD]
    assert found.calls.tolist() == [1, 2, 2, 6]
    # fast 1 + .1; with a verification 10 + 2 more; with five samples of one request 10 + 5 · 2 more
    assert found.cost_usd.tolist() == pytest.approx([1.1, 13.1, 13.1, 21.1])
    assert found.tokens.tolist() == [7, 14, 14, 42]
    # fast 1 s, then the verification 2 s; samples 3 s, beside the fast answer
    assert found.seconds.tolist() == [1, 3, 3, 3]
    assert found.mix == (0.25, 0.5, 0.25)
    assert [" ".join(map(str, stages)) for stages in found.stages] == [
        "fast", "fast slow:verify", "fast slow:verify", "fast+slow*5",
    ]  # fmt: skip
    assert found.rows(np.array([0, 3])).mix == (0.5, 0, 0.5)


def test_separate_samples_pay_for_the_prompt_each_time(tmp_path):
    table = table_of(tmp_path, ["4"] * 7, n=False)
    assert table.walk(FixedPolicy.parse("slow*5")).cost_usd.tolist() == pytest.approx([5 * 12])


def test_two_requests_pay_for_two_prompts(tmp_path):
    table = table_of(tmp_path, ["4"] * 7)
    found = table.walk(FixedPolicy.parse("slow", "slow*2"))
    assert found.cost_usd.tolist() == pytest.approx([12 + 10 + 2 * 2])
    assert found.seconds.tolist() == [6]


def test_free_models_have_nominal_prices_by_their_tokens(tmp_path):
    table = table_of(tmp_path, ["4"] * 7)
    items = [
        replace(item, attempts=tuple(replace(a, prompt_usd=0.0, output_usd=0.0) for a in item.attempts))
        for item in table.items
    ]
    models = {
        name: replace(model, parameters=size, price=replace(model.price, input=0.0, cached=0.0, output=0.0))
        for (name, model), size in zip(table.settings.models.items(), (1.0, 5.0), strict=True)
    }
    free = ReplayTable(items, replace(table.settings, models=models), table.prompts)
    assert free.nominal and not table.nominal
    # 100 tokens of the prompt and 7 of each answer, at 0.1 dollars per million and billion parameters
    assert free.walk(FixedPolicy.parse(FAST)).cost_usd.tolist() == pytest.approx([107e-7])
    assert free.walk(FixedPolicy.parse("slow*2")).cost_usd.tolist() == pytest.approx([5 * 114e-7])


def test_medium_uses_the_verification_and_hard_does_not(tmp_path):
    """Only the verifier is right, or everyone but the verifier."""
    table = table_of(tmp_path, ["5", "4", *["6"] * 5], ["5", "9", *["4"] * 5])
    medium = table.walk(FixedPolicy.parse(FAST, "slow:verify"))
    assert medium.best.tolist() == [1, 0]
    hard = table.walk(FixedPolicy.parse("fast+slow*5"))
    assert hard.best.tolist() == [0, 1]
    assert (hard.winner != 1).all()


def test_samples_are_taken_in_recorded_order_from_any_first_one(tmp_path):
    table = table_of(tmp_path, ["9", "9", "4", "5", "5", "5", "4"])
    alone = FixedPolicy.parse(SLOW)
    runs = [table.walk(alone, first_sample=k) for k in range(5)]
    assert [run.winner.tolist() for run in runs] == [[2], [3], [4], [5], [6]]
    assert mean_outcomes(runs).score.tolist() == [0.4]
    assert run_policy(table, "single-slow").score.tolist() == [0.4]
    assert table.walk(FixedPolicy.parse("slow*2"), first_sample=4).best.tolist() == [1]


def test_every_fusion_rule_has_winners_of_its_own(tmp_path):
    """A rule that is used once is freed, and the next one may take its place in memory."""
    table = table_of(tmp_path, ["4", "4", "5", "5", "4", "4", "4"], energies=[[0.5, 0.5, 0.1, *[0.5] * 4]])
    everything = FixedPolicy((table.all_answers,))
    scores = [table.walk(everything, fusion=Fusion(name)).score.item() for name in ["majority", "fep"] * 10]
    assert scores == [1, 0] * 10


def test_a_policy_that_asks_for_more_than_was_recorded_is_rejected(tmp_path):
    table = table_of(tmp_path, ["4"] * 7)
    with pytest.raises(InputError, match=r"6 answers by slow are needed, and the recording holds 5"):
        table.walk(FixedPolicy.parse("slow*6"))
    stages = ["fast", "slow*4", "slow*2", "slow*6"]
    cascade = table.policy_of(with_values(table.settings, {"policy": "cascade", "routing.stages": stages}))
    assert [str(stage) for stage in cascade.stages] == stages[:3]
    assert cascade.max_samples == {"fast": 1, "slow": 5}
    with pytest.raises(InputError, match="verification of another answer than the fast one was not recorded"):
        table.walk(FixedPolicy.parse(SLOW, FAST, "slow:verify"))


def test_a_target_moves_the_dial_from_item_to_item(tmp_path):
    table = load_table(synthetic_panel(tmp_path, 400))
    policy = table.policy_of(replace(table.settings, policy="cascade"))
    calls = [table.walk(policy, dial=Dial.from_options(target_calls=target)).calls.mean() for target in (1.3, 2.5)]
    assert calls == pytest.approx([1.3, 2.5], abs=0.25)


def test_states_are_those_of_the_walks(tmp_path):
    table = load_table(synthetic_panel(tmp_path, 50))
    stages = tuple(map(Stage.parse, ("fast", "slow", "slow*2")))
    belief = Belief.load()
    for names in (("fast",), ("fast", "slow"), ("fast", "slow", "slow*2")):
        state, right = table.evidence_after(stages[: len(names)])
        walked = table.walk(FixedPolicy.parse(*names))
        assert right.any(axis=1).tolist() == (walked.best >= 0.5).tolist()
        many = belief.posterior(state)
        for row in range(10):
            alone, _ = table.replaced(rows=np.array([row])).evidence_after(stages[: len(names)])
            one = belief.posterior(alone)
            assert (many.leader[row], many.p[row]) == (one.leader[0], pytest.approx(one.p[0]))
            assert many.q(table.agents[SLOW])[row] == pytest.approx(one.q(table.agents[SLOW])[0])
            assert [each.group[row] for each in state.opinions] == [each.group[0] for each in alone.opinions]
    with pytest.raises(InputError, match="6 answers by slow are needed"):
        table.evidence_after([Stage.parse("slow*6")])


async def test_energies_are_aligned_by_the_calibration_or_the_recording(tmp_path):
    table = load_table(await collect_panel(tmp_path, items=30))
    assert table.is_calibrated
    energies = [row.candidates[0].energy for row in table._rows if row.candidates[0].energy]
    assert [each.aligned for each in energies] == pytest.approx(
        [(each.free_energy - 0.4) / 0.3 for each in energies]
    )
    assert {name: agent.skill for name, agent in table.agents.items()} == {"fast": 0.5, "slow": 0.7}
    other = table.replaced(settings=with_values(table.settings, {"fusion.varentropy_weight": 0.7}))
    assert not other.is_calibrated
    own = other.replaced(calibration=other.own_calibration())
    aligned = [row.candidates[0].energy.aligned for row in own._rows if row.candidates[0].energy]
    assert abs(np.mean(aligned)) < 0.1 and np.std(aligned) == pytest.approx(1, abs=0.1)
    assert own.agents["slow"].skill != 0.7  # labels are not used


async def test_a_recording_can_be_replayed_with_another_calibration(tmp_path):
    place = await collect_panel(tmp_path, items=30, calibration="")
    plain, fitted = load_table(place), load_table(place, calibration(tmp_path))
    assert plain.agents["slow"].skill != fitted.agents["slow"].skill == 0.7
    file = tmp_path / "always-hard.json"
    values = {"policy": "paper", "routing.tau1": 0.0, "routing.tau2": 0.0}
    file.write_text(Calibration({}, settings=values).to_json())
    table = load_table(place, str(file))
    assert (run_policy(table, "odar").path == HARD).all()


def test_statistics_of_the_recorded_answers(tmp_path):
    table = load_table(synthetic_panel(tmp_path, 200))
    found = table.fitted_statistics()
    fast = found[table.source(FAST, "quick", Step.ANSWER)]
    assert fast.accuracy == pytest.approx(table.scores(FAST).mean(), abs=1e-6)
    assert fast.count == 200 and fast.quantiles
    assert found[table.source(SLOW, "deep", Step.SOLVE)].count == 1000
    half = table.replaced(rows=np.arange(200) < 100).fitted_statistics()
    assert half[table.source(FAST, "quick", Step.ANSWER)].count == 100


def test_recordings_of_the_same_models_are_joined(tmp_path):
    place = synthetic_panel(tmp_path, 40)
    items = list(open_recording(place).items())
    parts = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl")]
    write_recording(parts[0], header(), items[:25])
    write_recording(parts[1], header(), items[20:])
    write_recording(parts[2], replace(header(), made_by="others"), items[:5])
    tables = load_tables(parts)
    assert [len(table) for table in tables.values()] == [40, 5]
    with pytest.raises(InputError, match="holds no finished items yet"):
        write_recording(parts[0], header(), [])
        load_table(parts[0])


def test_settings_are_checked():
    settings = header().to_settings()
    assert with_values(settings, {"fusion.beta": "inf", "routing.stages": "fast,slow"}).fusion.beta == np.inf
    with pytest.raises(SettingsError, match=r"routing.tau1 = 2.* must be at least 0 and at most 1"):
        with_values(settings, {"routing.tau1": "2"})
    with pytest.raises(SettingsError, match="is above"):
        with_values(settings, {"routing.tau1": 0.9, "routing.tau2": 0.1})
