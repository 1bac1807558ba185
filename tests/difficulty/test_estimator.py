"""d(x): files, explanations, and the traps (SPEC 2.9)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from odar.difficulty.base import estimate_turn
from odar.difficulty.estimator import LearnedEstimator
from odar.difficulty.features import FEATURES, PARSED
from odar.errors import InputError
from odar.lab.training import fit
from odar.types import Query

HERE = Path(__file__).parent
TOKENS = (
    "$2n$ distinct tokens are placed at vertices of a regular $2n$-gon. A move interchanges tokens at edge endpoints. "
    "After finite moves, every pair has been interchanged exactly once. Prove some edge was never chosen."
)
SPEC_2_9 = [
    ("simple", "Who is considered the father of Quantum Mechanics?"),
    ("simple", "Print 'Hello World' in C++."),
    ("hard", "Derive the time-dependent Schrödinger equation."),
    ("simple", "Is Paris the capital of France?"),
    ("medium", "Find all real numbers x such that sqrt(x+3)+sqrt(x-1)=4"),
    ("hard", TOKENS),
]


@pytest.fixture(scope="module")
def shipped() -> LearnedEstimator:
    return LearnedEstimator.load()


@pytest.fixture
def toy() -> LearnedEstimator:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 24))
    return fit(x, rng.uniform(size=64), epochs=2, seeds=(1,))


def path(d: float) -> str:
    return "simple" if d < 0.3 else "medium" if d < 0.7 else "hard"


@pytest.mark.parametrize(("expected", "text"), SPEC_2_9)
def test_the_examples_of_the_spec_take_their_paths(shipped: LearnedEstimator, expected: str, text: str) -> None:
    assert path(shipped.estimate(Query(text)).difficulty) == expected


@pytest.mark.parametrize(
    ("file", "right", "not_simple"),
    [
        ("traps", {"keyword": 10, "length": 8, "masking": 10, "politeness": 9}, 0),
        ("traps_unseen", {"looks_hard": 20, "short_hard": 12}, 15),
        ("traps_second", {"looks_hard": 19, "short_hard": 0}, 1),
        ("traps_third", {"looks_hard": 28, "short_hard": 9}, 9),
    ],
)
def test_traps_are_recognised_as_often_as_before(
    shipped: LearnedEstimator, file: str, right: dict[str, int], not_simple: int
) -> None:
    """Anchors were added while `traps` was looked at; the other files were written before any prediction was known."""
    lines = (HERE / f"{file}.tsv").read_text("utf8").splitlines()
    traps = [line.split("\t") for line in lines if line[0] != "#"]
    found = [(kind, path(shipped.estimate(Query(text)).difficulty), allowed) for kind, allowed, text in traps]
    taken_right = Counter(kind for kind, taken, allowed in found if taken in allowed.split())
    assert all(taken_right[kind] >= count for kind, count in right.items())
    assert sum(kind == "short_hard" and taken != "simple" for kind, taken, _ in found) >= not_simple
    anchors = (HERE.parents[1] / "scripts" / "training" / "data" / "anchors.tsv").read_text("utf8")
    assert not [text for _, _, text in traps if text in anchors]
    assert not [text for _, text in SPEC_2_9 if text in anchors]


def test_short_hard_questions_are_not_simple(shipped: LearnedEstimator) -> None:
    for text in (
        "smallest prime p such that every group of order p³ is nilpotent",
        "What is the smallest prime p such that every group of order p^3 is nilpotent?",
    ):
        assert path(shipped.estimate(Query(text)).difficulty) != "simple"


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(HERE / "reference_mixture.npz") as file:
        return {name: file[name] for name in file}


def test_the_path_mix_of_the_reference_mixture_is_that_of_the_paper(
    shipped: LearnedEstimator, reference: dict[str, np.ndarray]
) -> None:
    """SPEC 2.10; `scripts/training/reference_mixture.py` shows the table."""
    d, names, strata = shipped.predict(reference["features"]), reference["set"], reference["stratum"]

    def hard(rows: np.ndarray) -> float:
        return float((d[rows] >= 0.7).mean())

    sizes = {
        "math": 300,
        "gsm8k": 200,
        "mmlu_pro": 300,
        "bbh": 270,
        "bbeh": 150,
        "strategyqa": 200,
        "truthfulqa": 200,
    }
    sizes |= {"ifeval": 150, "crux": 150, "alpaca_eval": 200}
    assert {name: int((names == name).sum()) for name in sizes} == sizes and len(d) == sum(sizes.values())
    shares = np.bincount(np.digitize(d, [0.3, 0.7]), minlength=3) / len(d)
    assert shares == pytest.approx([0.41, 0.35, 0.24], abs=0.05)
    levels = [(names == "math") & (strata == str(level)) for level in range(1, 6)]
    assert hard(levels[4]) >= 0.40 and hard(names == "gsm8k") <= 0.25 and hard(names == "alpaca_eval") <= 0.15
    means = [float(d[rows].mean()) for rows in levels]
    assert means == sorted(means) and d[names == "bbeh"].mean() > d[names == "bbh"].mean()


def test_the_map_keeps_the_order_and_is_saved(toy: LearnedEstimator, tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(size=(200, 24))
    before = toy.predict(x)
    low, high = np.quantile(before, [0.4, 0.8]).tolist()
    mapped = replace(toy, map=((0.0, 0.0), (low, 0.3), (high, 0.7), (1.0, 1.0)))
    after = mapped.predict(x)
    assert (np.argsort(before) == np.argsort(after)).all()
    assert (after < 0.3).mean() == pytest.approx(0.4, abs=0.02) and (after >= 0.7).mean() == pytest.approx(
        0.2, abs=0.02
    )
    mapped.save(tmp_path / "e.json")
    assert LearnedEstimator.load(tmp_path / "e.json").map == mapped.map


def test_contributions_add_up_to_the_logit(shipped: LearnedEstimator) -> None:
    estimate = shipped.estimate(Query(TOKENS))
    logit = sum(part for _, _, part in estimate.contributions) + shipped.bias
    raw, mapped = zip(*shipped.map, strict=True)
    assert estimate.difficulty == pytest.approx(np.interp(1 / (1 + np.exp(-logit)), raw, mapped))
    assert tuple(name for name, _, _ in estimate.contributions) == FEATURES
    assert estimate.estimator == "learned/3"


def test_without_a_parse_its_three_features_add_nothing(shipped: LearnedEstimator) -> None:
    query = Query("Is Paris the capital of France?")
    parsed, unparsed = shipped.estimate(query), shipped.estimate_without_parse(query)
    assert parsed != unparsed and unparsed.difficulty == pytest.approx(parsed.difficulty, abs=0.1)
    for i, (with_parse, without) in enumerate(zip(parsed.contributions, unparsed.contributions, strict=True)):
        assert without[2] == pytest.approx(0.0, abs=1e-4) if i in PARSED else with_parse == without
    assert estimate_turn(shipped, query) == parsed
    assert estimate_turn(shipped, query, parse=False) == unparsed


def test_an_extreme_logit_does_not_overflow(toy: LearnedEstimator) -> None:
    for bias, difficulty in ((1e6, 1.0), (-1e6, 0.0)):
        assert replace(toy, bias=bias).estimate(Query("?")).difficulty == pytest.approx(difficulty)


def test_a_saved_estimator_predicts_the_same(toy: LearnedEstimator, tmp_path: Path) -> None:
    toy.save(tmp_path / "e.json")
    again = LearnedEstimator.load(tmp_path / "e.json")
    x = np.random.default_rng(1).normal(size=(5, 24))
    np.testing.assert_allclose(again.predict(x), toy.predict(x), atol=1e-4)
    assert again.training["seeds"] == [1]
    assert again.name == "learned/3 (e.json)"


def damage(document: dict, how: str) -> None:
    if how == "version":
        document["format"] = "odar-estimator/99"
    elif how == "feature":
        del document["weights"]["parse_depth"]
    elif how == "order":
        document["weights"] = dict(reversed(document["weights"].items()))
    elif how == "infinite":
        document["scaling"]["mean"]["parse_depth"] = float("inf")
    elif how == "map":
        document["map"] = [[0, 0], [0.5, 0.7], [0.6, 0.4], [1, 1]]
    else:
        del document["training"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("version", "odar-estimator/99"),
        ("feature", "parse_depth"),
        ("order", "order"),
        ("infinite", "finite"),
        ("map", "map of d"),
        ("part", "damaged"),
    ],
)
def test_damaged_files_are_rejected(toy: LearnedEstimator, tmp_path: Path, how: str, says: str) -> None:
    file = tmp_path / "e.json"
    toy.save(file)
    document = json.loads(file.read_text())
    damage(document, how)
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=says):
        LearnedEstimator.load(file)


@pytest.mark.parametrize("content", ["", "[]", "not json", "3"])
def test_other_files_are_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(InputError):
        LearnedEstimator.load(tmp_path / "e.json")


def test_the_shipped_file_records_its_training(shipped: LearnedEstimator) -> None:
    training = shipped.training
    assert training["seeds"] == [42, 123, 456] and (training["l2"], training["epochs"]) == (0.01, 50)
    assert shipped.about["made_by"] == "scripts/training/train_estimator.py" and len(training["runs"]) == 3
