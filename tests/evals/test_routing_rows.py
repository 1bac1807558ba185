"""The code that scores ODAR's routers gives the rows that are published, on data like theirs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from odar.difficulty.base import ConstantEstimator
from odar.errors import InputError
from odar.evals.router_quality import apgr
from odar.evals.routing_bench import Outcomes, load_routellm, measure, router_row

SIZE = 1_300


def recorded(seed: int, pull: float) -> Outcomes:
    """A weak model at 64% and a strong one at 86%; length tells the weak one's failures as far as `pull` says."""
    rng = np.random.default_rng(seed)
    length = rng.normal(0, 1, SIZE)
    weak = (rng.random(SIZE) < 1 / (1 + np.exp(-(0.6 - pull * length)))).astype(float)
    strong = np.maximum(weak, (rng.random(SIZE) < 0.62).astype(float))
    prompts = ["x" * int(200 + 40 * value) for value in length]
    return Outcomes("synthetic", prompts, weak, strong)


def test_a_random_router_has_the_published_half():
    found = [measure(recorded(seed, 0.0), ConstantEstimator(), seed)[0] for seed in range(3)]
    assert {row.router for row in found} == {"random"}
    assert np.mean([row.apgr.value for row in found]) == pytest.approx(0.497, abs=0.03)


def test_length_gains_only_where_length_tells():
    rows = {row.router: row for row in measure(recorded(1, 0.5), ConstantEstimator())}
    assert rows["length"].apgr.low > 0.5
    assert rows["oracle"].apgr.value > rows["length"].apgr.value
    nothing = {row.router: row for row in measure(recorded(1, 0.0), ConstantEstimator())}
    assert nothing["length"].apgr.low < 0.5 < nothing["length"].apgr.high


def test_a_row_is_the_fields_figures():
    data = recorded(2, 0.5)
    score = np.array([len(prompt) for prompt in data.prompts], dtype=float)
    row = router_row(data, "length", score, np.random.default_rng(0))
    assert row.apgr.value == apgr(score, data.weak, data.strong)
    assert 0 < row.cpt50 < row.cpt80 < 1


def test_contaminated_rows_are_dropped(tmp_path):
    (tmp_path / "routellm_gsm8k").mkdir()
    rows = [
        {"prompt": f"q{i}", "weak_correct": i % 2 == 0, "strong_correct": True, "contaminated": i == 3}
        for i in range(6)
    ]
    (tmp_path / "routellm_gsm8k" / "outcomes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_routellm(tmp_path)
    assert list(found.prompts) == ["q0", "q1", "q2", "q4", "q5"]
    assert found.weak.tolist() == [1, 0, 1, 1, 0]
    with pytest.raises(InputError, match="cannot be read"):
        load_routellm(tmp_path / "nowhere")
