from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.recording.schema import Task
from odar.lab.selection import label_free_strata, select_tasks, stratified_order
from odar.types import Query


def tasks(size):
    return [Task(str(i), Query("x" * (1 + i % 97)), "", ("rare" if i % 20 == 0 else "common")) for i in range(size)]


def test_a_large_set_gives_five_disjoint_stratified_folds_of_1000():
    drawn = select_tasks(tasks(12_000))
    assert Counter(fold for _, fold in drawn) == dict.fromkeys(range(5), 1_000)
    assert len({task.id for task, _ in drawn}) == 5_000
    for fold in range(5):
        rare = np.mean([task.stratum == "rare" for task, f in drawn if f == fold])
        assert abs(rare - 0.05) < 0.005


def test_a_small_set_is_used_whole_and_a_limit_applies():
    assert len(select_tasks(tasks(5_000))) == 5_000
    assert len(select_tasks(tasks(33))) == 33
    some = select_tasks(tasks(400), limit=40)
    assert len(some) == 40
    assert sum(task.stratum == "rare" for task, _ in some) in (1, 2, 3)
    assert {fold for _, fold in some} == set(range(5))


def test_a_plan_depends_only_on_its_seed_and_contains_shorter_plans():
    assert select_tasks(tasks(500), limit=50, seed=1) == select_tasks(tasks(500), limit=50, seed=1)
    assert select_tasks(tasks(500), limit=50, seed=1) != select_tasks(tasks(500), limit=50, seed=2)
    short, long = ([task.id for task, _ in select_tasks(tasks(500), limit=n)] for n in (50, 80))
    assert long[:50] == short  # and what is asked first is a sample by itself


@given(st.lists(st.sampled_from("abc").map(tuple), max_size=60), st.integers(0, 5))
def test_deal_is_a_permutation_whose_prefixes_are_proportional(strata, seed):
    order = stratified_order(strata, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(strata)))
    total = Counter(strata)
    for size in range(len(order)):
        for stratum, count in Counter(strata[i] for i in order[:size]).items():
            assert abs(count - size * total[stratum] / len(strata)) < len(total) + 1


def test_label_free_strata_are_quartiles_of_length():
    strata = label_free_strata(["a"] * 8, [1, 2, 3, 4, 5, 6, 7, 8])
    assert Counter(strata) == {("a", 0): 2, ("a", 1): 2, ("a", 2): 2, ("a", 3): 2}
    assert label_free_strata([], []) == []
