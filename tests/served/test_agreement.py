"""Skills from how often agents agree, without labels, and with a cap for each key (SPEC 9.3, 10.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odar.background import CURRENT_KEY
from odar.policy.belief import Belief, RatedAgent
from odar.policy.cascade_values import draw_answers
from odar.served.agreement import MAX_QUESTIONS, MIN_QUESTIONS, ServedAgreement

BELIEF = Belief.load()
TRUE = (RatedAgent("fast", 0.35, "gpt"), RatedAgent("second", 0.40, "gemini"), RatedAgent("slow", 0.70, "claude"))
START = {
    "fast": RatedAgent("fast", 0.5, "gpt"),
    "second": RatedAgent("second", 0.5, "gemini"),
    "slow": RatedAgent("slow", 0.78, "c"),
}


@pytest.fixture(autouse=True)
def without_key() -> Iterator[None]:
    token = CURRENT_KEY.set("")
    yield
    CURRENT_KEY.reset(token)


def served(file: Path | None = None, belief: Belief | None = BELIEF) -> ServedAgreement:
    """Counts that sync only when told to."""
    return ServedAgreement(START, dict.fromkeys(START, "model"), belief, file, timer=lambda: -1.0)


def ask(counts: ServedAgreement, questions: int, key: str = "", *, gibberish: bool = False) -> None:
    opinions, _ = draw_answers(BELIEF, TRUE, plausible=10, size=questions, seed=1)
    for number in range(questions):
        groups = {
            f"{opinion.agent.name} model": i if gibberish else int(opinion.group[number])
            for i, opinion in enumerate(opinions)
        }
        counts.count(groups, 10, key)


def skills(counts: ServedAgreement, key: str = "") -> tuple[float, ...]:
    CURRENT_KEY.set(key)
    counts.sync()
    return counts.skills()


def test_skills_approach_the_truth_after_a_few_hundred_questions() -> None:
    counts = served()
    ask(counts, MIN_QUESTIONS - 1)
    assert skills(counts) == (), "too few to say"
    ask(counts, 371)
    found = skills(counts)
    for skill, agent, start in zip(found, TRUE, START.values(), strict=True):
        assert abs(skill - agent.skill) < abs(start.skill - agent.skill), agent.name


def test_one_keys_gibberish_does_not_move_another_keys_skills() -> None:
    alone = served()
    ask(alone, 100, "good")
    attacked = served()
    ask(attacked, 100, "good")
    ask(attacked, 3 * MAX_QUESTIONS, "evil", gibberish=True)
    assert skills(attacked, "good") == pytest.approx(skills(alone, "good"), abs=0.021)
    assert skills(attacked, "new") == (), "a key without questions of its own keeps the skills to start from"
    assert max(skills(attacked, "evil")[:2]) < 0.2, "its own questions are believed"


def test_many_keys_together_correct_the_skills_of_a_new_one() -> None:
    counts = served()
    for number in range(40):
        ask(counts, 10, f"key {number}")
    found = skills(counts, "new")
    assert found and max(found[:2]) < 0.49


def test_processes_share_a_file(tmp_path: Path) -> None:
    file = tmp_path / "odar.agreement.json"
    one, other = served(file), served(file)
    ask(one, 200)
    one.close()
    ask(other, 200)
    other.close()
    third = served(file)
    assert third.questions() == {"": 400}
    assert skills(third)
    assert "model" in file.read_text() and len(file.read_text()) < 2000


def test_old_questions_count_half() -> None:
    counts = served()
    ask(counts, MAX_QUESTIONS, gibberish=True)
    counts.sync()
    ask(counts, 2, gibberish=True)
    counts.sync()
    assert counts.questions() == {"": pytest.approx((MAX_QUESTIONS + 2) / 2)}


def test_skills_of_a_calibration_stay() -> None:
    counts = served(belief=None)
    ask(counts, 200)
    assert skills(counts) == ()


@pytest.mark.parametrize(
    "counts", ["", ', "counts": [{}]', ', "counts": [[["", "a", "b", 2], {"questions": 1.0, "agreed": 2.0}]]']
)
def test_a_damaged_file_is_reported(tmp_path: Path, counts: str) -> None:
    file = tmp_path / "odar.agreement.json"
    file.write_text(f'{{"format": "odar-agreement-2"{counts}}}')
    agreement = served(file)
    agreement.sync()
    assert "delete it" in str(agreement.last_error)
